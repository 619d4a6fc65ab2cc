"""Which machines of a stack run on Azure, and what Cost Management says that it has cost."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from planner.market.live import NO_ZONE
from planner.plan.live_status import CostSoFar, RunningMachines
from providers.azure.client import open_session, subscription_url
from providers.azure.market import is_in
from providers.live.rest import list_pages, send

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from requests import Session

    from planner.plan.actual.charge import StackTags

MANAGEMENT_URL: Final = "https://management.azure.com"
MACHINES_VERSION: Final = "2024-07-01"
COST_VERSION: Final = "2025-03-01"
SPOT: Final = "Spot"
# Machines of such a set are listed as others are.
FLEXIBLE: Final = "Flexible"
POWER: Final = "PowerState/"
UP: Final = ("PowerState/running", "PowerState/starting")
COST: Final = "Cost"
CURRENCY: Final = "Currency"


def running_machines(region: str, tags: StackTags) -> list[RunningMachines]:
    """Return the machines of scale sets with the tag of a stack that run, or come up."""
    session = open_session(MANAGEMENT_URL)
    counts: Counter[tuple[str, str, str, bool]] = Counter()
    for group in _scale_sets(session, region, tags):
        profile = group["properties"]["virtualMachineProfile"]
        for machine in _machines(session, group):
            if _is_up(machine):
                [zone] = machine.get("zones") or (NO_ZONE,)
                counts[
                    group["tags"].get(tags.pool_tag, ""),
                    _size_of(machine),
                    zone,
                    profile.get("priority") == SPOT,
                ] += 1
    return sorted(
        RunningMachines(
            pool=pool,
            machine_type=machine_type,
            zone=zone,
            is_spot=is_spot,
            nodes=nodes,
        )
        for (pool, machine_type, zone, is_spot), nodes in counts.items()
    )


def _scale_sets(
    session: Session, region: str, tags: StackTags
) -> Iterator[dict[str, Any]]:
    """Yield the scale sets of a stack in a region."""
    url = subscription_url(
        MANAGEMENT_URL,
        "/providers/Microsoft.Compute/virtualMachineScaleSets",
        MACHINES_VERSION,
    )
    for group in list_pages(session, url):
        named = (group.get("tags") or {}).get(tags.stack_tag)
        if named == tags.stack and is_in(region, group["location"]):
            yield group


def _machines(session: Session, group: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the machines of a scale set, each with what it does now."""
    end = f"$expand=instanceView&api-version={MACHINES_VERSION}"
    if group["properties"]["orchestrationMode"] != FLEXIBLE:
        return list_pages(
            session, f"{MANAGEMENT_URL}{group['id']}/virtualMachines?{end}"
        )
    folder = group["id"].rpartition("/")[0].rpartition("/")[0]
    condition = quote(f"'virtualMachineScaleSet/id' eq '{group['id']}'")
    return list_pages(
        session,
        f"{MANAGEMENT_URL}{folder}/virtualMachines?$filter={condition}&{end}",
    )


def _is_up(machine: dict[str, Any]) -> bool:
    """Whether a machine runs. One that is being made has no state of its power yet."""
    view = machine["properties"]["instanceView"]
    codes = [status["code"] for status in view["statuses"]]
    return any(code in UP for code in codes)


def _size_of(machine: dict[str, Any]) -> str:
    """Return the type of a machine: those of a uniform set have a SKU."""
    if "sku" in machine:
        return str(machine["sku"]["name"])
    return str(machine["properties"]["hardwareProfile"]["vmSize"])


def month_cost(_region: str, tags: StackTags, today: date) -> CostSoFar:
    """Return the cost of the tag since the first day of the month, some hours late."""
    answer = send(
        open_session(MANAGEMENT_URL),
        "POST",
        subscription_url(
            MANAGEMENT_URL,
            "/providers/Microsoft.CostManagement/query",
            COST_VERSION,
        ),
        {
            "type": "AmortizedCost",
            "timeframe": "MonthToDate",
            "dataset": {
                "granularity": "None",
                "aggregation": {"totalCost": {"name": COST, "function": "Sum"}},
                "filter": {
                    "tags": {
                        "name": tags.stack_tag,
                        "operator": "In",
                        "values": [tags.stack],
                    }
                },
            },
        },
        parse_float=Decimal,
    )
    table = answer["properties"]
    names = [column["name"] for column in table["columns"]]
    if not table["rows"]:
        raise OSError(
            f"Cost Management has counted nothing for {tags.stack_tag}={tags.stack}: ask again "
            "some hours later"
        )
    # Several currencies have a row each.
    [row] = table["rows"]
    values = dict(zip(names, row, strict=True))
    return CostSoFar(
        amount=Decimal(values[COST]),
        currency=values[CURRENCY],
        first_day=f"{today.replace(day=1):%Y-%m-%d}",
    )
