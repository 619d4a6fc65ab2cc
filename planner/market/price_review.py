"""What is odd about the prices of an update, and whether that is too much: update_limits.csv."""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from planner.facts import table
from planner.market.price_update import is_usable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    from planner.market.offer_key import OfferKey
    from planner.market.price_row import PriceRow
    from planner.market.price_update import TodaysPrices

ConcernKind: TypeAlias = Literal[
    "unusable", "jump", "unmatched", "vanished", "spot_above"
]


class PriceConcern(Struct, frozen=True, kw_only=True):
    """A price that somebody should look at.

    kind  unusable: zero, negative or no number; jump: far from the old price, or of a new price
          from what the same costs in other regions; unmatched: new, and nothing to compare it
          with; vanished: the cloud has none any more; spot_above: on spot no less than on demand
    """

    kind: ConcernKind
    key: OfferKey
    old_usd_hour: Decimal | None = None
    usd_hour: Decimal | None = None
    detail: str = ""


class PriceReview(Struct, frozen=True):
    """All concerns, and a sentence for each limit that is exceeded."""

    concerns: tuple[PriceConcern, ...]
    refusals: tuple[str, ...]


class UpdateLimits(Struct, frozen=True):
    """How much an update may change without a person who accepts it.

    jump_factor       largest factor between two prices of the same
    shift_factor      largest factor between the prices on demand of a cloud, in the median
    vanished_share    largest share of the prices of a cloud and purchase that vanish
    spot_above_share  largest share of the prices of a cloud on spot that are not below on demand
    """

    jump_factor: Decimal
    shift_factor: Decimal
    vanished_share: Decimal
    spot_above_share: Decimal


@cache
def update_limits() -> UpdateLimits:
    """Return the limits of data/update_limits.csv."""
    columns: table.Columns = {
        "limit": table.nonempty_text,
        "number": table.finite_decimal,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.market", "update_limits.csv", columns)
    return UpdateLimits(**{row["limit"]: row["number"] for row in rows})


def review_prices(
    rows: Sequence[PriceRow], todays: TodaysPrices, limits: UpdateLimits
) -> PriceReview:
    """Return what is odd about prices of today, beside the rows of a table."""
    old_usd = {row.key: row.usd for row in rows}
    concerns = (
        *_unusable(old_usd, todays),
        *_jumps(old_usd, todays, limits.jump_factor),
        *_vanished(old_usd, todays),
        *_spot_above(old_usd, todays),
    )
    return PriceReview(
        concerns, tuple(_refusals(concerns, old_usd, todays, limits))
    )


def _unusable(
    old_usd: Mapping[OfferKey, Decimal], todays: TodaysPrices
) -> Iterator[PriceConcern]:
    for key, usd_hour in todays.usd_hour.items():
        if not is_usable(usd_hour):
            yield PriceConcern(
                kind="unusable",
                key=key,
                old_usd_hour=old_usd.get(key),
                usd_hour=usd_hour,
            )


def _jumps(
    old_usd: Mapping[OfferKey, Decimal],
    todays: TodaysPrices,
    factor: Decimal,
) -> Iterator[PriceConcern]:
    """Yield prices that are out of what is expected of them.

    lowest expected price / factor <= price <= highest expected price * factor

    Expected is the old price; of a price that is new, those of the same in other regions.
    """
    elsewhere: dict[tuple[str, str, str], list[Decimal]] = {}
    for (cloud, _, machine_type, purchase), usd_hour in old_usd.items():
        elsewhere.setdefault((cloud, machine_type, purchase), []).append(
            usd_hour
        )
    for key, usd_hour in todays.usd_hour.items():
        if not is_usable(usd_hour):
            continue
        cloud, _, machine_type, purchase = key
        expected_usd = (
            [old_usd[key]]
            if key in old_usd
            else elsewhere.get((cloud, machine_type, purchase), [])
        )
        if not expected_usd:
            yield PriceConcern(kind="unmatched", key=key, usd_hour=usd_hour)
            continue
        lowest_usd, highest_usd = min(expected_usd), max(expected_usd)
        if usd_hour * factor < lowest_usd or usd_hour > highest_usd * factor:
            yield PriceConcern(
                kind="jump",
                key=key,
                old_usd_hour=old_usd.get(key),
                usd_hour=usd_hour,
                detail=""
                if key in old_usd
                else f"{lowest_usd:f} to {highest_usd:f} in other regions",
            )


def _vanished(
    old_usd: Mapping[OfferKey, Decimal], todays: TodaysPrices
) -> Iterator[PriceConcern]:
    for key, usd_hour in old_usd.items():
        if key in todays.asked and key not in todays.usd_hour:
            yield PriceConcern(kind="vanished", key=key, old_usd_hour=usd_hour)


def _spot_above(
    old_usd: Mapping[OfferKey, Decimal], todays: TodaysPrices
) -> Iterator[PriceConcern]:
    """Yield prices on spot at or above on demand, where one of the two is of today."""
    usable_usd = {
        key: usd_hour
        for key, usd_hour in todays.usd_hour.items()
        if is_usable(usd_hour)
    }
    usd_now = {**old_usd, **usable_usd}
    for key, usd_hour in usd_now.items():
        base_key = (*key[:3], "on_demand")
        base_usd = usd_now.get(base_key)
        if (
            key[3] == "spot"
            and base_usd is not None
            and usd_hour >= base_usd
            and (key in usable_usd or base_key in usable_usd)
        ):
            yield PriceConcern(
                kind="spot_above",
                key=key,
                old_usd_hour=old_usd.get(key),
                usd_hour=usd_hour,
                detail=f"{base_usd:f} on demand",
            )


def _refusals(
    concerns: Sequence[PriceConcern],
    old_usd: Mapping[OfferKey, Decimal],
    todays: TodaysPrices,
    limits: UpdateLimits,
) -> Iterator[str]:
    """Yield a sentence for each limit that is exceeded.

    Shares are of the prices of a cloud and a purchase, so that a small cloud is not hidden.
    """
    counts = Counter(concern.kind for concern in concerns)
    if counts["unusable"]:
        yield f"{counts['unusable']} are zero, negative or no number"
    if counts["jump"]:
        yield f"{counts['jump']} changed by more than {limits.jump_factor:f} times"
    if counts["unmatched"]:
        yield f"{counts['unmatched']} are new, and there is nothing to compare them with"
    yield from _shifts(old_usd, todays, limits.shift_factor)
    asked_counts = Counter(
        (key[0], key[3]) for key in todays.asked if key in old_usd
    )
    spot_keys = {(*key[:3], "spot") for key in todays.usd_hour}
    spot_counts = Counter(
        (key[0], key[3])
        for key in spot_keys
        if key in old_usd or key in todays.usd_hour
    )
    yield from _share_refusals(
        concerns, "vanished", asked_counts, limits.vanished_share
    )
    yield from _share_refusals(
        concerns, "spot_above", spot_counts, limits.spot_above_share
    )


def _shifts(
    old_usd: Mapping[OfferKey, Decimal],
    todays: TodaysPrices,
    factor: Decimal,
) -> Iterator[str]:
    """Yield a sentence for each cloud whose prices on demand moved together.

    1 / factor <= median of (price today / old price) <= factor

    Another currency moves all of them by less than a jump. Prices on spot move by themselves.
    """
    ratios: dict[str, list[Decimal]] = {}
    for key, usd_hour in todays.usd_hour.items():
        if key[3] == "on_demand" and key in old_usd and is_usable(usd_hour):
            ratios.setdefault(key[0], []).append(usd_hour / old_usd[key])
    for cloud, cloud_ratios in sorted(ratios.items()):
        middle = median(cloud_ratios)
        if middle * factor < 1 or middle > factor:
            yield f"those of {cloud} on_demand are {middle:.3f} of the old ones in the median"


def _share_refusals(
    concerns: Sequence[PriceConcern],
    kind: ConcernKind,
    totals: Mapping[tuple[str, str], int],
    most_share: Decimal,
) -> Iterator[str]:
    """Yield a sentence for each cloud and purchase with too large a share of a concern."""
    words = {"vanished": "vanished", "spot_above": "are not below on demand"}
    counts = Counter(
        (concern.key[0], concern.key[3])
        for concern in concerns
        if concern.kind == kind
    )
    for (cloud, purchase), count in sorted(counts.items()):
        total = totals[cloud, purchase]
        if count > most_share * total:
            yield f"{count} of {total} of {cloud} {purchase} {words[kind]}"
