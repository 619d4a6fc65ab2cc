"""What an account is asked before something is built in it, and how its answers are told."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from planner.facts import table
from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from collections.abc import Iterable


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
    unit: str


class QuotaRoom(Struct, frozen=True, kw_only=True):
    """How much of a quota there is.

    name    of the quota, as people know it
    used    of it; none where the cloud does not say
    asked   what a plan adds
    remedy  how more is asked for
    """

    name: str
    unit: str
    limit: float
    used: float | None
    asked: float
    remedy: str

    @property
    def is_enough(self) -> bool:
        """Whether what is asked for fits beside what is used."""
        return (self.used or 0) + self.asked <= self.limit

    @property
    def text(self) -> str:
        """Say how much is needed and how much there is."""
        used = "an unknown number" if self.used is None else f"{self.used:g}"
        return (
            f"needs {self.asked:g} {self.unit} of {self.name}, of which the account has "
            f"{self.limit:g} and uses {used}"
        )


# Stands for the machines of a region that are in none of its zones.
NO_ZONE: Final = ""


class AccountModule(Protocol):
    """`providers.<cloud>.account`. Every function raises the errors of `providers.live.access`."""

    def signed_in(self, region: str) -> str:
        """Return who is signed in. Raises PermissionError when nobody is."""

    def closed_services(
        self, region: str, services: Iterable[str]
    ) -> dict[str, str]:
        """Return the services that are switched off, each with how it is switched on."""

    def quota_rooms(self, ask: MachineAsk) -> list[QuotaRoom]:
        """Return the quotas that count machines. Raises LookupError when none is known."""

    def offered_zones(self, region: str, instance_type: str) -> set[str]:
        """Return the zones of a region in which the account may have a machine type.

        NO_ZONE is among them where it may have machines that are in no zone.
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


def rules_for(cloud: str, ask: MachineAsk) -> list[QuotaRule]:
    """Return the quotas that count some machines. Raises LookupError when none is known."""
    rules = [
        rule
        for rule in quota_rules(cloud)
        if rule.purchase == ask.purchase
        and fnmatchcase(ask.instance_type, rule.machines)
    ]
    if not rules:
        raise LookupError(
            f"no quota is known that counts {ask.instance_type} bought {ask.purchase}"
        )
    return rules
