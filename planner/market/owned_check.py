"""Rows of owned machines that a catalog contradicts: of no machine type, or of several sizes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from planner.errors import Problem, SpecError
from planner.market.owned import OWNED_FILE_SOURCE, owned_rows
from planner.market.unlike import difference
from planner.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.market.offer import Catalog
    from planner.market.owned import OwnedRow
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
    elif unlike := difference(named, filter(machines.are_of, offers)):
        yield Problem(
            code="owned",
            message=f"{OWNED_FILE_SOURCE}: '{machines.type}' is of machines that are not alike: "
            f"{unlike}",
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
