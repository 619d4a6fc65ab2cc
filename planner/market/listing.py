"""Offers and catalog contents as table rows, ranked by price per unit."""

from __future__ import annotations

import math
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

from planner.market.offer import ORDERABLE_PURCHASES
from planner.suggest import prefix_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from planner.market.offer import Catalog, Offer
    from planner.market.offer_key import OfferKey
    from planner.market.price_diff import PriceDifference
    from planner.market.price_review import PriceConcern

ListingRows: TypeAlias = "list[dict[str, str]]"


def unit_price(offer: Offer, price_unit: str) -> float:
    """Return the USD an hour per unit of an offer, infinite without the data.

    gpu:       whole accelerator
    hour:      machine
    memory:    usable GiB
    tflop:     TFLOP/s in bf16
    bandwidth: GB/s of accelerator memory
    """
    instance = offer.instance
    # A slice counts as its fraction of an accelerator.
    accelerator_count = instance.accelerators * instance.fraction
    unit_amounts = {
        "gpu": accelerator_count,
        "hour": 1.0,
        # Node memory is already that of the slice.
        "memory": instance.node.memory_gib * instance.accelerators,
        "tflop": accelerator_count * (instance.chip.bf16_tflops or 0),
        "bandwidth": accelerator_count * (instance.chip.bandwidth_gb_s or 0),
    }
    return (
        float(offer.usd_hour) / unit_amounts[price_unit]
        # 0 stands for a figure that the data sheet does not have.
        if unit_amounts[price_unit]
        else math.inf
    )


def rank_offers(
    offers: Iterable[Offer],
    accelerator_pattern: str,
    price_unit: str,
    filter_patterns: dict[str, tuple[str, ...]],
) -> list[Offer]:
    """Return the offers that match all filters, the lowest unit price first.

    `accelerator_pattern` is a glob, or a prefix when it has no wildcard. `filter_patterns` has
    globs by cloud, region, kind (machine type) and purchase; an empty tuple allows all.
    """
    # h100 finds all variants: h100-sxm, h100-pcie, h100-nvl.
    accelerator_glob = prefix_pattern(accelerator_pattern)
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
    """Return offers as table rows; prices in USD an hour."""
    return [
        {
            "cloud": offer.provider,
            "region": offer.region,
            "type": offer.instance.instance_type,
            "accelerators": f"{offer.instance.accelerators} x {offer.instance.accelerator}",
            "purchase": offer.purchase,
            "form": offer.form,
            "usd_hour": f"{offer.usd_hour:f}",
            "usd_gpu": _format_price(unit_price(offer, "gpu")),
            "usd_tflop": _format_price(unit_price(offer, "tflop")),
            "usd_gb_s": _format_price(unit_price(offer, "bandwidth")),
            "usd_gib": _format_price(unit_price(offer, "memory")),
            "as_of": offer.as_of,
            "old": "yes" if offer.old_price else "",
            "confidence": offer.confidence,
        }
        for offer in offers
    ]


def catalog_rows(catalog: Catalog) -> ListingRows:
    """Return the number of offers and regions by cloud and purchase option."""
    offer_counts = Counter(
        (offer.provider, offer.purchase)
        # Offers that cannot be ordered are counted too.
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
            # Other prices are not sold at any time, so plans skip them.
            "used": "yes"
            if purchase in ORDERABLE_PURCHASES
            else "no, shown only",
        }
        for (provider, purchase), offer_count in sorted(offer_counts.items())
    ]


def unpriced_rows(catalog: Catalog) -> ListingRows:
    """Return the machine types without a known price, which are never chosen."""
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


def difference_rows(differences: Iterable[PriceDifference]) -> ListingRows:
    """Return differences of two catalogs as table rows; prices in USD an hour."""
    return [
        {
            "change": difference.kind,
            **_key_cells(difference.key),
            "old_usd_hour": _usd_text(difference.old_usd_hour),
            "usd_hour": _usd_text(difference.usd_hour),
            "percent": ""
            if difference.percent is None
            else f"{difference.percent:+.1f}",
        }
        for difference in differences
    ]


def concern_rows(concerns: Iterable[PriceConcern]) -> ListingRows:
    """Return what is odd about the prices of an update as table rows; prices in USD an hour."""
    return [
        {
            "concern": concern.kind,
            **_key_cells(concern.key),
            "old_usd_hour": _usd_text(concern.old_usd_hour),
            "usd_hour": _usd_text(concern.usd_hour),
            "detail": concern.detail,
        }
        for concern in concerns
    ]


def _key_cells(key: OfferKey) -> dict[str, str]:
    return dict(zip(("cloud", "region", "type", "purchase"), key, strict=True))


def _usd_text(usd_hour: Decimal | None) -> str:
    return "" if usd_hour is None else f"{usd_hour:f}"


def _matches_any(candidate: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(
        fnmatchcase(candidate, pattern) for pattern in patterns
    )


def _format_price(price_usd: float) -> str:
    return "" if price_usd == math.inf else f"{price_usd:.5f}"
