"""Rows of owned machines that a catalog contradicts: of no machine type, or of several sizes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from planner import figures
from planner.errors import Problem, SpecError
from planner.market.owned import OWNED_FILE_SOURCE, owned_rows
from planner.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.market.offer import Catalog, Instance, Offer
    from planner.market.owned import OwnedMachines, OwnedRow
    from planner.spec.model import Spec

SEE_NAMES: Final = "see names: tonnage offers --limit 1000"


def check_owned(
    spec: Spec, catalog: Catalog, read_file: Callable[[str], bytes]
) -> None:
    """Raise SpecError for rows of `buy.owned` that no plan can use as they are meant.

    A row whose type or region is in no catalog would be paid for and never used: it is misspelt.
    A pattern of machines of several sizes would let the largest stand for the smallest.
    """
    if spec.buy.owned is None:
        return
    rows = owned_rows(read_file(spec.buy.owned), spec.buy.owned)
    problems = [
        problem for row in rows for problem in _row_problems(row, catalog)
    ]
    if problems:
        raise SpecError(*problems)


def _row_problems(row: OwnedRow, catalog: Catalog) -> Iterator[Problem]:
    machines = row.machines
    offers = [
        offer
        for offer in (*catalog.offers, *catalog.unlisted)
        if offer.provider == machines.cloud
    ]
    instances = {
        instance.instance_type: instance
        for instance in (
            *(offer.instance for offer in offers),
            *catalog.unpriced,
        )
        if instance.provider == machines.cloud
    }
    named = [
        instance
        for name, instance in sorted(instances.items())
        if fnmatchcase(name, machines.type)
    ]
    regions = {offer.region for offer in offers}
    if not named:
        yield _unknown(row, "machine type", machines.type, instances)
    elif not any(fnmatchcase(region, machines.region) for region in regions):
        yield _unknown(row, "region", machines.region, regions)
    elif difference := _difference(named, offers, machines):
        yield Problem(
            code="owned",
            message=f"{OWNED_FILE_SOURCE}: '{machines.type}' is of machines that are not alike: "
            f"{difference}",
            place=row.place,
            next_step="give each machine type a row of its own, with its count and its price",
        )


def _unknown(
    row: OwnedRow, kind: str, pattern: str, known: Iterable[str]
) -> Problem:
    return Problem(
        code="owned",
        message=f"{OWNED_FILE_SOURCE}: '{pattern}' matches nothing: the catalog has no such "
        f"{kind} of {row.machines.cloud}",
        place=row.place,
        next_step=did_you_mean(pattern, sorted(known), otherwise=SEE_NAMES),
    )


def _difference(
    named: list[Instance], offers: list[Offer], machines: OwnedMachines
) -> str | None:
    """Return two machine types that a row matches and in what they differ, or nothing."""
    sizes = size_difference(named)
    if sizes is not None:
        return sizes
    on_demand = sorted(
        (
            offer
            for offer in offers
            if offer.purchase == "on_demand" and machines.are_of(offer)
        ),
        key=lambda offer: (offer.region, offer.instance.instance_type),
    )
    for one, other in pairwise(on_demand):
        if one.region == other.region and one.usd_hour != other.usd_hour:
            return (
                f"{one.instance.instance_type} costs {figures.unit_price(one.usd_hour)} USD an "
                f"hour in {one.region}, and {other.instance.instance_type} costs "
                f"{figures.unit_price(other.usd_hour)}"
            )
    return None


def size_difference(instances: Iterable[Instance]) -> str | None:
    """Return two machine types with unlike numbers of accelerators, or nothing."""
    by_size = sorted(
        instances,
        key=lambda instance: instance.accelerators * instance.fraction,
    )
    least, most = by_size[0], by_size[-1]
    if least.accelerators * least.fraction == most.accelerators * most.fraction:
        return None
    return f"{_size_text(least)}, and {_size_text(most)}"


def _size_text(instance: Instance) -> str:
    count = instance.accelerators * instance.fraction
    return f"{instance.instance_type} has {count:g} x {instance.accelerator}"
