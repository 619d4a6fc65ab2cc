"""Why this fleet and no cheaper one: what each machine type lacks, and what a wish costs."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from planner.solve.size import Fit, Refusal, serve
from planner.solve.solution import Alternative, Binding

if TYPE_CHECKING:
    from planner.solve.need import Need
    from planner.solve.offer import Offer
    from planner.solve.rule import Market
    from planner.solve.search import Found, Rejected, Result, Search
    from planner.spec.model import Limit


def alternatives(
    need: Need, result: Result, others: list[Found], keep: int, chosen: Found
) -> tuple[Alternative, ...]:
    """Return what else was possible: dearer fits, and cheaper ones with what stops them.

    `others` are cheaper fits that a rule of the spec excludes.
    """
    rest = [f for f in result.found if f.offer.key != chosen.offer.key]
    dearer = [
        Alternative(
            offer=f.offer,
            nodes=f.fit.nodes,
            usd_month=f.bill.usd_month,
            rejected_by="price"
            if f.rank > chosen.rank
            else "simulation: it missed a limit",
        )
        for f in rest[:keep]
    ]
    cheaper = [_smaller(need, chosen)] if chosen.fit.groups > 1 else []
    cheaper += [
        Alternative(
            offer=r.offer,
            nodes=r.nodes,
            usd_month=r.usd_month,
            rejected_by=reason(r.refusal),
        )
        for r in nearest(result.rejected, chosen.bill.usd_month, keep)
    ]
    cheaper += [
        Alternative(
            offer=f.offer,
            nodes=f.fit.nodes,
            usd_month=f.bill.usd_month,
            rejected_by=excluded(f.offer, chosen.offer),
        )
        for f in others[:keep]
    ]
    return tuple(
        sorted([*dearer, *cheaper], key=lambda a: (a.usd_month, a.offer.key))
    )


def nearest(
    rejected: tuple[Rejected, ...], below: Decimal, keep: int
) -> list[Rejected]:
    """The rejected machine types that came nearest to the limits, one for each accelerator."""
    seen: set[str] = set()
    found: list[Rejected] = []
    ranked = sorted(
        (r for r in rejected if r.usd_month < below),
        key=lambda r: (
            r.refusal.value / r.refusal.limit,
            r.usd_month,
            r.offer.key,
        ),
    )
    for item in ranked:
        if item.offer.instance.accelerator not in seen and len(found) < keep:
            seen.add(item.offer.instance.accelerator)
            found.append(item)
    return found


def reason(refusal: Refusal) -> str:
    """Say what a layout lacks, in the words of the spec."""
    if refusal.key == "memory":
        return f"memory: needs {refusal.value:,.0f} GiB of {refusal.limit:,.0f} GiB each"
    if refusal.value == math.inf:
        return f"{refusal.key}: not met by any number of machines"
    return f"{refusal.key}: {span(refusal.value)} > {span(refusal.limit)} even when idle"


def excluded(offer: Offer, chosen: Offer) -> str:
    """Say which wish of the spec keeps a cheaper offer out."""
    if offer.purchase == "spot" and chosen.purchase != "spot":
        return "buy.spot: could be taken back at any time"
    return "buy.commit: the commitment is not allowed"


def above(seconds: float) -> str:
    """Write a time as span() does, rounded up, so that what is written is enough."""
    step = 0.0001 if seconds < 0.01 else 0.001 if seconds < 1 else 0.1
    if seconds >= 3600:
        step = 360.0
    return span(math.ceil(seconds / step - 1e-9) * step)


def span(seconds: float) -> str:
    """Write a time as people do: 40 ms, 1.4 s, 3.2 h."""
    if seconds < 1:
        return (
            f"{seconds * 1000:,.0f} ms"
            if seconds >= 0.01
            else f"{seconds * 1000:.1f} ms"
        )
    return f"{seconds:,.1f} s" if seconds < 3600 else f"{seconds / 3600:,.1f} h"


def bindings(
    need: Need,
    search: Search,
    market: Market,
    chosen: Found,
    barred: list[Found],
) -> tuple[Binding, ...]:
    """For each constraint: its slack, and what it costs, by solving again without it.

    `barred` are the cheaper fits that the way of buying keeps out.
    """
    offers = market.best()
    found = []
    for limit in need.limits:
        other = search.solve(need.without(limit.key), offers).found
        found.append(
            _priced(limit.key, _slack(chosen.fit, limit), chosen, other, limit)
        )
    found.append(_priced("buy", None, chosen, tuple(barred), None))
    for key in ("where.regions", "where.clouds", "where.accelerators"):
        wide = market.best(key)
        if wide != offers:
            other = search.solve(need, wide).found
            found.append(_priced(key, None, chosen, other, None))
    if need.availability is not None and chosen.fit.groups > chosen.fit.needed:
        other = search.solve(replace(need, availability=None), offers).found
        found.append(_priced("sla.availability", 0.0, chosen, other, None))
    binding = [b for b in found if b and b.saves_usd_month]
    return tuple(
        sorted(binding, key=lambda b: (-(b.saves_usd_month or 0), b.constraint))
    )


def relaxations(
    need: Need, search: Search, market: Market, budget: Decimal | None
) -> tuple[Binding, ...]:
    """For an infeasible need: each single change with which a fleet exists, cheapest first.

    With a budget the need itself is feasible: then only changes that keep the budget count.
    """
    offers = market.best()
    found: list[Binding] = []
    if budget is not None:
        found += _nearest("buy.budget", "", search, need, offers)
    for limit in need.limits:
        found += _loosened(need, search, offers, limit, budget)
    for key in ("where.clouds", "where.regions", "where.accelerators", "buy"):
        wide = market.best(key)
        if wide != offers:
            found += _nearest(key, "any", search, need, wide)
    for precision in ("fp8", "int4"):
        if precision not in need.precisions:
            tried = replace(need, precisions=(*need.precisions, precision))
            found += _nearest(
                "model.precision", f"also {precision}", search, tried, offers
            )
    if budget is not None:
        found = [
            b
            for b in found
            if b.constraint == "buy.budget" or _within(b, budget)
        ]
    return tuple(
        sorted(
            found, key=lambda b: (b.usd_month or 0, b.constraint, b.relax_to)
        )
    )


def _within(found: Binding, budget: Decimal) -> bool:
    return found.usd_month is not None and found.usd_month <= budget


def _loosened(
    need: Need,
    search: Search,
    offers: list[Offer],
    limit: Limit,
    budget: Decimal | None,
) -> list[Binding]:
    """What a looser limit would do: the nearest that is feasible, or that keeps the budget."""
    free = search.solve(need.without(limit.key), offers).found
    if not free:
        return []
    if budget is not None:
        value = free[0].fit.service.assured(limit.metric, limit.percentile)
        return _nearest(
            limit.key, above(value), search, need.without(limit.key), offers
        )
    reach = _reach(need, search, offers, limit)
    if reach is None:
        return []
    tried = replace(limit, seconds=reach)
    limits = tuple(tried if x.key == limit.key else x for x in need.limits)
    looser = replace(need, limits=limits)
    return _nearest(limit.key, span(float(reach)), search, looser, offers)


def _nearest(
    key: str, relax_to: str, search: Search, need: Need, offers: list[Offer]
) -> list[Binding]:
    found = search.solve(need, offers).found
    if not found:
        return []
    cost = found[0].bill.usd_month
    return [
        Binding(
            constraint=key,
            slack=None,
            relax_to=relax_to or f"{cost:,.0f} USD/month",
            saves_usd_month=None,
            usd_month=cost,
            fleet=fleet(found[0]),
        )
    ]


def fleet(found: Found) -> str:
    """Name a fleet in one line."""
    offer = found.offer
    return f"{offer.provider} {offer.region} {offer.instance.instance_type} x {found.fit.nodes}"


def _reach(
    need: Need, search: Search, offers: list[Offer], limit: Limit
) -> Decimal | None:
    """The nearest value of a limit that some layout reaches, with the other limits kept.

    The best idle value over all layouts, and 5 % so that a finite fleet exists.
    """
    best = math.inf
    rest = need.without(limit.key)
    for offer in offers:
        for replica, span_ in search.replicas(rest, offer):
            if not replica.max_batch:
                continue
            reached = replica.idle(limit.metric, limit.percentile)
            if reached < best and isinstance(
                search.size(rest, replica, span_), Fit
            ):
                best = reached
    if best == math.inf:
        return None
    digits = 3 - math.floor(math.log10(best * 1.05)) - 2
    scale = 10.0**digits
    return Decimal(str(math.ceil(best * 1.05 * scale) / scale))


def _slack(fit: Fit, limit: Limit) -> float:
    value = fit.service.assured(limit.metric, limit.percentile)
    return 1 - value / float(limit.seconds)


def _priced(
    key: str,
    slack: float | None,
    chosen: Found,
    other: tuple[Found, ...],
    limit: Limit | None,
) -> Binding | None:
    if not other or other[0].bill.usd_month >= chosen.bill.usd_month:
        return None
    better = other[0]
    relax_to = better.offer.purchase if key == "buy" else "any"
    if limit is not None:
        value = better.fit.service.assured(limit.metric, limit.percentile)
        relax_to = above(value)
    return Binding(
        constraint=key,
        slack=slack,
        relax_to=relax_to,
        saves_usd_month=chosen.bill.usd_month - better.bill.usd_month,
        usd_month=better.bill.usd_month,
        fleet=fleet(better),
    )


def _smaller(need: Need, chosen: Found) -> Alternative:
    """The chosen fleet with one group fewer, and the limit that it breaks."""
    fit = chosen.fit
    groups = fit.groups - 1
    cost = chosen.bill.usd_month * groups / fit.groups
    if need.mode == "batch":
        why = "deadline: the run would end too late"
    elif fit.groups > fit.needed:
        why = "sla.availability: the loss of one node would break the SLA"
    else:
        service = serve(need, fit.replica, fit.replicas * groups)
        why = "traffic: it cannot keep up at peak"
        if service is not None:
            late = [
                f"{x.key}: {span(service.assured(x.metric, x.percentile))} > "
                f"{span(float(x.seconds))} at peak"
                for x in need.limits
                if not service.meets(x.metric, x.percentile, float(x.seconds))
            ]
            why = late[0] if late else why
    return Alternative(
        offer=chosen.offer,
        nodes=groups * fit.span,
        usd_month=cost.quantize(Decimal("0.01")),
        rejected_by=why,
    )
