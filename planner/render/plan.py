"""Page of a plan: request, fleet, predictions, alternatives, cost and resources."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar

from planner import figures
from planner.render import training
from planner.render.page import (
    Block,
    Heading,
    Page,
    PageTable,
    Paragraph,
    Tone,
    total_row_tones,
)
from planner.workload.registry import workload_of_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import FleetRef, Plan, Prediction
    from planner.solve.solution import FleetSummary

GOOD_TONE: Final[Tone] = "good"
LINE_WIDTH: Final = 100
DEFAULT_PERCENTILES: Final = frozenset({"ttft_p95_ms", "tpot_p95_ms"})
ROUTING_PHRASES: Final = {
    "random": "at random",
    "round-robin": "in turn",
    "least-loaded": "to the least loaded",
}


MetricT = TypeVar("MetricT")


def plan_page(plan: Plan, *, full: bool = False, saved_path: str = "") -> Page:
    """Return the page of a plan.

    full        list every resource
    saved_path  file of the plan, for the suggested apply; empty when it was not saved
    """
    page_blocks: list[Block] = [*_request_blocks(plan)]
    if plan.solution.status == "infeasible":
        return (*page_blocks, *_infeasible_blocks(plan))
    page_blocks += chosen_blocks(plan)
    page_blocks += alternative_blocks(plan)
    # A training job shows layouts and scenarios, no binding limits.
    if plan.solution.run:
        page_blocks += training.run_blocks(plan.solution.run)
    else:
        page_blocks += binding_blocks(plan)
    page_blocks += _cost_blocks(plan)
    page_blocks += _energy_blocks(plan)
    page_blocks += _resource_blocks(plan, full=full)
    page_blocks += _closing_blocks(plan, saved_path)
    return tuple(page_blocks)


def _request_blocks(plan: Plan) -> list[Block]:
    spec_phrases = [plan.spec.path, str(plan.workload.kind)]
    if plan.workload.model is not None:
        spec_phrases.append(plan.workload.model.name)
    spec_phrases += workload_of_kind(
        plan.spec.normalized["kind"]
    ).request_phrases(plan.spec.normalized)
    sla_limits = (plan.spec.normalized.get("sla") or {}).get("limits", [])
    spec_phrases += [
        (
            f"{sla_limit['metric'].upper()} p{sla_limit['percentile']} <= "
            f"{_limit_time(sla_limit['seconds'])}"
        )
        for sla_limit in sla_limits
    ]
    catalog_line = (
        f"catalog of {plan.catalog.as_of} ({plan.catalog.sha256[:8]}), "
        f"{plan.solution.considered:,} offers considered"
    )
    # The first four phrases fit in one line of a terminal.
    phrase_lines = (
        "  ·  ".join(spec_phrases[:4]),
        "  ·  ".join(spec_phrases[4:]),
    )
    return [
        *(
            Paragraph(phrase_line, "strong")
            for phrase_line in phrase_lines
            if phrase_line
        ),
        Paragraph(catalog_line, "dim"),
    ]


def _limit_time(seconds_text: str) -> str:
    return figures.milliseconds(float(seconds_text) * 1000)


def chosen_blocks(plan: Plan) -> list[Block]:
    """Return the chosen fleet with its layout, predictions and simulation result."""
    table_rows = []
    for pool_index, pool_entry in enumerate(plan.solution.pools):
        accelerator_text = (
            f"{pool_entry.accelerators_per_node} x {pool_entry.accelerator}"
        )
        table_rows.append(
            (
                "" if pool_index else "CHOSEN",
                f"{pool_entry.provider} {pool_entry.region}",
                f"{pool_entry.nodes} x {pool_entry.instance_type}",
                accelerator_text,
                pool_entry.purchase_text,
                # The bill is that of all pools together.
                "" if pool_index else _total_text(plan),
            )
        )
    page_blocks: list[Block] = [
        PageTable(
            ("", "", "", "", "", ">"),
            tuple(table_rows),
            tuple(GOOD_TONE for _ in table_rows),
        ),
        *(Paragraph("  " + layout_line) for layout_line in _layout_lines(plan)),
    ]
    metric_rows = prediction_rows(
        _limited_metrics(plan, plan.solution.predicted)
    )
    if metric_rows:
        column_titles = ("predicted at peak", ">value", ">90 % band", "basis")
        page_blocks.append(PageTable(column_titles, tuple(metric_rows)))
    return [*page_blocks, *_verification_blocks(plan)]


def _limited_metrics(
    plan: Plan, metrics: Mapping[str, MetricT]
) -> dict[str, MetricT]:
    """Return the metrics to show: limited percentiles and all that are no percentile.

    Without limits the percentiles are TTFT p95 and TPOT p95.
    """
    sla_limits = (plan.spec.normalized.get("sla") or {}).get("limits", [])
    shown_percentiles = {
        f"{sla_limit['metric']}_p{sla_limit['percentile']}_ms"
        for sla_limit in sla_limits
    } or DEFAULT_PERCENTILES
    return {
        metric_key: metric
        for metric_key, metric in metrics.items()
        # Only percentiles of latency have keys that end in _ms.
        if metric_key in shown_percentiles or not metric_key.endswith("_ms")
    }


def _verification_blocks(plan: Plan) -> list[Block]:
    """Return the percentiles of the request-level simulation."""
    verification = plan.solution.verified
    if verification is None:
        return []
    metric_texts = []
    percentiles = _limited_metrics(plan, verification.found)
    for metric_key, percentile in sorted(percentiles.items()):
        value_text = _metric_text(metric_key, percentile.value)
        low_text = _metric_text(metric_key, percentile.low)
        high_text = _metric_text(metric_key, percentile.high)
        metric_texts.append(
            f"{_metric_title(metric_key)} {value_text} "
            f"({low_text} to {high_text})"
        )
    trace_phrase = (
        "of the trace, " if verification.requests_of == "trace" else ""
    )
    summary_text = (
        f"  verified with {verification.requests:,} simulated requests "
        f"{trace_phrase}routed {ROUTING_PHRASES[verification.routing]}: "
        f"{', '.join(metric_texts)}"
    )
    # The simulation needed more replicas than the formulas.
    if verification.added_groups:
        summary_text += (
            f"; that took {verification.added_groups} more than the formulas"
        )
    return [Paragraph(summary_text)]


def _total_text(plan: Plan) -> str:
    # With an unknown price the total is a lower bound.
    partial_mark = ">= " if plan.cost.is_partial else ""
    period_suffix = "/mo" if plan.cost.period == "month" else ""
    return f"{partial_mark}{figures.dollars(plan.cost.total)}{period_suffix}"


def _layout_lines(plan: Plan) -> list[str]:
    if plan.solution.run:
        return training.run_lines(plan.solution.run)
    layout_lines = []
    for pool_entry in plan.solution.pools:
        layout_entry = pool_entry.layout
        # A workspace serves no model, so it has no layout.
        if layout_entry is None:
            layout_lines.append(
                f"one machine for each of {pool_entry.nodes} users"
            )
            continue
        layout_text = f"TP{layout_entry.tp}" + (
            f" PP{layout_entry.pp}" if layout_entry.pp > 1 else ""
        )
        layout_text += f" EP{layout_entry.ep}" if layout_entry.ep > 1 else ""
        replica_noun = "replica" if pool_entry.replicas == 1 else "replicas"
        pool_text = (
            f"{pool_entry.replicas} {replica_noun} of {layout_text} in "
            f"{layout_entry.precision}, "
        )
        pool_text += f"up to {layout_entry.max_batch} requests each"
        # The number of nodes follows the weekly load.
        if pool_entry.min_nodes < pool_entry.nodes:
            pool_text += (
                f"; {pool_entry.min_nodes} to {pool_entry.nodes} nodes "
                "over the week"
            )
        layout_lines.append(pool_text)
    return layout_lines


def prediction_rows(
    predictions: Mapping[str, Prediction],
) -> list[tuple[str, ...]]:
    """Return a row for each prediction: name, value, band, basis."""
    return [
        (
            _metric_title(metric_key),
            _metric_text(metric_key, prediction.value),
            _band_text(metric_key, prediction),
            prediction.basis,
        )
        for metric_key, prediction in sorted(predictions.items())
    ]


def _band_text(metric_key: str, prediction: Prediction) -> str:
    low_text = _metric_text(metric_key, prediction.low)
    high_text = _metric_text(metric_key, prediction.high)
    return f"{low_text} to {high_text}"


def _metric_title(metric_key: str) -> str:
    if metric_key.endswith("_ms"):
        metric_name, percentile = metric_key.removesuffix("_ms").rsplit("_", 1)
        return f"{metric_name.upper()} {percentile}"
    metric_titles = {
        "memory_fraction": "memory used",
        "memory_gib_per_accelerator": "GiB per accelerator",
        "output_tokens_per_s": "output tokens/s",
        "requests_per_s": "requests/s",
        # The document has days, the page shows hours.
        "duration_days": "hours of a run",
        "mfu": "MFU, 16-bit peak",
        "step_time_s": "seconds of a step",
        "tokens_per_s_per_accelerator": "tokens/s each",
    }
    return metric_titles.get(metric_key, metric_key)


def _metric_text(metric_key: str, metric_value: float) -> str:
    if metric_key.endswith("_ms"):
        return figures.milliseconds(metric_value)
    # Fractions of 1.
    if metric_key in ("memory_fraction", "mfu", "goodput"):
        return figures.percentage(metric_value)
    if metric_key == "duration_days":
        return f"{metric_value * 24:,.1f}"
    return (
        f"{metric_value:,.0f}"
        if metric_value >= 100
        else f"{metric_value:,.1f}"
    )


def alternative_blocks(plan: Plan) -> list[Block]:
    """Return the fleets that were not chosen, with cost and reason."""
    table_rows = []
    for alternative in plan.alternatives:
        for pool_entry in alternative.pools:
            location = f"{pool_entry.provider} {pool_entry.region}"
            machine_text = f"{pool_entry.nodes} x {pool_entry.instance_type}"
            cost_text = figures.dollars(alternative.usd_month)
            table_rows.append(
                (
                    location,
                    machine_text,
                    pool_entry.purchase,
                    cost_text,
                    alternative.rejected_by,
                )
            )
    if not table_rows:
        return []
    cost_title = ">$/mo" if plan.cost.period == "month" else ">USD"
    column_titles = ("not chosen", "", "", cost_title, "what stops it")
    return [PageTable(column_titles, tuple(table_rows))]


def binding_blocks(plan: Plan) -> list[Block]:
    """Return the limits that raise the cost, with the saving when each is relaxed."""
    table_rows = []
    for relaxation in plan.solution.binding:
        slack_text = (
            ""
            if relaxation.slack is None
            else figures.percentage(relaxation.slack)
        )
        savings_text = figures.dollars(relaxation.saves_usd_month)
        table_rows.append(
            (
                relaxation.constraint,
                slack_text,
                relaxation.relax_to,
                savings_text,
                fleet_text(relaxation.fleet),
            )
        )
    safety_cost = plan.solution.safety
    # The row for confidence is the cost against even odds.
    if safety_cost and safety_cost.fleet:
        constraint_text = (
            f"confidence {figures.percentage(safety_cost.confidence)}"
        )
        table_rows.append(
            (
                constraint_text,
                "",
                "50 %",
                figures.dollars(safety_cost.usd_month),
                fleet_text(safety_cost.fleet),
            )
        )
    if not table_rows:
        return [
            Paragraph(
                "no wish of the spec costs money: nothing binds but the price",
                "dim",
            )
        ]
    column_titles = ("binding", ">slack", "relaxed to", ">saves $/mo", "with")
    return [PageTable(column_titles, tuple(table_rows))]


def fleet_text(fleet: FleetRef | FleetSummary | None) -> str:
    """Return cloud, region, machine type and count of a fleet, as far as known."""
    if fleet is None:
        return ""
    words = (fleet.provider, fleet.region, fleet.instance_type)
    name = " ".join(word for word in words if word)
    return f"{name} x {fleet.nodes}" if fleet.nodes else name


def _cost_blocks(plan: Plan) -> list[Block]:
    table_rows = []
    for cost_line in plan.cost.lines:
        price_text = figures.unit_price(cost_line.unit_price)
        quantity_text = (
            f"{figures.quantity(cost_line.quantity)} {cost_line.unit}"
        )
        # An unpriced line is listed but not in the total.
        price_date = cost_line.price_as_of or "no price known"
        table_rows.append(
            (
                cost_line.name,
                quantity_text,
                price_text,
                figures.dollars(cost_line.usd, cents=True),
                price_date,
            )
        )
    table_rows.append(("total", "", "", _total_text(plan), ""))
    period_title = (
        "cost of a month" if plan.cost.period == "month" else "cost of the run"
    )
    column_titles = (
        period_title,
        ">quantity",
        ">unit price",
        ">USD",
        "price of",
    )
    return [
        PageTable(
            column_titles, tuple(table_rows), total_row_tones(len(table_rows))
        )
    ]


def _energy_blocks(plan: Plan) -> list[Block]:
    """Return power and energy; nothing when the accelerators' power is unknown."""
    energy_use = plan.solution.energy
    if not energy_use:
        return []
    period_text = "a month" if plan.cost.period == "month" else "the run"
    energy_text = (
        f"energy  {energy_use.kw:,.1f} kW at work, {energy_use.kwh:,.0f} "
        f"kWh in {period_text}"
    )
    # The carbon intensity of some grids is not known.
    if energy_use.kg_co2e is not None:
        energy_text += f", {energy_use.kg_co2e:,.0f} kg CO2e"
    return [Paragraph(energy_text)]


def _resource_blocks(plan: Plan, *, full: bool) -> list[Block]:
    resources = plan.graph.resources
    if full:
        table_rows = tuple(
            (resource.name, resource.type) for resource in resources
        )
        return [
            Heading(f"{len(resources)} resources to create"),
            PageTable(("", ""), table_rows),
        ]
    # Pulumi types are package:module:Name; only the name is shown.
    type_counts = Counter(
        resource.type.split(":")[-1] for resource in resources
    )
    counts_text = ", ".join(
        f"{resource_count} {resource_type}"
        if resource_count > 1
        else resource_type
        for resource_type, resource_count in sorted(type_counts.items())
    )
    wrapped_lines = textwrap.wrap(counts_text, LINE_WIDTH - 4)
    return [
        Heading(f"{len(resources)} resources to create"),
        *(Paragraph(f"  {wrapped_line}") for wrapped_line in wrapped_lines),
    ]


def _closing_blocks(plan: Plan, saved_path: str) -> list[Block]:
    shutdown_entry = plan.shutdown
    shutdown_phrases = (
        [f"idle {figures.compact_seconds(shutdown_entry.idle)}"]
        if shutdown_entry.idle
        else []
    )
    shutdown_phrases += (
        [f"ttl {figures.compact_seconds(shutdown_entry.ttl)}"]
        if shutdown_entry.ttl
        else []
    )
    shutdown_phrases += (
        [shutdown_entry.schedule] if shutdown_entry.schedule else []
    )
    shutdown_line = "shutdown  " + (
        ", ".join(shutdown_phrases) or "never: it runs until it is destroyed"
    )
    page_blocks: list[Block] = [
        Paragraph(""),
        # A fleet without shutdown costs money until someone destroys it.
        Paragraph(shutdown_line, "" if shutdown_phrases else "warn"),
    ]
    if shutdown_entry.backstop:
        page_blocks.append(
            Paragraph(f"  enforced from outside: {shutdown_entry.backstop}")
        )
    page_blocks += [
        Paragraph(f"! {plan_warning.message}", "warn")
        for plan_warning in plan.warnings
    ]
    excluded_text = ", ".join(plan.cost.excludes)
    page_blocks.append(Paragraph(f"not in the total: {excluded_text}", "dim"))
    if saved_path:
        page_blocks.append(
            Paragraph(
                f"saved to {saved_path}     next: tonnage apply {saved_path}"
            )
        )
    return page_blocks


def _infeasible_blocks(plan: Plan) -> list[Block]:
    funnel_text = "  >  ".join(
        f"{funnel_step.rule} {funnel_step.offers:,}"
        for funnel_step in plan.solution.funnel
    )
    page_blocks: list[Block] = [
        Paragraph(
            "INFEASIBLE: no offer meets every constraint, and that is proved",
            "bad",
        ),
        Paragraph(f"  offers left after each rule: {funnel_text}"),
    ]
    table_rows = [
        (
            relaxation.constraint,
            relaxation.relax_to,
            figures.dollars(relaxation.usd_month),
            fleet_text(relaxation.fleet),
        )
        for relaxation in plan.solution.binding
    ]
    # Each row relaxes one constraint and leaves the others as they are.
    if table_rows:
        cost_title = ">$/mo" if plan.cost.period == "month" else ">USD"
        column_titles = (
            "nearest, changing one thing",
            "to",
            cost_title,
            "with",
        )
        page_blocks.append(PageTable(column_titles, tuple(table_rows)))
    else:
        page_blocks.append(
            Paragraph("  no single change makes it feasible: relax two", "warn")
        )
    return page_blocks
