"""What a benchmark would be worth: the plan that its calibration file leads to, and never less."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.estimate.benchmark_sweep import measured_alike
from planner.estimate.calibration_file import dump_correction
from planner.estimate.calibration_worth import calibration_worth
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.perf.serving.margin import rate_errors
from planner.plan.canonical import parse_plan
from planner.plan.types import Plan
from planner.solve.serving.requirement import serving_requirement
from planner.solve.settings import DEFAULT_CONFIDENCE, SolveSettings
from planner.spec.model import Inference
from planner.workload.solver import find
from providers.catalog.load import load_catalog
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT, chat, present, spec_of
from tests.planner.cli.conftest import Command

BUSY = chat(
    model="llama-3.1-8b",
    sla="tpot_p95: 40ms, ttft_p95: 1s",
    traffic="peak_rps: RATE",
    extra="where: {accelerators: {allow: [l4, l40s]}}",
)


def planned(tonnage: Command, here: Path, text: str) -> Plan:
    (here / "s.yaml").write_text(text)
    assert tonnage("plan", "s.yaml", "-f", "json", "-o", "s.plan")[0] == 0
    return parse_plan((here / "s.plan").read_bytes(), "s.plan")


def settings_of() -> SolveSettings:
    return SolveSettings(
        catalog=load_catalog(),
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=0,
        confidence=DEFAULT_CONFIDENCE,
    )


def test_its_plan_is_that_of_the_calibration_file(
    tonnage: Command, here: Path
) -> None:
    text = BUSY.replace("RATE", "120")
    plan = planned(tonnage, here, text)
    spec, settings = spec_of(text), settings_of()
    assert isinstance(spec, Inference)
    worth = present(calibration_worth(plan, spec, settings))
    solution = find(spec, settings)
    pool = solution.pools[0]
    error_of = rate_errors(
        present(solution.llm),
        present(pool.layout),
        pool.instance.chip,
        serving_requirement(spec, lambda _: b"").load,
        engine_kind=DEFAULT_ENGINE,
    )
    correction = measured_alike(
        worth.sweep, error_of("decode").mean, error_of("prefill").mean
    )
    (here / "mine.json").write_text(dump_correction(correction, {}))
    code, _, refused = tonnage(
        *("plan", "s.yaml", "--calibration", "mine.json"),
        *("-f", "json", "-o", "c.plan"),
    )
    assert code == 0, refused
    calibrated = parse_plan((here / "c.plan").read_bytes(), "c.plan")
    assert calibrated.cost.total == worth.usd
    assert calibrated.solution.pools[0].nodes == worth.fleet.nodes


@pytest.mark.parametrize(
    "text",
    [
        *(BUSY.replace("RATE", rate) for rate in ("40", "120", "300")),
        # Its prompts decide, which a benchmark alone tells less of than all published ones.
        (ROOT / "blueprints" / "chat-70b.yaml").read_text(),
    ],
)
def test_to_measure_what_is_expected_never_costs_more(
    tonnage: Command, here: Path, text: str
) -> None:
    plan = planned(tonnage, here, text)
    worth = present(calibration_worth(plan, spec_of(text), settings_of()))
    assert worth.usd <= plan.cost.total
    assert worth.sweep.usd < plan.cost.total


def test_a_large_fleet_is_worth_a_benchmark(
    tonnage: Command, here: Path
) -> None:
    text = BUSY.replace("RATE", "300")
    plan = planned(tonnage, here, text)
    worth = present(calibration_worth(plan, spec_of(text), settings_of()))
    saved_usd = plan.cost.total - worth.usd
    assert saved_usd > 10 * worth.sweep.usd > 0
    code, page, _ = tonnage("explain", "s.yaml", "--sensitivity")
    assert code == 0
    assert "Where it measures what is expected, the plan becomes" in " ".join(
        page.split()
    )


def test_the_same_machines_are_the_same_plan(
    tonnage: Command, here: Path
) -> None:
    """Of a closed loop another speed answers more or less, and answers cost traffic: cents."""
    text = (ROOT / "blueprints" / "agent-gpt-oss.yaml").read_text()
    plan = planned(tonnage, here, text)
    worth = present(calibration_worth(plan, spec_of(text), settings_of()))
    assert worth.fleet.nodes == plan.solution.pools[0].nodes
    assert worth.usd != plan.cost.total
    assert float(worth.usd) == pytest.approx(float(plan.cost.total), rel=1e-3)
    _, page, _ = tonnage("explain", "s.yaml", "--sensitivity")
    assert "the plan stays as it is" in " ".join(page.split())


@pytest.mark.parametrize("name", ["lora-8b", "workspace-one-gpu"])
def test_what_serves_nobody_has_no_benchmark(
    tonnage: Command, here: Path, name: str
) -> None:
    text = (ROOT / "blueprints" / f"{name}.yaml").read_text()
    plan = planned(tonnage, here, text)
    assert calibration_worth(plan, spec_of(text), settings_of()) is None
