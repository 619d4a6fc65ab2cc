"""Fleets are judged by simulation, and what the formulas take too lightly grows."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.cli.compose import spec_folder_reader
from planner.market.offer import Offer
from planner.market.offer_filter import OfferFilter, spec_rules
from planner.perf.serving.replica import Confidence
from planner.solve.serving.requirement import (
    ServingRequirement,
    serving_requirement,
)
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.sizing import (
    FleetSizing,
    ReplicaGroup,
    size_fleet,
    sized_fleet,
)
from planner.solve.serving.verify import FleetJudge
from planner.solve.settings import DEFAULT_CONFIDENCE, SolveSettings
from planner.spec.load import load_spec
from planner.spec.model import Inference, LatencyLimit
from planner.workload.registry import workload_of
from planner.workload.solver import find
from providers.catalog.load import load_catalog as open_catalog
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT

BLUEPRINTS = sorted((ROOT / "blueprints").glob("*.yaml"))
CATALOG = open_catalog(None)


def specs() -> list[tuple[str, Inference]]:
    found = ((p, load_spec(p.read_bytes(), str(p))) for p in BLUEPRINTS)
    return [
        (str(p), s)
        for p, s in found
        if isinstance(s, Inference) and s.sla and s.sla.limits
    ]


@pytest.mark.parametrize(
    ("path", "spec"), specs(), ids=[Path(p).stem for p, _ in specs()]
)
def test_every_blueprint_passes_its_percentiles(
    path: str, spec: Inference
) -> None:
    solver = SolveSettings(
        catalog=CATALOG,
        unbuilt_reason=unsupported_reason,
        read_file=spec_folder_reader(path),
    )
    checked = find(spec, solver).simulation_check
    assert checked is not None
    assert spec.sla is not None
    for limit in spec.sla.limits:
        value, low, high = checked.percentile_bands[
            f"{limit.metric}_p{limit.percentile}_ms"
        ]
        assert low <= value <= high
        assert value <= float(limit.seconds) * 1000
        if checked.verdict == "holds":
            assert high <= float(limit.seconds) * 1000


@pytest.mark.parametrize(
    ("path", "spec"), specs(), ids=[Path(p).stem for p, _ in specs()]
)
def test_every_blueprint_keeps_its_predicted_percentiles(
    path: str, spec: Inference
) -> None:
    """Those of its SLA: simulated requests are not later than the band of the prediction.

    The replica is simulated as it is predicted, without margins.
    """
    solver = SolveSettings(
        catalog=CATALOG,
        unbuilt_reason=unsupported_reason,
        read_file=spec_folder_reader(path),
        confidence=Confidence(),
    )
    found = find(spec, solver)
    assert found.simulation_check is not None
    assert spec.sla is not None
    for limit in spec.sla.limits:
        key = f"{limit.metric}_p{limit.percentile}_ms"
        _, low, _ = found.simulation_check.percentile_bands[key]
        assert low <= found.predictions[key].high


@pytest.mark.parametrize(
    ("path", "spec"), specs(), ids=[Path(p).stem for p, _ in specs()]
)
def test_every_blueprint_can_promise_its_99th_percentile(
    path: str, spec: Inference
) -> None:
    """The same seconds at p99: a fleet is found and passes, or the spec is proved infeasible."""
    assert spec.sla is not None
    limits = tuple(replace(x, percentile=99) for x in spec.sla.limits)
    asked = replace(spec, sla=replace(spec.sla, limits=limits))
    found = find(
        asked,
        SolveSettings(
            catalog=CATALOG,
            unbuilt_reason=unsupported_reason,
            read_file=spec_folder_reader(path),
        ),
    )
    if found.status == "infeasible":
        return
    assert found.simulation_check is not None
    for x in limits:
        value, _, _ = found.simulation_check.percentile_bands[
            f"{x.metric}_p99_ms"
        ]
        assert value <= float(x.seconds) * 1000


def test_a_recorded_trace_is_what_is_played(tmp_path: Path) -> None:
    draw = random.Random(4)
    lines = ["timestamp,input_tokens,output_tokens"]
    at = 0.0
    for _ in range(3000):
        at += draw.expovariate(4.0)
        lines.append(
            f"{at:.3f},{draw.randint(200, 1500)},{draw.randint(50, 400)}"
        )
    (tmp_path / "t.csv").write_text("\n".join(lines))
    source = next(p for p in BLUEPRINTS if p.stem == "chat-8b").read_text()
    head, rest = source.split("traffic:")
    kept = rest[rest.index("\nshutdown") :] if "\nshutdown" in rest else ""
    for routing in ("random", "round-robin", "least-loaded"):
        text = head + f"traffic:\n  trace: t.csv\n  routing: {routing}\n" + kept
        spec = load_spec(text.encode(), "spec.yaml")
        assert isinstance(spec, Inference)
        found = find(
            spec,
            SolveSettings(
                catalog=CATALOG,
                unbuilt_reason=unsupported_reason,
                read_file=spec_folder_reader(str(tmp_path / "spec.yaml")),
            ),
        )
        assert found.simulation_check is not None
        assert (
            found.simulation_check.request_source,
            found.simulation_check.routing,
        ) == (
            "trace",
            routing,
        )


def bursty_requirement() -> tuple[ServingRequirement, list[Offer]]:
    """Bursts that the formulas take too lightly."""
    path = next(p for p in BLUEPRINTS if p.stem == "chat-8b")
    spec = load_spec(path.read_bytes(), str(path))
    assert isinstance(spec, Inference)
    wanted = serving_requirement(spec, spec_folder_reader(str(path)))
    bursty = replace(wanted.load, arrival_variation=36.0, rate_per_s=3.0)
    limit = LatencyLimit(metric="tpot", percentile=99, seconds=Decimal("0.06"))
    offers = OfferFilter(
        CATALOG.offer_groups,
        spec_rules(
            spec,
            unsupported_reason,
            resumes=workload_of(spec).resumes,
        ),
    ).cheapest()
    return replace(wanted, load=bursty, limits=(limit,)), offers


def test_the_simulation_asks_for_more_than_the_formulas() -> None:
    wanted, offers = bursty_requirement()
    search = ServingSearch(CATALOG.price_book)
    chosen = search.solve(wanted, offers).best
    assert chosen is not None
    sizing = chosen.sizing
    group = ReplicaGroup(sizing.nodes_per_group, sizing.replicas_per_group)
    by_formula = size_fleet(wanted, sizing.replica, group)
    assert isinstance(by_formula, FleetSizing)
    judge = FleetJudge()
    assert judge.missed_limit(wanted, by_formula) is not None
    assert judge.missed_limit(wanted, sizing) is None
    assert sizing.peak_groups > by_formula.peak_groups


def test_no_fleet_is_chosen_that_one_group_fewer_would_do() -> None:
    for path, spec in specs():
        wanted = replace(
            serving_requirement(spec, spec_folder_reader(path)),
            confidence=DEFAULT_CONFIDENCE,
        )
        offers = OfferFilter(
            CATALOG.offer_groups,
            spec_rules(spec, unsupported_reason, resumes=False),
        ).cheapest()
        chosen = ServingSearch(CATALOG.price_book).solve(wanted, offers).best
        assert chosen is not None
        sizing = chosen.sizing
        group = ReplicaGroup(sizing.nodes_per_group, sizing.replicas_per_group)
        if sizing.peak_groups > 1:
            fewer = sized_fleet(
                wanted, sizing.replica, group, sizing.peak_groups - 1
            )
            assert FleetJudge().missed_limit(wanted, fewer) is not None
