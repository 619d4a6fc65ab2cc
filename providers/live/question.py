"""What an account is asked before something is built in it, and how its answers are told."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from planner.facts import table
from planner.facts.cloud import clouds
from planner.market.live import raise_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.live import QuotaFact, QuotaUnit

UNIT_NAMES: Final = {"vcpus": "vCPUs", "accelerators": "accelerators"}


class MachineAsk(Struct, frozen=True, kw_only=True):
    """Machines of one type that a plan adds to what stands.

    purchase      on_demand or spot
    vcpus         of all of them
    accelerators  of all of them
    zones         where they may be; empty where nobody says
    """

    region: str
    instance_type: str
    purchase: str
    nodes: int
    vcpus: int
    accelerators: int
    zones: tuple[str, ...] = ()

    def amount(self, unit: str) -> int:
        """Return how much of a quota they take, in its unit."""
        return self.vcpus if unit == "vcpus" else self.accelerators


class QuotaRule(Struct, frozen=True, kw_only=True):
    """A quota that counts machines.

    machines  pattern of machine types
    kind      how the cloud names it, such as code, metric, family or usage
    quota     that name
    """

    machines: str
    purchase: str
    kind: str
    quota: str
    unit: QuotaUnit


class QuotaRoom(Struct, frozen=True, kw_only=True):
    """How much of a quota there is for what a plan asks for.

    asked   what a plan adds, in the unit of the quota
    remedy  how more is asked for
    """

    quota: QuotaFact
    asked: float
    remedy: str

    @property
    def is_enough(self) -> bool:
        """Whether what is asked for fits beside what is used."""
        free = self.quota.free
        return free is None or self.asked <= free

    @property
    def text(self) -> str:
        """Say how much is needed and how much there is."""
        quota = self.quota
        used = "an unknown number" if quota.used is None else f"{quota.used:g}"
        limit = "no limit" if quota.limit is None else f"{quota.limit:g}"
        return (
            f"needs {self.asked:g} {UNIT_NAMES[quota.unit]} of {quota.name}, of which the "
            f"account has {limit} and uses {used}"
        )


class AccountModule(Protocol):
    """`providers.<cloud>.account`. Every function raises the errors of `providers.live.access`."""

    def signed_in(self, region: str) -> str:
        """Return who is signed in. Raises PermissionError when nobody is."""

    def closed_services(
        self, region: str, services: Iterable[str]
    ) -> dict[str, str]:
        """Return the services that are switched off, each with how it is switched on."""

    def quotas(
        self, region: str, machine_types: Iterable[str], purchase: str
    ) -> list[QuotaFact]:
        """Return the quotas that count machines of some types.

        What no rule counts is left out, and so is a quota that the region does not have.
        """

    def request_quota(self, region: str, quota_id: str, wanted: float) -> str:
        """Ask for a higher limit of a quota: the only thing here that changes an account.

        Returns what has become of the request so far, as the cloud says it. Raises LookupError
        when the region has no such quota.
        """

    def offered_zones(
        self, region: str, machine_types: Iterable[str]
    ) -> dict[str, set[str]]:
        """Return the zones of a region in which the account may have machine types, of each type.

        NO_ZONE is among them where it may have machines that are in no zone. A type that it may
        not have has no zones.
        """

    def named_endpoints(
        self, region: str, network: str
    ) -> dict[str, dict[str, str]]:
        """Return the services whose names lead to an endpoint of a network, each with its tags."""

    def missing_rights(self, region: str, rights: list[str]) -> dict[str, bool]:
        """Return the rights that who is signed in does not have, and whether that is sure."""


@cache
def quota_rules(cloud: str) -> tuple[QuotaRule, ...]:
    """Return the quotas of a cloud that count machines."""
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "machines": table.nonempty_text,
        "purchase": table.one_of("on_demand", "spot"),
        "kind": table.nonempty_text,
        "quota": table.any_text,
        "unit": table.one_of("vcpus", "accelerators"),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        QuotaRule(
            machines=row["machines"],
            purchase=row["purchase"],
            kind=row["kind"],
            quota=row["quota"],
            unit=row["unit"],
        )
        for row in table.load_rows("providers", "quotas.csv", columns)
        if row["cloud"] == cloud
    )


def rules_by_quota(
    cloud: str, machine_types: Iterable[str], purchase: str
) -> dict[QuotaRule, tuple[str, ...]]:
    """Return the quotas that count machines of some types, each once, with those that it counts.

    Several rows may name one quota; the first of them stands for it.
    """
    names = sorted(set(machine_types))
    rules: dict[tuple[str, str], QuotaRule] = {}
    counted: dict[QuotaRule, tuple[str, ...]] = {}
    for rule in quota_rules(cloud):
        types = tuple(
            name for name in names if fnmatchcase(name, rule.machines)
        )
        if rule.purchase == purchase and types:
            first = rules.setdefault((rule.kind, rule.quota), rule)
            counted[first] = tuple(sorted({*counted.get(first, ()), *types}))
    return counted


def quota_rooms(
    account: AccountModule, cloud: str, ask: MachineAsk
) -> list[QuotaRoom]:
    """Return the quotas that count some machines. Raises LookupError when none is known."""
    quotas = account.quotas(ask.region, [ask.instance_type], ask.purchase)
    if not quotas:
        raise LookupError(
            f"no quota of {cloud} {ask.region} is known that counts {ask.instance_type} "
            f"bought {ask.purchase}"
        )
    return [
        QuotaRoom(
            quota=quota,
            asked=ask.amount(quota.unit),
            remedy=raise_text(
                cloud,
                ask.region,
                quota,
                (quota.used or 0) + ask.amount(quota.unit),
            ),
        )
        for quota in quotas
    ]
