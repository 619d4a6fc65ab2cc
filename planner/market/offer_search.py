"""Why no offer is found: a name that nothing has, or filters that go together nowhere."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from planner.errors import MissingError, Problem
from planner.suggest import did_you_mean, prefix_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.market.offer import Offer


def nothing_found(
    offers: Iterable[Offer],
    accelerator_pattern: str,
    regions: tuple[str, ...],
    machine_types: tuple[str, ...],
) -> MissingError:
    """Return the error of a search for offers that finds none.

    It names each word that nothing in the catalog has. Where all are known, their filters
    exclude each other.
    """
    offers = list(offers)
    problems = [
        *_unknown(
            "accelerator",
            (accelerator_pattern,),
            {
                name
                for offer in offers
                # A family is a name, too: h100 of h100-sxm.
                for name in (
                    offer.instance.accelerator,
                    offer.instance.accelerator.split("-")[0],
                )
            },
        ),
        *_unknown("region", regions, {offer.region for offer in offers}),
        *_unknown(
            "machine type",
            machine_types,
            {offer.instance.instance_type for offer in offers},
        ),
    ]
    together = Problem(
        code="offers",
        message="no offer has all of that",
        next_step="leave out one of --cloud, --region, --type and --purchase",
    )
    return MissingError(*(problems or (together,)))


def _unknown(
    what: str, patterns: tuple[str, ...], names: set[str]
) -> Iterator[Problem]:
    """Yield a problem for each pattern that no name matches."""
    for pattern in patterns:
        glob = prefix_pattern(pattern) if what == "accelerator" else pattern
        if any(fnmatchcase(name, glob) for name in names):
            continue
        yield Problem(
            code=what.replace(" ", "-"),
            message=f"no offer has the {what} '{pattern}'",
            next_step=did_you_mean(
                pattern.strip("*?"),
                sorted(names),
                otherwise="see what there is: tonnage offers --limit 1000",
            ),
        )
