"""Page of a plan: request, fleet, predictions, alternatives, cost and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from planner import figures
from planner.plan.commitment import commitments_of
from planner.plan.security import security_findings
from planner.render import period, text, training
from planner.render.bill import bound_mark, cost_blocks, total_text
from planner.render.change import change_blocks, created_text
from planner.render.fallback import fallback_blocks
from planner.render.infeasible import infeasible_blocks
from planner.render.limit import confidence_text
from planner.render.live import live_blocks
from planner.render.metric import FRACTION_KEYS, metric_text, metric_title
from planner.render.page import (
    LINE_WIDTH,
    PAGE_LINES,
    Block,
    Page,
    PageTable,
    Paragraph,
    phrases,
)
from planner.render.proof import proof_phrase, proof_sentence
from planner.render.rivals import (
    EVERY_RIVAL,
    SHORTER_AND_SHORTER,
    ShownRivals,
    rival_blocks,
)
from planner.render.security import security_line
from planner.render.shared_service import shared_service_blocks
from planner.render.token_cost import token_phrases
from planner.render.week import week_blocks
from planner.spec.block import OFFERED_PREFIXES
from planner.units import HOURS_PER_WEEK
from planner.workload.registry import workload_of_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.pool import Elastic
    from planner.plan.types import (
        MetricLimit,
        Plan,
        Pool,
        Prediction,
        Verification,
    )
    from planner.solve.solution import BandedPrediction

DEFAULT_PERCENTILES: Final = frozenset({"ttft_p95_ms", "tpot_p95_ms"})
RATE_KEYS: Final = ("requests_per_s", "output_tokens_per_s")
# The unit of a rate, where it stands in a sentence.
RATE_UNITS: Final = {
    "requests_per_s": "requests/s",
    "output_tokens_per_s": "output tokens/s",
}
PREDICTION_TITLES: Final = (
    ">predicted",
    ">90 % band",
    ">limit",
    "headroom",
    "basis",
)
INDENT: Final = "  "
# Warnings that compare the plan with others, which are made after its first page.
COMPARISONS: Final = ("apart", "default-cache", "no-draft")
# What goes on after it was idle; a job has ended then.
RETURNING_KINDS: Final = ("inference", "workspace")
ROUTING_PHRASES: Final = {
    "random": "at random",
    "round-robin": "in turn",
    "least-loaded": "to the least loaded",
}

MetricT = TypeVar("MetricT")


def plan_page(
    plan: Plan, *, today: str, full: bool = False, saved_path: str = ""
) -> Page:
    """Return the page of a plan: the fleet, and what its wishes cost.

    today       date as 2026-07-30, for the age of prices
    full        all lines of the bill, all fleets, all layouts, every resource
    saved_path  file of the plan, for the suggested apply; empty when it was not saved
    """
    first_page = fleet_page(plan, today=today, full=full)
    last_page = reasons_page(plan, first_page, full=full, saved_path=saved_path)
    return (*first_page, *last_page)


def fleet_page(plan: Plan, *, today: str, full: bool = False) -> Page:
    """Return the decision, what it rests on, what it costs, what happens."""
    if plan.solution.status == "infeasible":
        return infeasible_page(plan)
    page_blocks = [
        *request_blocks(plan),
        *decision_blocks(plan),
        *prediction_blocks(plan),
        *week_blocks(plan),
    ]
    if plan.solution.run:
        page_blocks += training.run_blocks(plan.solution.run, full=full)
    page_blocks += cost_blocks(plan, today=today, full=full)
    page_blocks += _resource_blocks(plan, today=today, full=full)
    page_blocks += warning_blocks(plan)
    page_blocks += live_blocks(plan, full=full)
    return tuple(page_blocks)


def reasons_page(
    plan: Plan, first_page: Page, *, full: bool = False, saved_path: str = ""
) -> Page:
    """Return the fleets that were not chosen and what they take, and the next step.

    Below `first_page` there are as many of them as fit a screen, unless the page is full.
    """
    if full:
        return _reasons(plan, EVERY_RIVAL, saved_path, full=True)
    taken_lines = text.line_count(first_page)
    for shown in SHORTER_AND_SHORTER:
        page = _reasons(plan, shown, saved_path, full=False)
        if taken_lines + text.line_count(page) <= PAGE_LINES:
            break
    return page


def _reasons(
    plan: Plan, shown: ShownRivals, saved_path: str, *, full: bool
) -> Page:
    page_blocks: list[Block] = []
    if plan.solution.status != "infeasible":
        page_blocks += [Paragraph(""), *rival_blocks(plan, shown)]
        page_blocks += comparison_blocks(plan)
        page_blocks += fallback_blocks(plan, full=full)
    if saved_path:
        page_blocks.append(
            Paragraph(
                f"saved to {saved_path}     next: tonnage apply {saved_path}"
            )
        )
    return tuple(page_blocks)


def infeasible_page(plan: Plan) -> Page:
    """Return the page of a plan that nothing meets: the nearest changes that would do."""
    return (
        *request_blocks(plan),
        *infeasible_blocks(plan),
        *live_blocks(plan, full=False),
    )


def request_blocks(plan: Plan) -> list[Block]:
    """Return what the spec asks for, in one line."""
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
    return [phrases(spec_phrases, "strong")]


def _limit_time(seconds_text: str) -> str:
    return figures.milliseconds(float(seconds_text) * 1000)


def decision_blocks(plan: Plan) -> list[Block]:
    """Return the cost, the machines, and with what confidence they meet the limits."""
    money_line = phrases(_money_phrases(plan), "good", INDENT)
    return [Paragraph(""), money_line, *_machine_lines(plan)]


def _money_phrases(plan: Plan) -> list[str]:
    """Return the total, the band of a run's cost, and what tokens and requests cost."""
    period_text = period.RATES[plan.cost.period] or (
        f" for {period.NAMES[plan.cost.period]}"
    )
    money_phrases = [f"{total_text(plan)}{period_text}"]
    mark = bound_mark(plan)
    if plan.cost.tokens is not None:
        money_phrases += token_phrases(plan.cost.tokens, mark)
    run_entry = plan.solution.run
    if run_entry:
        money_phrases.append(
            f"{mark}{figures.dollars(run_entry.usd_p50)} in half of the runs, "
            f"{mark}{figures.dollars(run_entry.usd_p90)} in 90 %"
        )
    return money_phrases


def _machine_lines(plan: Plan) -> list[Paragraph]:
    """Return the machines of each pool, the work on them, and how sure it is."""
    paragraphs = []
    work_lines = []
    for pool in plan.solution.pools:
        machines_text = (
            f"{pool.nodes} x {pool.instance_type} "
            f"({pool.accelerators_per_node} x {pool.accelerator})"
        )
        place = f"{pool.provider} {pool.region}"
        purchase_text = pool.purchase_text.replace("_", " ")
        paragraphs.append(
            phrases((place, machines_text, purchase_text), indent=INDENT)
        )
        work_lines.append(_pool_layout_line(pool))
        if pool.elastic is not None:
            work_lines.append(_elastic_line(pool, pool.elastic))
    run_entry = plan.solution.run
    if run_entry:
        work_lines = [
            training.layout_line(run_entry),
            training.ending_line(run_entry),
        ]
    work_lines += _confidence_lines(plan)
    return [
        *paragraphs,
        *(
            Paragraph(f"{INDENT}{line}", width=LINE_WIDTH)
            for line in work_lines
        ),
    ]


def _confidence_lines(plan: Plan) -> list[str]:
    safety = plan.solution.safety
    if safety is None:
        return []
    return [confidence_text(safety.confidence)]


def prediction_blocks(plan: Plan) -> list[Block]:
    """Return the predictions with limit and headroom, and the result of the simulation."""
    predictions = _limited_metrics(plan, plan.solution.predicted)
    # A load that arrives from outside is served as it arrives, and no faster.
    served_rates = [
        f"{metric_text(rate_key, predictions[rate_key].value)} "
        f"{RATE_UNITS[rate_key]}"
        for rate_key in RATE_KEYS
        if rate_key in predictions
        and predictions[rate_key].high <= predictions[rate_key].value
    ]
    if served_rates:
        for rate_key in RATE_KEYS:
            predictions.pop(rate_key, None)
    page_blocks: list[Block] = []
    if predictions:
        page_blocks.append(
            PageTable(
                (_prediction_title(plan), *PREDICTION_TITLES),
                tuple(_limited_rows(plan, predictions)),
                width=LINE_WIDTH,
            )
        )
    if served_rates:
        page_blocks.append(
            Paragraph(f"  serves all that arrives: {', '.join(served_rates)}")
        )
    return [
        *page_blocks,
        *_verification_blocks(plan),
        *shared_service_blocks(plan),
    ]


def _prediction_title(plan: Plan) -> str:
    """Return what the predictions are of: a run, or the busiest time."""
    return (
        "of a run" if "duration_days" in plan.solution.predicted else "at peak"
    )


def _limited_rows(
    plan: Plan, predictions: Mapping[str, Prediction]
) -> list[tuple[str, ...]]:
    """Return a row for each prediction, those with a limit first."""
    limits = plan.solution.limits
    tightest_key = min(
        limits, key=lambda key: limits[key].headroom, default=None
    )
    return [
        (
            *prediction_row(key, predictions[key])[:3],
            *_limit_cells(key, predictions[key], limits.get(key)),
            f"{predictions[key].basis}, tightest"
            if key == tightest_key and len(limits) > 1
            else predictions[key].basis,
        )
        for key in sorted(predictions, key=lambda key: (key not in limits, key))
    ]


def _limit_cells(
    metric_key: str, prediction: Prediction, limit: MetricLimit | None
) -> tuple[str, str]:
    """Return the limit of a prediction, and how much of it is used."""
    if limit is not None:
        bar_text = figures.bar(1 - limit.headroom)
        headroom_text = figures.percentage(limit.headroom)
        return (
            metric_text(metric_key, limit.limit),
            f"{bar_text} {headroom_text}",
        )
    if metric_key in FRACTION_KEYS:
        return "", figures.bar(prediction.value)
    return "", ""


def _limited_metrics(
    plan: Plan, metrics: Mapping[str, MetricT]
) -> dict[str, MetricT]:
    """Return the metrics to show: limited percentiles and all that are no percentile.

    Without limits the percentiles are TTFT p95 and TPOT p95. Memory is shown as a share.
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
        if metric_key in shown_percentiles
        or not (
            metric_key.endswith("_ms")
            or metric_key == "memory_gib_per_accelerator"
        )
    }


def _verification_blocks(plan: Plan) -> list[Block]:
    """Return the percentiles of the request-level simulation."""
    verification = plan.solution.verified
    if verification is None:
        return []
    metric_texts = []
    percentiles = _limited_metrics(plan, verification.found)
    for metric_key, percentile in sorted(percentiles.items()):
        value_text = metric_text(metric_key, percentile.value)
        low_text = metric_text(metric_key, percentile.low)
        high_text = metric_text(metric_key, percentile.high)
        metric_texts.append(
            f"{metric_title(metric_key)} {value_text} "
            f"({low_text} to {high_text})"
        )
    trace_phrase = (
        "of the trace, " if verification.requests_of == "trace" else ""
    )
    summary_text = (
        f"verified with {verification.requests:,} simulated requests "
        f"{trace_phrase}routed {ROUTING_PHRASES[verification.routing]}"
        f"{_slowed_phrase(verification)}: {', '.join(metric_texts)}"
    )
    # The simulation needed more replicas than the formulas.
    if verification.added_groups:
        summary_text += (
            f"; that took {verification.added_groups} more than the formulas"
        )
    return [Paragraph(f"  {summary_text}", width=LINE_WIDTH)]


def _slowed_phrase(verification: Verification) -> str:
    """Say by how much the simulation was slower than predicted."""
    if verification.decode_factor == verification.prefill_factor == 1:
        return ""
    return (
        f", answers {float(verification.decode_factor):.2f} and prompts "
        f"{float(verification.prefill_factor):.2f} times as slow as predicted"
    )


def _pool_layout_line(pool: Pool) -> str:
    """Return replicas and layout of a pool, and its nodes over the week."""
    layout = pool.layout
    # A workspace serves no model, so it has no layout.
    if layout is None:
        return f"one machine for each of {pool.nodes} users"
    layout_text = f"TP{layout.tp}" + (
        f" PP{layout.pp}" if layout.pp > 1 else ""
    )
    layout_text += f" EP{layout.ep}" if layout.ep > 1 else ""
    replica_noun = "replica" if pool.replicas == 1 else "replicas"
    pool_text = (
        f"{pool.replicas} {replica_noun} of {layout_text} in "
        f"{layout.precision}, up to {layout.max_batch} requests each"
    )
    if pool.part:
        pool_text = f"{pool.part}: {pool_text}"
    # The number of nodes follows the weekly load.
    if pool.elastic is None and pool.min_nodes < pool.nodes:
        pool_text += f"; {pool.min_nodes} to {pool.nodes} nodes over the week"
    # One pool runs whenever the service does.
    if pool.weight and pool.chosen_hours:
        pool_text += f", for {pool.chosen_hours} of {HOURS_PER_WEEK} h"
    if pool.role == "serve" and pool.spare_groups:
        pool_text += f", {pool.spare_groups} spare"
        if pool.spare_hours < HOURS_PER_WEEK:
            pool_text += f" for {pool.spare_hours} h"
    if pool.requests is not None:
        pool_text = f"{pool.name}: {pool_text}"
    return pool_text


def _elastic_line(pool: Pool, elastic: Elastic) -> str:
    """Say how far the machines of a pool follow the load, and how soon."""
    startup = figures.about(float(pool.startup_s))
    linger = figures.about(elastic.linger_s)
    returns = (
        "; with none left, the schedule or tonnage start bring one back"
        if not elastic.least_share
        else ""
    )
    if elastic.most_nodes == 1:
        return (
            f"elastic: one machine, which leaves without work for {linger}{returns}"
            if returns
            else "elastic: one machine is the least and the most"
        )
    extra_nodes = elastic.most_nodes - pool.nodes
    price = (
        f", {figures.dollars(extra_nodes * pool.usd_per_hour, cents=True)}/h more"
        if extra_nodes
        else ""
    )
    return (
        f"elastic: up to {elastic.most_nodes} machines{price}; another one above "
        f"{float(elastic.target_requests):,.0f} requests on each, which answers after {startup}; "
        f"one leaves when fewer were enough for {linger}{returns}"
    )


def prediction_rows(
    predictions: Mapping[str, Prediction],
) -> list[tuple[str, ...]]:
    """Return a row for each prediction: name, value, band, basis."""
    return [
        prediction_row(metric_key, prediction)
        for metric_key, prediction in sorted(predictions.items())
    ]


def prediction_row(
    metric_key: str, prediction: Prediction
) -> tuple[str, str, str, str]:
    """Return the row of a prediction: name, value, band, basis."""
    return (
        metric_title(metric_key),
        metric_text(metric_key, prediction.value),
        band_text(metric_key, prediction),
        prediction.basis,
    )


def band_text(
    metric_key: str, prediction: Prediction | BandedPrediction
) -> str:
    """Return the 90 % band of a predicted number."""
    low_text = metric_text(metric_key, prediction.low)
    high_text = metric_text(metric_key, prediction.high)
    return f"{low_text} to {high_text}"


def _resource_blocks(plan: Plan, *, today: str, full: bool) -> list[Block]:
    """Return the number of resources and what ends them; all of them when the page is full."""
    resources = plan.graph.resources
    summary = shutdown_phrases(plan)
    if resources:
        summary.append(security_line(security_findings(plan), today))
    page_blocks: list[Block] = [Paragraph("")]
    if plan.changes is None:
        summary = [created_text(plan), *summary]
    else:
        page_blocks += change_blocks(plan, plan.changes, full=full)
    page_blocks.append(phrases(summary))
    page_blocks += purchase_blocks(plan, full=full)
    page_blocks.append(
        phrases(
            (
                (
                    f"catalog of {plan.catalog.as_of} ({plan.catalog.sha256[:8]}), "
                    f"{plan.solution.considered:,} offers considered"
                ),
                proof_phrase(plan),
            ),
            "dim",
        )
    )
    if full:
        page_blocks.append(Paragraph(proof_sentence(plan), "dim", LINE_WIDTH))
        table_rows = tuple(
            (resource.name, resource.type) for resource in resources
        )
        page_blocks.append(PageTable(("", ""), table_rows))
    return page_blocks


def purchase_blocks(plan: Plan, *, full: bool) -> list[Block]:
    """Return what is bought with the first apply or has to be bought before; often nothing."""
    page_blocks = _block_purchase(plan)
    for commitment in commitments_of(plan):
        page_blocks += [
            Paragraph(
                f"! to buy before apply: {commitment.purchase_text}",
                "warn",
                LINE_WIDTH,
            ),
            # A command is copied, so it is one line, however long.
            *([Paragraph(f"  {commitment.command}")] if full else []),
        ]
    return page_blocks


def _block_purchase(plan: Plan) -> list[Block]:
    """Say what is bought, and from when to when it is; nothing without a capacity block."""
    block = plan.spec.normalized["buy"].get("block")
    if block is None:
        return []
    flag = (
        "; apply buys it with --buy-capacity-blocks"
        if block["id"].startswith(OFFERED_PREFIXES)
        else ""
    )
    return [
        Paragraph(
            f"! capacity block {block['id']}, {block['starts']} to {block['ends']}{flag}",
            "warn",
            LINE_WIDTH,
        )
    ]


def shutdown_phrases(plan: Plan) -> list[str]:
    """Return what ends the machines, and who is told."""
    shutdown = plan.shutdown
    idle_text = figures.compact_seconds(shutdown.idle) if shutdown.idle else ""
    ttl_text = figures.compact_seconds(shutdown.ttl) if shutdown.ttl else ""
    ending_phrases = [
        f"idle: {idle_text or 'never'}{_return_phrase(plan)}",
        f"ttl: {ttl_text or 'none'}",
    ]
    if shutdown.schedule:
        ending_phrases.append(shutdown.schedule)
    receivers = plan.spec.normalized.get("notify", ())
    ending_phrases.append(f"notify: {', '.join(receivers) or 'nobody'}")
    if shutdown.backstop:
        ending_phrases.append(f"enforced from outside: {shutdown.backstop}")
    return ending_phrases


def _return_phrase(plan: Plan) -> str:
    """Say what brings back the machines of a service or a workspace that were idle."""
    if not plan.shutdown.idle or plan.workload.kind not in RETURNING_KINDS:
        return ""
    # Also where the load of the week alone changes how many there are.
    changes = plan.shutdown.schedule or any(
        pool.min_nodes < pool.nodes for pool in plan.solution.pools
    )
    hours = "its hours or " if changes else ""
    return f", back by {hours}tonnage start {plan.stack.name}"


def comparison_blocks(plan: Plan) -> list[Block]:
    """Return what the plan costs without what the search has chosen; it took other plans."""
    return [
        Paragraph(f"  {plan_warning.message}", "dim", LINE_WIDTH)
        for plan_warning in plan.warnings
        if plan_warning.code in COMPARISONS
    ]


def warning_blocks(plan: Plan) -> list[Block]:
    """Return what to know before paying, as far as it does not wait for other plans."""
    shutdown = plan.shutdown
    warnings = [
        plan_warning.message
        for plan_warning in plan.warnings
        if plan_warning.code not in COMPARISONS
    ]
    # A fleet without shutdown costs money until someone destroys it.
    if not (shutdown.idle or shutdown.ttl or shutdown.schedule):
        warnings.append("nothing ends it: it runs until it is destroyed")
    return [
        Paragraph(f"! {warning}", "warn", LINE_WIDTH) for warning in warnings
    ]
