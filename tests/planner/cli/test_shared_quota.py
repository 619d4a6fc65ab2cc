"""plan --share with the quotas of an account: one bound for all specs."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.cli.live import facts_text
from planner.market.live import LiveFacts, PlaceFacts, QuotaAnswer, QuotaFact
from providers.live.place import LivePlace
from tests.conftest import untimed
from tests.planner.cli.conftest import Command
from tests.planner.cli.test_live import NOW, clouds_that, facts_of
from tests.planner.test_workload_portfolio import write

__all__ = ("clouds_that",)

REGIONS = ("us-east-1", "us-east-2")
ZONES = {
    "europe": "Europe/Berlin",
    "america": "America/Los_Angeles",
    "twin": "Europe/Berlin",
}


def place(known: LivePlace, limit: float) -> PlaceFacts:
    """A region with one quota of vCPUs for all of its machines on demand."""
    quota = QuotaFact(
        machine_types=known.machine_types,
        purchase="on_demand",
        unit="vcpus",
        id="L-1",
        name="Running On-Demand G and VT instances",
        limit=limit,
        used=0.0,
    )
    answer = QuotaAnswer(
        state="value", as_of=NOW, request="quota", value=(quota,)
    )
    return replace(facts_of(known, {}), quotas={"on_demand": answer})


def record(here: Path, *limits: float) -> None:
    types = tuple(f"g6e.{size}xlarge" for size in ("", 2, 4, 8, 12, 16, 24, 48))
    facts = LiveFacts(
        places=tuple(
            place(LivePlace("aws", region, types), limit)
            for region, limit in zip(REGIONS, limits, strict=True)
        )
    )
    (here / "facts.json").write_text(facts_text(facts))


@pytest.fixture
def specs(here: Path) -> list[str]:
    paths = [write(here, name, zone) for name, zone in ZONES.items()]
    for path in paths:
        text = (here / path).read_text()
        where = f"regions: [{', '.join(REGIONS)}], accelerators"
        (here / path).write_text(text.replace("accelerators", where))
    return paths


def total_alone(page: str) -> Decimal:
    [line] = [line for line in page.splitlines() if line.startswith("  all ")]
    return Decimal(line.split()[1].strip("$").replace(",", ""))


def test_more_quota_never_costs_more_and_what_is_short_is_told(
    tonnage: Command, here: Path, specs: list[str]
) -> None:
    flags = ("plan", "--share", "--replay", "facts.json", *specs)
    totals = []
    for limit in (32, 40, 48):
        record(here, limit, 32)
        code, page, told = tonnage(*flags)
        assert (code, untimed(told)) == (0, "")
        totals.append(total_alone(page))
        said = " ".join(page.split())
        assert ("need 48 of the quota L-1" in said) == (limit < 48)
        remedy = "tonnage quota request aws us-east-1 L-1 48"
        assert (remedy in said) == (limit < 48)
        assert ("us-east-2" in page) == (limit < 48)
    assert totals == sorted(totals, reverse=True)


def test_what_does_not_fit_together_exits_10_with_the_request(
    tonnage: Command, here: Path, specs: list[str]
) -> None:
    record(here, 24, 0)
    code, page, told = tonnage(
        "plan", "--share", "--replay", "facts.json", *specs
    )
    assert code == 10
    assert page == ""
    said = " ".join(told.split())
    assert "error[quota]: no fleets of these workloads fit" in said
    assert "need 48 of the quota L-1 in aws us-east-1 at once, and 24" in said
    assert "tonnage quota request aws us-east-1 L-1 48" in said
    # Each of them fits alone.
    for spec in specs:
        assert tonnage("plan", "--replay", "facts.json", spec)[0] == 0
    # Exactly what is asked for is enough.
    record(here, 48, 0)
    assert tonnage("plan", "--share", "--replay", "facts.json", *specs)[0] == 0


def test_an_account_is_asked_where_the_others_go(
    tonnage: Command, here: Path, specs: list[str], clouds_that
) -> None:
    """With --live the next region is asked before a service goes there."""
    asked = clouds_that(lambda known: place(known, 40))
    code, page, told = tonnage("plan", "--share", "--live", *specs)
    assert code == 0, told
    live = total_alone(page)
    assert asked is not None
    record(here, 40, 40)
    code, page, told = tonnage(
        "plan", "--share", "--replay", "facts.json", *specs
    )
    assert code == 0, told
    assert total_alone(page) == live


def test_several_specs_are_planned_with_live_each_alone(
    tonnage: Command, here: Path, specs: list[str], clouds_that
) -> None:
    clouds_that(lambda known: place(known, 24))
    code, page, told = tonnage("plan", "--live", *specs)
    assert code == 0, told
    assert page.count("us-east-1  ·  4 x g6e.xlarge") == len(specs)
    assert "warning[shared-quota]: each of these plans fits" in told


def test_plans_that_do_not_fit_together_are_told_with_one_next_step(
    tonnage: Command, here: Path, specs: list[str]
) -> None:
    """Exactly where sharing would find that the quota is short, in each format."""
    for limit in (47, 48):
        record(here, limit, 32)
        together = tonnage("plan", "--share", "--replay", "facts.json", *specs)[
            1
        ]
        is_short = "do not allow" in " ".join(together.split())
        assert is_short == (limit < 48)
        for output_format in ("text", "html")[: 1 + is_short]:
            code, page, told = tonnage(
                "plan",
                "--replay",
                "facts.json",
                "-f",
                output_format,
                *specs,
            )
            assert code == 0, told
            assert "shared-quota" not in page
            assert told.count("warning[shared-quota]") == is_short
            if is_short:
                assert "need 48 of the quota L-1" in told
                assert told.count("next: ") == 1
                names = " ".join(specs)
                assert (
                    f"tonnage plan --share --replay facts.json {names}" in told
                )
    # One of them alone, and one stack twice, exceed nothing.
    for few in (specs[:1], [specs[0], specs[0]]):
        record(here, 24, 32)
        *_, told = tonnage("plan", "--replay", "facts.json", *few)
        assert untimed(told) == ""


def test_the_order_of_files_decides_nothing(
    tonnage: Command, here: Path, specs: list[str]
) -> None:
    """Two specs that are the same but for their names: the first by name stays."""
    record(here, 40, 48)
    pages = [
        tonnage("plan", "--share", "--replay", "facts.json", *order)[1]
        for order in (specs, specs[::-1])
    ]
    rows = [
        sorted(line for line in page.splitlines() if line.startswith("  "))
        for page in pages
    ]
    assert rows[0] == rows[1]
    assert "us-east-2" in pages[0]
