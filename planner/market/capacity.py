"""How many machines of a type one job gets at once, by the way they are bought.

No cloud publishes what it has. The rows are limits that clouds document, quotas that accounts
start with, and launches that were reported; each says how strong its evidence is.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.facts.cloud import clouds
from planner.market.offer import FLEX_PURCHASE

if TYPE_CHECKING:
    from planner.market.offer import Offer, PurchaseMix

ANY: Final = "*"
POLICY: Final = "policy"
LIMITED_PURCHASES: Final = ("on_demand", "spot")
PEAK_LOAD: Final = 1.0
KINDS: Final = (
    POLICY,
    "provider_limit",
    "default_quota",
    "observed_launch",
    "availability_trace",
)


class CapacityLimit(Struct, frozen=True, kw_only=True):
    """A row: how many machines, of which types, bought how, and who says so.

    `provider`, `machine_types`  cloud, and patterns of machine types; * is any, for gangs alone
    `kind`  one of `KINDS`; a policy is a rule of this program, the others are evidence
    `strength`  strong, medium or weak
    """

    provider: str
    machine_types: tuple[str, ...]
    purchase: str
    machines: int
    kind: str
    strength: str
    source: str
    as_of: str

    def covers(self, offer: Offer) -> bool:
        """Whether the row is of the cloud, the machine type and the purchase of an offer."""
        return (
            self.purchase == offer.purchase
            and self.provider in (ANY, offer.provider)
            and any(
                fnmatchcase(offer.instance.instance_type, pattern)
                for pattern in self.machine_types
            )
        )


def known_limit(offer: Offer) -> CapacityLimit | None:
    """Return the row of the fewest machines of a machine type, None without evidence of it."""
    return min(
        (
            row
            for row in _capacity_table()
            if row.provider != ANY and row.covers(offer)
        ),
        key=lambda row: row.machines,
        default=None,
    )


def fleet_limit(offer: Offer) -> int | None:
    """Return the most nodes of a fleet whose nodes work by themselves; None without a limit.

    Reserved machines are as many as are reserved. Others are as many as the quotas of an account
    leave. Those on spot need not start together, so only evidence of their machine type counts;
    where they are a share of a fleet, the fleet is larger.
    """
    if offer.reservation is not None:
        return offer.reservation.machines
    return _fewest(quota_limit(offer), _evident_limit(offer))


def _evident_limit(offer: Offer) -> int | None:
    """Return the most nodes of which those on spot are known to be had."""
    if offer.mix is not None:
        return _mix_limit(offer, offer.mix)
    limit = known_limit(offer) if offer.purchase == "spot" else None
    return limit.machines if limit is not None else None


def _mix_limit(offer: Offer, mix: PurchaseMix) -> int | None:
    """Return the most nodes of which those above the share that is not on spot are to be had."""
    limit = known_limit(replace(offer, purchase="spot"))
    return _with_base(limit.machines, mix) if limit is not None else None


def _with_base(spot_machines: int, mix: PurchaseMix) -> int | None:
    """Return the most nodes of which so many are on spot; None where no share is known."""
    base_share = max(
        (tier.share for tier in mix.tiers if tier.share), default=None
    )
    if base_share is None:
        return None
    return int(spot_machines / (1 - base_share))


def gang_limit(offer: Offer, *, spot_by_name: bool) -> int | None:
    """Return the most machines that run one job together; None without a limit.

    Of a reservation: its machines. On spot: min(evidence, policy), the policy only where the spec
    does not ask for spot by name; a gang of which they are a share is larger. Of all others: what
    the quotas of an account leave.

    Where nobody has asked the account, a gang on demand is not bounded: a quota can be raised, so
    the plan says what to ask for instead.
    """
    if offer.reservation is not None:
        return offer.reservation.machines
    if "spot" not in offer.purchases:
        return quota_limit(offer)
    as_spot = replace(offer, purchase="spot")
    evident = min(
        (
            row.machines
            for row in _capacity_table()
            if row.covers(as_spot) and not (spot_by_name and row.kind == POLICY)
        ),
        default=None,
    )
    if evident is not None and offer.mix is not None:
        evident = _with_base(evident, offer.mix)
    return _fewest(quota_limit(offer), evident)


def quota_purchase(purchase: str) -> str:
    """Return which quota counts machines bought in some way: those of flex start are spot's."""
    return "spot" if purchase in ("spot", FLEX_PURCHASE) else "on_demand"


def quota_limit(offer: Offer) -> int | None:
    """Return the most nodes that the quotas of an account leave; None where none is known.

    Machines that are reserved for the stack need no more than their reservation. Of a mix with
    spot, as many as let each part be within the quota of its purchase. What is left in hours of
    less load is held against a fleet alone.
    """
    if offer.reservation is not None or offer.block is not None:
        return None
    free: dict[str, int] = {}
    for quota in offer.quotas:
        if quota.load != PEAK_LOAD:
            continue
        free[quota.purchase] = min(
            quota.nodes, free.get(quota.purchase, quota.nodes)
        )
    parts = {quota_purchase(purchase) for purchase in offer.purchases}
    if len(parts) == 1:
        return free.get(parts.pop())
    if len(free) < len(parts):
        # Where one is unknown, so is what both allow together.
        return None
    most_nodes = sum(free.values())
    if offer.mix is None or not offer.mix.is_settled:
        return most_nodes
    return next(
        nodes
        for nodes in range(most_nodes, -1, -1)
        if all(
            count <= free[purchase]
            for purchase, count in _parts_of(offer.mix, nodes).items()
        )
    )


def _parts_of(mix: PurchaseMix, nodes: int) -> dict[str, int]:
    """Return how many of some nodes each quota counts."""
    counts: dict[str, int] = {}
    for tier, (start, end) in zip(mix.tiers, mix.spans(nodes, 1), strict=True):
        part = quota_purchase(tier.purchase)
        counts[part] = counts.get(part, 0) + end - start
    return counts


def _fewest(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


@cache
def _capacity_table() -> tuple[CapacityLimit, ...]:
    columns: table.Columns = {
        "provider": table.one_of(ANY, *clouds()),
        "machine_types": table.word_list,
        "purchase": table.one_of(*LIMITED_PURCHASES),
        "machines": table.integer_between(0, 10_000),
        "kind": table.one_of(*KINDS),
        "strength": table.one_of("strong", "medium", "weak"),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        CapacityLimit(**capacity_row.cells)
        for capacity_row in table.load_rows(
            "planner.market", "capacity.csv", columns
        )
    )
