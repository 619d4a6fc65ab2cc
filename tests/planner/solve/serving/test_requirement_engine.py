"""Plans by `serving.engine`: what each engine is planned with, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.market.offer import Catalog
from planner.perf.serving.correction import Correction, prior
from planner.perf.serving.margin import (
    RateTarget,
    engine_variance,
    has_own_errors,
    rate_error,
)
from planner.perf.serving.replica import Confidence
from planner.solve.serving.requirement import serving_requirement
from planner.solve.settings import SolveSettings
from planner.solve.solution import SizedPool, Solution
from planner.spec.model import Inference
from planner.workload.solver import find as find_fleet
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, find, present, spec_of

SGLANG = "serving: {engine: sglang}\n"
TRTLLM = "serving: {engine: tensorrt-llm}\n"


def solved(
    catalog: Catalog, more: str = "", correction: Correction | None = None
) -> Solution:
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        confidence=Confidence(0.9, correction),
        alternative_count=0,
    )
    return find_fleet(spec_of(chat(extra=more)), settings).explained()


@pytest.mark.parametrize("level", [0.6, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("target", ["decode", "prefill"])
@pytest.mark.parametrize("engine_kind", ["sglang", "trtllm"])
def test_an_engine_without_errors_of_its_own_is_never_surer(
    level: float, target: RateTarget, engine_kind: str
) -> None:
    assert not has_own_errors(engine_kind)
    assert engine_variance() > 0
    for architecture in ("Hopper", "Blackwell", "Ampere"):
        own, other = (
            rate_error(
                target,
                architecture,
                frozenset(),
                "calibrated",
                engine_kind=kind,
                is_borrowed=not has_own_errors(kind),
            )
            for kind in ("vllm", engine_kind)
        )
        assert other.sigma > own.sigma
        assert other.slowdown(level) > own.slowdown(level)


def test_throughput_is_as_sure_with_every_engine() -> None:
    """Offline measurements are of all engines, and so are their errors."""
    errors = {
        rate_error(
            "throughput",
            "Hopper",
            frozenset(),
            "calibrated",
            engine_kind=kind,
            is_borrowed=not has_own_errors(kind),
        )
        for kind in ("vllm", "sglang", "trtllm")
    }
    assert len(errors) == 1


def test_a_plan_says_which_engine_serves(catalog: Catalog) -> None:
    codes = {
        more: [warning.code for warning in solved(catalog, more).warnings]
        for more in ("", SGLANG)
    }
    assert "engine" not in codes[""]
    assert "engine" in codes[SGLANG]
    assert solved(catalog, SGLANG).pools[0].engine == "sglang"


def test_an_accelerator_that_nothing_shows_an_engine_on_is_left_out(
    catalog: Catalog,
) -> None:
    only = "where: {accelerators: {allow: [rtx-pro-6000-bse]}}\n"
    assert solved(catalog, only).pools
    assert not solved(catalog, only + SGLANG).pools


def test_a_cache_of_8_bits_is_never_guessed(catalog: Catalog) -> None:
    """No row says that SGLang has kernels for it: it is there where the spec asks for it."""
    spec = spec_of(chat(extra=SGLANG))
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    assert "fp8" in requirement.kv_precisions
    layout = present(solved(catalog, SGLANG).pools[0].layout)
    assert layout.kv_precision == "bf16"
    asked = chat(extra=SGLANG).replace(
        "precision: auto", "precision: auto, kv_precision: fp8"
    )
    [pool] = find(catalog, asked, keep=0).pools
    assert present(pool.layout).kv_precision == "fp8"


def correction(engine: str, pool: SizedPool) -> Correction:
    return Correction(
        model="llama-3.1-8b",
        accelerator=pool.instance.chip.accelerator,
        precision=present(pool.layout).precision,
        engine=engine,
        tp=present(pool.layout).tp,
        points=9,
        tpot=prior("tpot"),
        ttft=prior("ttft"),
    )


@pytest.mark.parametrize(
    ("more", "engine"),
    [("", "vllm"), (SGLANG, "sglang"), (TRTLLM, "trtllm")],
)
def test_a_benchmark_of_another_engine_says_nothing(
    catalog: Catalog, more: str, engine: str
) -> None:
    plain = solved(catalog, more)
    for measured in ("vllm", "sglang", "trtllm"):
        found = solved(catalog, more, correction(measured, plain.pools[0]))
        told = [
            warning.reason.code
            for warning in found.warnings
            if warning.code == "calibration"
        ]
        if measured != engine:
            assert told == ["engine-calibration"]
            # It is planned as if there was none.
            assert found.bill == plain.bill
        else:
            assert "engine-calibration" not in told


def test_the_document_of_a_plan_has_the_engine_of_its_spec(
    tonnage: Callable[..., tuple[int, str, str]], here: Path
) -> None:
    (here / "s.yaml").write_text(chat(extra=SGLANG))
    code, _, refused = tonnage("plan", "s.yaml", "-f", "json", "-o", "plan")
    assert code == 0, refused
    plan = json.loads((here / "plan").read_text())
    [told] = [one for one in plan["warnings"] if one["code"] == "engine"]
    assert "sglang" in told["message"]
    code, shown, _ = tonnage("plan", "s.yaml")
    assert code == 0
    assert "! machines start sglang" in shown


def test_a_given_machine_that_nothing_shows_the_engine_on_is_refused(
    tonnage: Callable[..., tuple[int, str, str]], here: Path
) -> None:
    (here / "s.yaml").write_text(chat(extra=SGLANG))
    words = ("estimate", "s.yaml", "--on")
    code, _, told = tonnage(*words, "g7e.2xlarge")
    assert code == 10
    assert "nothing shows that sglang serves" in told
    assert "next: choose another precision, or serving.engine: vllm" in told
    assert tonnage(*words, "g6e.xlarge")[0] == 0
