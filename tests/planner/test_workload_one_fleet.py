"""Services of a portfolio that would cost less on the same accelerators."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.solve.settings import SolveSettings
from planner.solve.solution import Solution
from planner.spec.model import Inference
from planner.workload.one_fleet import ApartService, OneFleet, one_fleets
from planner.workload.solver import find as find_fleet
from providers.catalog.load import load_catalog
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, only, present, spec_of

CATALOG = only(
    load_catalog(None),
    lambda o: (
        o.instance.instance_type in ("g6.xlarge", "g4dn.xlarge")
        and o.region == "us-east-1"
    ),
)
ALIKE = "where: {clouds: [aws]}\nbuy: {spot: never}"


def text_of(name: str, model: str, extra: str = ALIKE) -> str:
    return chat(model, traffic="peak_rps: 0.2", extra=extra).replace(
        "name: chat", f"name: {name}"
    )


def answer(spec: Inference, read_file) -> Solution:
    return find_fleet(
        spec,
        SolveSettings(
            catalog=CATALOG,
            unbuilt_reason=unsupported_reason,
            read_file=read_file,
            alternative_count=0,
        ),
    )


def apart(text: str) -> ApartService:
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    bill = present(answer(spec, lambda _: b"").bill)
    return ApartService(
        spec=spec,
        file_bytes=text.encode(),
        usd=bill.total,
        busy_accelerators=0.1,
        read_file=lambda _: b"",
    )


def groups(*texts: str) -> list[OneFleet]:
    return list(one_fleets([apart(text) for text in texts], answer))


SMALL = text_of("small", "llama-3.2-3b")
RERANK = text_of("rerank", "llama-3.2-1b")
EMBED = text_of("embed", "qwen2.5-3b")


def test_small_services_are_told_of_one_fleet() -> None:
    services = [apart(text) for text in (SMALL, RERANK, EMBED)]
    [group] = one_fleets(services, answer)
    assert group.names == ("embed", "rerank", "small")
    assert group.apart_usd == sum((s.usd for s in services), Decimal(0))
    assert group.saved_usd == group.apart_usd - group.usd > 0
    assert group.fleet.nodes == 1


@pytest.mark.parametrize(
    "other",
    [
        text_of("rerank", "llama-3.2-1b", "where: {clouds: [gcp]}"),
        text_of(
            "rerank", "llama-3.2-1b", f"{ALIKE}\nserving: {{engine: sglang}}"
        ),
        text_of(
            "rerank",
            "llama-3.2-1b",
            f"{ALIKE}\nelastic: {{least: 0.5, most: 2}}",
        ),
    ],
)
def test_services_that_may_not_share_are_told_of_nothing(other: str) -> None:
    first = apart(SMALL)
    spec = spec_of(other)
    assert isinstance(spec, Inference)
    second = ApartService(
        spec=spec,
        file_bytes=other.encode(),
        usd=Decimal(10_000),
        busy_accelerators=0.1,
        read_file=lambda _: b"",
    )
    assert not list(one_fleets([first, second], answer))


def test_one_service_alone_is_no_group() -> None:
    assert not groups(SMALL)


def test_a_group_that_saves_nothing_is_not_told() -> None:
    cheap = [
        ApartService(
            spec=s.spec,
            file_bytes=s.file_bytes,
            usd=Decimal(1),
            busy_accelerators=0.1,
            read_file=lambda _: b"",
        )
        for s in (apart(SMALL), apart(RERANK))
    ]
    assert not list(one_fleets(cheap, answer))


def test_what_keeps_an_accelerator_busy_is_not_tried() -> None:
    """The others still are, and no answer is asked for with the busy one."""
    services = [apart(SMALL), apart(RERANK)]
    [group] = one_fleets(services, answer)
    busy = replace(apart(text_of("busy", "llama-3.2-1b")), busy_accelerators=2)
    assert list(one_fleets([*services, busy], answer)) == [group]
    assert "busy" not in group.names
