"""Which machines of a stack run on Google Cloud. What it costs is in exports alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from msgspec import Struct

from planner.plan.live_status import CostSoFar, RunningMachines
from providers.gcp.client import open_account, understood, zonal_things

if TYPE_CHECKING:
    from datetime import date

    from planner.plan.actual.charge import StackTags

COMPUTE_URL: Final = "https://compute.googleapis.com/compute/v1"
UP: Final = ("PROVISIONING", "STAGING", "RUNNING", "REPAIRING")
SPOT: Final = "SPOT"


class _Provisioning(Struct, frozen=True, rename="camel"):
    provisioning_model: str = ""


class _StackInstance(Struct, frozen=True, rename="camel"):
    machine_type: str
    status: str
    labels: dict[str, str]
    scheduling: _Provisioning = _Provisioning()


def running_machines(region: str, tags: StackTags) -> list[RunningMachines]:
    """Return the instances with the label of a stack that run, or come up."""
    account = open_account()
    url = (
        f"{COMPUTE_URL}/projects/{account.project}/aggregated/instances?"
        + urlencode(
            {
                "filter": f'labels.{tags.stack_tag} = "{tags.stack}"',
                "maxResults": 500,
                "returnPartialSuccess": "false",
            }
        )
    )
    counts: Counter[tuple[str, str, str, bool]] = Counter()
    for zone, listed in zonal_things(account.session, url, "instances", region):
        machine = understood(listed, _StackInstance)
        is_of_stack = machine.labels.get(tags.stack_tag) == tags.stack
        if is_of_stack and machine.status in UP:
            counts[
                machine.labels.get(tags.pool_tag, ""),
                machine.machine_type.rpartition("/")[2],
                zone,
                machine.scheduling.provisioning_model == SPOT,
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


def month_cost(_region: str, tags: StackTags, _today: date) -> CostSoFar:
    """Raise OSError: no service of Google Cloud tells a cost but the export to BigQuery."""
    raise OSError(
        "Google Cloud tells costs by its export to BigQuery alone: export the rows with the label "
        f"{tags.stack_tag}={tags.stack}, and run tonnage usage PLAN --from FILE"
    )
