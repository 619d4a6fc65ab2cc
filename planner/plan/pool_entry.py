"""Entries of the machines that are bought, in the document of a plan."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from planner.cost.bill_line import CENT
from planner.facts.commitment import commitment_forms
from planner.market.term import TERM_OF
from planner.plan import pool as types
from planner.plan.number import plain_money, rounded
from planner.plan.prediction_entry import prediction, verification
from planner.plan.service_entry import layout_entry, service_entry
from planner.solve.capacity import most_nodes
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from planner.cost.weekly_load import Week
    from planner.market.bought import PoolPurchase
    from planner.market.term import Term
    from planner.solve.solution import FleetSummary, SizedPool


def pool_entry(pool: SizedPool, week: Week) -> types.Pool:
    """Return the entry of a pool in the document of a plan."""
    instance = pool.instance
    layout = pool.layout
    purchase_names = {part.purchase for part in pool.purchases}
    return types.Pool(
        name=pool.name,
        provider=instance.provider,
        region=pool.region,
        zones=pool.zones,
        instance_type=instance.instance_type,
        accelerator=instance.accelerator,
        accelerators_per_node=instance.accelerators,
        nodes=pool.nodes,
        min_nodes=pool.min_nodes,
        spare_groups=pool.spares.count,
        spare_hours=week.hours_from(pool.spares.from_load),
        purchase=purchase_names.pop() if len(purchase_names) == 1 else "mixed",
        purchases=tuple(
            _purchase(part, instance.provider) for part in pool.purchases
        ),
        role=pool.role,
        replicas=pool.replicas,
        startup_s=rounded(pool.startup_s),
        run_window_s=pool.run_window_s,
        layout=None if layout is None else layout_entry(layout, pool.max_batch),
        usd_per_hour=plain_money(pool.usd_hour),
        elastic=_elastic(pool),
        stand_ins=tuple(
            types.StandIn(
                instance_type=other.instance_type,
                usd_per_hour=plain_money(other.usd_hour),
            )
            for other in pool.stand_ins
        ),
        weight=pool.weight,
        part=pool.part,
        requests=_requests(pool),
        services=tuple(map(service_entry, pool.services)) or UNSET,
        hourly_nodes=_chosen_nodes(pool),
    )


def _chosen_nodes(pool: SizedPool) -> tuple[int, ...] | UnsetType:
    if pool.week is None:
        return UNSET
    return pool.week.hourly_nodes(
        pool.peak_groups, pool.nodes_per_group, pool.spares
    )


def _requests(pool: SizedPool) -> types.RequestLengths | None:
    taken, judged = pool.requests, pool.judged
    if taken is None or judged is None:
        return None
    return types.RequestLengths(
        length=taken.length,
        body_bytes=taken.body_bytes,
        sure_tokens=taken.sure_tokens,
        most_tokens=taken.most_tokens,
        share=rounded(taken.share),
        context_tokens=pool.context_tokens,
        predicted={
            metric: prediction(estimate)
            for metric, estimate in judged.predictions.items()
        },
        verified=verification(judged.check),
    )


def _purchase(part: PoolPurchase, cloud: str) -> types.Purchase:
    term = TERM_OF.get(part.purchase)
    start_share = (
        _start_share(term, cloud, part.form) if term is not None else None
    )
    return types.Purchase(
        purchase=part.purchase,
        nodes=part.nodes,
        usd_per_hour=plain_money(part.usd_hour),
        term=None if term is None else term.word,
        form=part.form or None,
        paid_at_start_usd=None
        if term is None or start_share is None
        else plain_money(
            (
                part.nodes
                * part.usd_hour
                * HOURS_PER_MONTH
                * term.months
                * start_share
            ).quantize(CENT)
        ),
        reservation=part.reservation or None,
    )


def _start_share(term: Term, cloud: str, form: str) -> Decimal | None:
    """Return which share of a term is paid at the start; None where nothing is, or nobody says."""
    if term.payment == "at_once":
        return Decimal(1)
    facts = commitment_forms().get((cloud, form))
    if term.payment == "monthly" or facts is None:
        return None
    return facts.part_at_start


def _elastic(pool: SizedPool) -> types.Elastic | None:
    reach = pool.elastic
    if reach is None:
        return None
    return types.Elastic(
        least_share=rounded(reach.least_share),
        most_share=rounded(reach.most_share),
        most_nodes=most_nodes(pool.nodes, reach.most_share),
        target_requests=rounded(reach.target_requests),
        linger_s=reach.linger_s,
    )


def fleet_reference(fleet: FleetSummary) -> types.FleetRef:
    """Return a fleet that is named and not bought, as the document has it."""
    return types.FleetRef(
        provider=fleet.provider,
        region=fleet.region,
        instance_type=fleet.instance_type,
        nodes=fleet.nodes,
    )
