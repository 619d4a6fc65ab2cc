"""Commitments of a project of Google Cloud to resources, and what of them is used."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from planner.market.live import CommitmentFact
from providers.gcp.account import zonal_types
from providers.gcp.client import (
    open_account,
    pages,
    understood,
    zonal_things,
)
from providers.live.commitment import filled_in_order, term_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CLOUD: Final = "gcp"
COMPUTE_URL: Final = "https://compute.googleapis.com/compute/v1"
COMMITTED_USE: Final = "committed use"
ACCELERATOR: Final = "ACCELERATOR"
VCPU: Final = "VCPU"
MEMORY: Final = "MEMORY"
# Machines that are bought so are paid for by no commitment.
OTHER_PURCHASES: Final = ("SPOT", "FLEX_START")


class _Part(Struct, frozen=True, rename="camel"):
    """An amount of a resource: of memory MB, which are MiB."""

    type: str
    amount: int
    accelerator_type: str = ""


class _Commitment(Struct, frozen=True, rename="camel"):
    """What is committed to. One of licenses has no resources."""

    id: str
    name: str
    status: str
    plan: str
    end_timestamp: str
    resources: tuple[_Part, ...] = ()

    def amount(self, kind: str) -> int:
        return sum(part.amount for part in self.resources if part.type == kind)

    def accelerators(self) -> dict[str, int]:
        """Return how many accelerators of each type it has. Raises OSError for none of a type."""
        counts: Counter[str] = Counter()
        for part in self.resources:
            if part.type == ACCELERATOR:
                if not part.accelerator_type:
                    raise OSError(f"{self.name} has accelerators of no type")
                counts[_last_part(part.accelerator_type)] += part.amount
        return dict(counts)


class _Card(Struct, frozen=True, rename="camel"):
    guest_accelerator_type: str
    guest_accelerator_count: int


class _CommittedType(Struct, frozen=True, rename="camel"):
    """A machine type, as far as a commitment pays for it."""

    name: str
    guest_cpus: int
    memory_mb: int
    accelerators: tuple[_Card, ...] = ()


class _InstanceCard(Struct, frozen=True, rename="camel"):
    accelerator_type: str
    accelerator_count: int


class _Scheduling(Struct, frozen=True, rename="camel"):
    provisioning_model: str = ""


class _RunningInstance(Struct, frozen=True, rename="camel"):
    status: str
    scheduling: _Scheduling = _Scheduling()
    guest_accelerators: tuple[_InstanceCard, ...] = ()


def commitment_regions(regions: Sequence[str]) -> list[str]:
    """Return the regions that have commitments to accelerators. Raises OSError for no list."""
    account = open_account()
    query = urlencode({"returnPartialSuccess": "false"})
    url = f"{COMPUTE_URL}/projects/{account.project}/aggregated/commitments?{query}"
    listed = [
        scope
        for page in pages(account.session, url)
        for scope in page.get("items", {}).items()
    ]
    if not listed:
        raise OSError("the list has no regions")
    committed = {
        place.removeprefix("regions/")
        for place, scoped in listed
        for row in scoped.get("commitments", ())
        if _pays_for_accelerators(understood(row, _Commitment))
    }
    return [region for region in regions if region in committed]


def _pays_for_accelerators(found: _Commitment) -> bool:
    return found.status == "ACTIVE" and bool(found.accelerators())


def commitments(
    region: str, machine_types: Sequence[str]
) -> list[CommitmentFact]:
    """Return the commitments that have the accelerators of machine types, vCPUs and memory.

    Google tells no price of one. What else a machine has, such as local SSD, is not looked at.
    """
    listed = _accelerated(region)
    if not listed:
        return []
    machines = {
        machine["name"]: understood(machine, _CommittedType)
        for _, machine in zonal_types(region, machine_types)
        if machine["name"] in machine_types
    }
    facts = []
    for found in listed:
        for kind, count in found.accelerators().items():
            takes = _takes(found, kind, count, machines.values())
            if takes:
                facts.append(
                    CommitmentFact(
                        id=_part_id(found, kind),
                        name=COMMITTED_USE,
                        unit="accelerators",
                        amount=Decimal(count),
                        takes=takes,
                        usd_hour=None,
                        term=term_of(CLOUD, found.plan),
                        ends=_utc_text(found.end_timestamp),
                    )
                )
    return facts


def commitment_use(
    region: str,
    machine_types: Sequence[str],  # noqa: ARG001 - what else runs uses a commitment as well
) -> dict[str, Decimal]:
    """Return how many of the accelerators of each commitment run, and are on demand."""
    listed = _accelerated(region)
    if not listed:
        return {}
    running = _running_accelerators(region)
    amounts: dict[str, dict[str, Decimal]] = {}
    for found in listed:
        for kind, count in found.accelerators().items():
            of_kind = amounts.setdefault(kind, {})
            of_kind[_part_id(found, kind)] = Decimal(count)
    return {
        name: used
        for kind, of_kind in amounts.items()
        for name, used in filled_in_order(
            Decimal(running[kind]), of_kind
        ).items()
    }


def _accelerated(region: str) -> list[_Commitment]:
    """Return the commitments to accelerators that are paid for now, the first to end first."""
    account = open_account()
    query = urlencode({"filter": 'status = "ACTIVE"', "maxResults": 500})
    url = (
        f"{COMPUTE_URL}/projects/{account.project}/regions/{region}"
        f"/commitments?{query}"
    )
    listed = [
        understood(row, _Commitment)
        for page in pages(account.session, url)
        for row in _rows_of(page)
    ]
    return sorted(
        (found for found in listed if _pays_for_accelerators(found)),
        key=lambda found: (found.end_timestamp, found.id),
    )


def _rows_of(page: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a page. An empty list has none, but it says what it lists."""
    if "items" not in page and "kind" not in page:
        raise OSError("the answer is no list of commitments")
    return list(page.get("items", ()))


def _takes(
    found: _Commitment,
    kind: str,
    count: int,
    machines: Iterable[_CommittedType],
) -> dict[str, Decimal]:
    """Return how many accelerators of a commitment a machine of each type takes up.

    It is more than the machine has where vCPUs or memory are what is short:
    taken = accelerators * max over resources (what a machine has / what is committed to)
    """
    takes = {}
    for machine in machines:
        has = sum(
            card.guest_accelerator_count
            for card in machine.accelerators
            if card.guest_accelerator_type == kind
        )
        committed = (count, found.amount(VCPU), found.amount(MEMORY))
        needs = (has, machine.guest_cpus, machine.memory_mb)
        if has and all(committed):
            takes[machine.name] = max(
                Decimal(count * need) / amount
                for need, amount in zip(needs, committed, strict=True)
            )
    return dict(sorted(takes.items()))


def _running_accelerators(region: str) -> Counter[str]:
    """Return the accelerators of machines that run and that a commitment may pay for."""
    account = open_account()
    url = (
        f"{COMPUTE_URL}/projects/{account.project}/aggregated/instances?"
        + urlencode(
            {
                "filter": 'status = "RUNNING"',
                "maxResults": 500,
                "returnPartialSuccess": "false",
            }
        )
    )
    running: Counter[str] = Counter()
    for _, listed in zonal_things(account.session, url, "instances", region):
        machine = understood(listed, _RunningInstance)
        if machine.scheduling.provisioning_model in OTHER_PURCHASES:
            continue
        for card in machine.guest_accelerators:
            running[_last_part(card.accelerator_type)] += card.accelerator_count
    return running


def _part_id(found: _Commitment, kind: str) -> str:
    """Return what tells the accelerators of a commitment apart: it may have several types."""
    return (
        f"{found.name}/{kind}" if len(found.accelerators()) > 1 else found.name
    )


def _last_part(url: str) -> str:
    """Return the name at the end of a URL; some answers have the name alone."""
    return url.rpartition("/")[2]


def _utc_text(time_text: str) -> str:
    moment = datetime.fromisoformat(time_text).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
