"""Where each number of a plan is from: its source, its date, and the row that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.html.blocks import table_markup
from planner.render.html.figure import Section
from planner.render.page import PageTable
from planner.render.plan import prediction_rows
from planner.render.price_origin import line_origin, origin_text
from planner.render.proof import proof_phrase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.plan.types import HostedCost, Plan
    from planner.workload.outlook import FactSource

# What a predicted number rests on.
BASIS_TEXTS: Final = {
    "measured": "your own measurements of this deployment",
    "calibrated": "published measurements of its kind, or your own of another layout",
    "physics": "formulas; no measurement of its kind, so a wider band",
    "spec": "the data sheet alone",
}
NO_DATE: Final = ""


def source_section(plan: Plan, data_sheets: Sequence[FactSource]) -> Section:
    """Return a row for every price, prediction, assumption and file."""
    rows = (
        *_price_rows(plan),
        *_other_price_rows(plan),
        *_prediction_rows(plan),
        *_usage_rows(plan),
        *_fact_rows(plan, data_sheets),
        *_file_rows(plan),
    )
    table = PageTable(
        ("number", ">value", "source", "date", "row"), tuple(rows)
    )
    return Section(
        key="sources",
        title="Where each number is from",
        content=(table_markup(table, "Sources of all numbers"),),
    )


def _price_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for cost_line in plan.cost.lines:
        yield (
            f"price: {cost_line.name}",
            f"{figures.unit_price(cost_line.unit_price)} USD per {cost_line.unit}",
            line_origin(plan, cost_line),
            cost_line.price_as_of or NO_DATE,
            cost_line.price_row or cost_line.kind,
        )


def _other_price_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for hosted in plan.cost.hosted:
        yield (
            f"price: tokens at {hosted.provider}",
            _token_prices(hosted),
            hosted.price_source,
            hosted.price_as_of,
            hosted.name,
        )
    for fleet in plan.cost.elsewhere:
        yield (
            f"price: a machine at {fleet.cloud}",
            f"{figures.unit_price(fleet.usd_hour)} USD an hour",
            origin_text(plan, fleet.price_source),
            fleet.price_as_of,
            fleet.machine,
        )


def _token_prices(hosted: HostedCost) -> str:
    return (
        f"{figures.token_price(hosted.input_usd)} in, "
        f"{figures.token_price(hosted.output_usd)} out"
    )


def _prediction_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for title, value, band, basis in prediction_rows(plan.solution.predicted):
        yield (
            f"predicted: {title}",
            f"{value} ({band})",
            BASIS_TEXTS[basis],
            NO_DATE,
            f"basis: {basis}",
        )


def _usage_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for used in plan.cost.usage:
        yield (
            f"use: {used.meaning}",
            f"{used.amount:f} {used.unit}",
            used.source,
            NO_DATE,
            f"usage.{used.name}",
        )


def _fact_rows(
    plan: Plan, data_sheets: Sequence[FactSource]
) -> Iterator[tuple[str, ...]]:
    model = plan.workload.model
    if model is not None:
        yield (
            f"model: {model.name}",
            f"{figures.short_count(int(model.params))} parameters",
            model.source,
            NO_DATE,
            model.family,
        )
    for sheet in data_sheets:
        yield (
            f"data sheet: {sheet.name}",
            "",
            sheet.source,
            sheet.as_of,
            "accelerators.csv",
        )


def _file_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    yield (
        "catalog",
        f"{plan.solution.considered:,} offers"
        + (f", {proof_phrase(plan)}" if plan.is_feasible else ""),
        "its files",
        plan.catalog.as_of,
        f"sha256 {plan.catalog.sha256}",
    )
    yield ("spec", "", plan.spec.path, NO_DATE, f"sha256 {plan.spec.sha256}")
    for name, digest in sorted(plan.inputs.files.items()):
        yield ("file of the spec", "", name, NO_DATE, f"sha256 {digest}")
    inputs = plan.inputs
    if inputs.calibration is not None:
        digest_text = f"sha256 {inputs.calibration_sha256}"
        yield ("calibration", "", inputs.calibration, NO_DATE, digest_text)
    if inputs.prices is not None:
        digest_text = f"sha256 {inputs.prices_sha256}"
        yield ("prices of one's own", "", inputs.prices, NO_DATE, digest_text)
    yield (
        "plan",
        "",
        f"tonnage {plan.tool_version}",
        NO_DATE,
        f"digest {plan.digest}",
    )
