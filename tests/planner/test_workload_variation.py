"""What wishes cost: each variation is a plan of its own, and a looser wish never costs more."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.perf.serving.replica import Confidence
from planner.solve.settings import SolveSettings
from planner.workload import variation
from planner.workload.solver import find
from planner.workload.variation import (
    Variation,
    VariationKind,
    answer_of,
    variations,
)
from stacks.spec.table import unsupported_reason
from tests.conftest import ROOT, chat, only, present, spec_of
from tests.planner.cli.conftest import Command

TEXT = chat(
    traffic="peak_rps: 20\n  profile: diurnal",
    extra="where: {clouds: [aws]}",
)


def settings_of(catalog: Any) -> SolveSettings:
    return SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
        alternative_count=0,
    )


def by_subject(
    catalog: Any, text: str, kind: VariationKind
) -> dict[str, list[Variation]]:
    found = defaultdict(list)
    for one in variations(spec_of(text), settings_of(catalog), kind):
        found[one.subject].append(one)
    return {
        subject: sorted(ones, key=lambda one: one.value)
        for subject, ones in found.items()
    }


def blueprint(name: str) -> str:
    return (ROOT / "blueprints" / f"{name}.yaml").read_text()


def cost(one: Variation) -> Decimal:
    return Decimal("Infinity") if one.answer.usd is None else one.answer.usd


@pytest.mark.parametrize("text", [TEXT, blueprint("summarize-batch")])
def test_a_looser_limit_never_costs_more(catalog, text: str) -> None:
    for subject, ones in by_subject(catalog, text, "frontier").items():
        costs = [cost(one) for one in ones]
        is_rising = subject == "confidence"
        assert costs == sorted(costs, reverse=not is_rising), subject
        assert len(costs) == 5


def test_each_point_is_a_plan_of_its_own(catalog) -> None:
    catalog = only(
        catalog, lambda offer: offer.instance.family in ("g6", "g6e")
    )
    spec, settings = spec_of(TEXT), settings_of(catalog)
    sla = present(getattr(spec, "sla", None))
    for one in variations(spec, settings, "frontier"):
        if one.quantity == "confidence":
            level = Confidence(float(one.value))
            expected = find(spec, replace(settings, confidence=level))
        else:
            limits = tuple(
                replace(limit, seconds=one.value)
                if one.subject == f"sla.{limit.key}"
                else limit
                for limit in sla.limits
            )
            varied: Any = replace(spec, sla=replace(sla, limits=limits))
            expected = find(varied, settings)
        bill = expected.bill
        assert one.answer.usd == (bill.total if bill else None)


@pytest.mark.parametrize("text", [TEXT, blueprint("summarize-batch")])
def test_what_the_spec_itself_costs_need_not_be_asked(
    catalog, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    spec, settings = spec_of(text), settings_of(catalog)
    asked: list[Any] = []

    def counted(varied: Any, varied_settings: SolveSettings) -> Any:
        asked.append(varied)
        return find(varied, varied_settings)

    monkeypatch.setattr(variation, "find", counted)
    alone = variations(spec, settings, "frontier")
    count_alone = len(asked)
    planned = answer_of(find(spec, settings))
    assert variations(spec, settings, "frontier", planned) == alone
    assert len(asked) - count_alone < len(alone)


@pytest.mark.parametrize(
    "text", [TEXT, blueprint("lora-8b"), blueprint("workspace-one-gpu")]
)
def test_more_of_what_costs_money_never_costs_less(catalog, text: str) -> None:
    found = by_subject(catalog, text, "sensitivity")
    assert {"price of machines", "everything besides machines"} <= found.keys()
    for subject, ones in found.items():
        low, high = map(cost, ones)
        is_limit = ones[0].quantity == "limit"
        assert (high <= low) if is_limit else (low <= high), subject


def test_the_pages_say_what_is_traded_and_what_moves_the_bill(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(TEXT)
    code, page, _ = tonnage("explain", "s.yaml", "--pareto")
    assert code == 0
    assert "as the spec says" in page
    assert "sla.ttft_p95" in page
    code, page, _ = tonnage("explain", "s.yaml", "--sensitivity")
    assert code == 0
    assert "price of machines" in page
    assert "██████████" in page
    (here / "w.yaml").write_text(blueprint("workspace-one-gpu"))
    page = tonnage("explain", "w.yaml", "--pareto")[1]
    assert "no limit that could be traded" in page


@pytest.mark.parametrize("text", [TEXT, blueprint("summarize-batch")])
def test_an_error_of_predictions_has_a_fast_and_a_slow_side(
    catalog, text: str
) -> None:
    """A fast machine does with no more than even odds; a slow one takes what 95 % take."""
    spec, settings = spec_of(text), settings_of(catalog)
    fast, slow = by_subject(catalog, text, "sensitivity")[
        "the error of predictions"
    ]

    def bill_at(level: float) -> Decimal:
        solution = find(spec, replace(settings, confidence=Confidence(level)))
        return present(solution.bill).total

    assert cost(fast) < bill_at(0.5)
    assert cost(slow) == bill_at(0.95)
