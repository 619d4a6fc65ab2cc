"""What a fit costs in a month on an offer: accelerators first, then every other line."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.line import CENT, FINE, Line, Usage, services, total, usage
from planner.cost.week import HOURS_PER_MONTH
from planner.perf import memory

if TYPE_CHECKING:
    from planner.cost.price import PriceBook
    from planner.solve.need import Need
    from planner.solve.offer import Offer
    from planner.solve.size import Fit

GB: Final = Decimal(10**9)
COMMITTED: Final = ("reserved_1y", "reserved_3y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The lines of a month, their sum, and the names of lines whose price is not known."""

    lines: tuple[Line, ...]
    usd_month: Decimal
    usd_hour: Decimal
    unknown: tuple[str, ...]


def hours(need: Need, fit: Fit, purchase: str) -> Decimal:
    """Node-hours of a month that are paid: a commitment is paid for whether it runs or not."""
    if purchase in COMMITTED:
        return HOURS_PER_MONTH * fit.nodes
    if need.mode == "batch":
        return Decimal(fit.hours) * fit.nodes * need.runs_per_month
    return need.week.node_hours(fit.needed, fit.span, fit.groups - fit.needed)


def machines(offer: Offer, nodes: int, node_hours: Decimal) -> Line:
    """The line of the machines themselves."""
    quantity = node_hours.quantize(FINE, ROUND_HALF_UP)
    kind = offer.instance
    return Line(
        name=f"{nodes} x {kind.instance_type} {offer.purchase}",
        kind="accelerators",
        unit="node-hour",
        quantity=quantity,
        unit_price=offer.usd_hour,
        usd_month=(quantity * offer.usd_hour).quantize(CENT, ROUND_HALF_UP),
        source=offer.source,
        as_of=offer.as_of,
    )


def bill(need: Need, fit: Fit, offer: Offer, book: PriceBook) -> Bill:
    """Return the bill of a fit bought through an offer."""
    node_hours = hours(need, fit, offer.purchase)
    stored = Decimal(int(memory.stored(need.llm, fit.layout))) / GB
    month = need.requests_per_month
    if need.mode == "closed":
        month = Decimal(
            fit.service.rate * fit.replicas * fit.needed * need.week.mean
        )
        month *= 730 * 3600
    sent = (
        month
        * Decimal(need.load.answer.mean)
        * usage("stream_bytes_per_token")
        / GB
    )
    given = (
        month
        * Decimal(need.load.prompt.mean)
        * usage("prompt_bytes_per_token")
        / GB
    )
    served = need.mode != "batch"
    use = Usage(
        provider=offer.provider,
        nodes=fit.nodes,
        node_hours=node_hours,
        on_hours=need.week.on_hours,
        cache_gb=cache_gb(offer, stored),
        weights_gb=stored,
        sent_gb=sent if served else Decimal(0),
        received_gb=given if served else Decimal(0),
        served=served,
    )
    return summed(
        [machines(offer, fit.nodes, node_hours), *services(use, book)],
        offer,
        fit.nodes,
    )


def summed(lines: list[Line], offer: Offer, nodes: int) -> Bill:
    """Add the lines up; the hourly figure is that of all machines running."""
    known, unknown = total(lines)
    return Bill(
        lines=tuple(lines),
        usd_month=known,
        usd_hour=offer.usd_hour * nodes,
        unknown=tuple(unknown),
    )


def cache_gb(offer: Offer, stored: Decimal) -> Decimal:
    """Size of the disk for the weights: none when local NVMe holds them."""
    wanted = stored * usage("cache_headroom")
    if Decimal(offer.instance.nvme_gb) >= wanted:
        return Decimal(0)
    return Decimal(int(wanted) + 1)
