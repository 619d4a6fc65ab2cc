"""Offers and the state of the catalog as rows, ranked by what a unit of them costs."""

from __future__ import annotations

import math
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.offer import Catalog, Offer

ListingRows: TypeAlias = "list[dict[str, str]]"


def unit_price(offer: Offer, price_unit: str) -> float:
    """USD an hour for one GPU, TFLOP/s (bf16), GB/s, GiB, or the whole machine."""
    instance = offer.instance
    accelerator_count = instance.accelerators * instance.fraction
    unit_amounts = {
        "gpu": accelerator_count,
        "hour": 1.0,
        "memory": instance.node.memory_gib * instance.accelerators,
        "tflop": accelerator_count * (instance.chip.bf16_tflops or 0),
        "bandwidth": accelerator_count * (instance.chip.bandwidth_gb_s or 0),
    }
    return (
        float(offer.usd_hour) / unit_amounts[price_unit]
        if unit_amounts[price_unit]
        else math.inf
    )


def rank_offers(
    offers: Iterable[Offer],
    accelerator_pattern: str,
    price_unit: str,
    filter_patterns: dict[str, tuple[str, ...]],
) -> list[Offer]:
    """Return the offers that keep every wish, the cheapest by the unit first."""
    accelerator_glob = (
        accelerator_pattern
        if any(wildcard in accelerator_pattern for wildcard in "*?")
        else f"{accelerator_pattern}*"
    )
    matching_offers = [
        offer
        for offer in offers
        if fnmatchcase(offer.instance.accelerator, accelerator_glob)
        and _matches_any(offer.provider, filter_patterns["cloud"])
        and _matches_any(offer.region, filter_patterns["region"])
        and _matches_any(offer.instance.instance_type, filter_patterns["kind"])
        and _matches_any(offer.purchase, filter_patterns["purchase"])
    ]
    return sorted(
        matching_offers,
        key=lambda offer: (unit_price(offer, price_unit), offer.key),
    )


def offer_rows(offers: list[Offer]) -> ListingRows:
    """Return offers as rows."""
    return [
        {
            "cloud": offer.provider,
            "region": offer.region,
            "type": offer.instance.instance_type,
            "accelerators": f"{offer.instance.accelerators} x {offer.instance.accelerator}",
            "purchase": offer.purchase,
            "usd_hour": f"{offer.usd_hour:f}",
            "usd_gpu": _format_price(unit_price(offer, "gpu")),
            "usd_tflop": _format_price(unit_price(offer, "tflop")),
            "usd_gb_s": _format_price(unit_price(offer, "bandwidth")),
            "as_of": offer.as_of,
            "confidence": offer.confidence,
        }
        for offer in offers
    ]


def catalog_rows(catalog: Catalog) -> ListingRows:
    """Return how many offers the catalog has, by cloud and purchase option."""
    offer_counts = Counter(
        (offer.provider, offer.purchase)
        for offer in (*catalog.offers, *catalog.unlisted)
    )
    provider_regions = {
        cloud: {
            offer.region for offer in catalog.offers if offer.provider == cloud
        }
        for cloud, _ in offer_counts
    }
    return [
        {
            "cloud": provider,
            "purchase": purchase,
            "offers": str(offer_count),
            "regions": str(len(provider_regions[provider])),
            "as_of": catalog.as_of,
            "sha256": catalog.sha256[:16],
            "used": "no, shown only"
            if purchase in ("list_unclear", "capacity_block", "dws_calendar")
            else "yes",
        }
        for (provider, purchase), offer_count in sorted(offer_counts.items())
    ]


def unpriced_rows(catalog: Catalog) -> ListingRows:
    """Return the machine types that no price is known of: they are never chosen."""
    return [
        {
            "cloud": instance.provider,
            "type": instance.instance_type,
            "accelerators": f"{instance.accelerators} x {instance.accelerator}",
        }
        for instance in sorted(
            catalog.unpriced,
            key=lambda instance: (instance.provider, instance.instance_type),
        )
    ]


def _matches_any(candidate: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(
        fnmatchcase(candidate, pattern) for pattern in patterns
    )


def _format_price(price_usd: float) -> str:
    return "" if price_usd == math.inf else f"{price_usd:.5f}"
