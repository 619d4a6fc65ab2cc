"""Offers and the state of the catalog as rows, ranked by what a unit of them costs."""

from __future__ import annotations

import math
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.solve.offer import Catalog, Offer

Rows: TypeAlias = "list[dict[str, str]]"


def unit_price(offer: Offer, unit: str) -> float:
    """USD an hour for one GPU, TFLOP/s (bf16), GB/s, GiB, or the whole machine."""
    kind = offer.instance
    count = kind.accelerators * kind.fraction
    amounts = {
        "gpu": count,
        "hour": 1.0,
        "memory": kind.node.memory_gib * kind.accelerators,
        "tflop": count * (kind.chip.bf16_tflops or 0),
        "bandwidth": count * (kind.chip.bandwidth_gb_s or 0),
    }
    return float(offer.usd_hour) / amounts[unit] if amounts[unit] else math.inf


def ranked(
    offers: Iterable[Offer],
    accelerator: str,
    sort: str,
    wishes: dict[str, tuple[str, ...]],
) -> list[Offer]:
    """Return the offers that keep every wish, the cheapest by the unit first."""
    wanted = (
        accelerator
        if any(c in accelerator for c in "*?")
        else f"{accelerator}*"
    )
    found = [
        o
        for o in offers
        if fnmatchcase(o.instance.accelerator, wanted)
        and _any(o.provider, wishes["cloud"])
        and _any(o.region, wishes["region"])
        and _any(o.instance.instance_type, wishes["kind"])
        and _any(o.purchase, wishes["purchase"])
    ]
    return sorted(found, key=lambda o: (unit_price(o, sort), o.key))


def offer_rows(offers: list[Offer]) -> Rows:
    """Return offers as rows."""
    return [
        {
            "cloud": o.provider,
            "region": o.region,
            "type": o.instance.instance_type,
            "accelerators": f"{o.instance.accelerators} x {o.instance.accelerator}",
            "purchase": o.purchase,
            "usd_hour": f"{o.usd_hour:f}",
            "usd_gpu": _fine(unit_price(o, "gpu")),
            "usd_tflop": _fine(unit_price(o, "tflop")),
            "usd_gb_s": _fine(unit_price(o, "bandwidth")),
            "as_of": o.as_of,
            "confidence": o.confidence,
        }
        for o in offers
    ]


def catalog_rows(catalog: Catalog) -> Rows:
    """Return how many offers the catalog has, by cloud and purchase option."""
    counts = Counter(
        (o.provider, o.purchase) for o in (*catalog.offers, *catalog.unlisted)
    )
    regions = {
        p: {o.region for o in catalog.offers if o.provider == p}
        for p, _ in counts
    }
    return [
        {
            "cloud": provider,
            "purchase": purchase,
            "offers": str(count),
            "regions": str(len(regions[provider])),
            "as_of": catalog.as_of,
            "sha256": catalog.sha256[:16],
            "used": "no, shown only"
            if purchase in ("list_unclear", "capacity_block", "dws_calendar")
            else "yes",
        }
        for (provider, purchase), count in sorted(counts.items())
    ]


def unpriced_rows(catalog: Catalog) -> Rows:
    """Return the machine types that no price is known of: they are never chosen."""
    return [
        {
            "cloud": i.provider,
            "type": i.instance_type,
            "accelerators": f"{i.accelerators} x {i.accelerator}",
        }
        for i in sorted(
            catalog.unpriced, key=lambda i: (i.provider, i.instance_type)
        )
    ]


def _any(word: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(word, p) for p in patterns)


def _fine(value: float) -> str:
    return "" if value == math.inf else f"{value:.5f}"
