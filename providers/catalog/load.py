"""Load a catalog; every row and every reference between tables is checked."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.service_price import PriceBook, ServicePrice
from planner.facts import table
from planner.facts.accelerator import accelerators
from planner.facts.cloud import clouds
from planner.market.offer import ORDERABLE_PURCHASES, Catalog, Instance, Offer
from providers.catalog.manifest import CATALOG_FOLDER, verify_manifest

if TYPE_CHECKING:
    from pathlib import Path

PURCHASES: Final = (
    *ORDERABLE_PURCHASES,
    "capacity_block",
    "list_unclear",
    "dws_calendar",
)
INFINITE_USD: Final = Decimal("inf")
FABRICS: Final = ("none", "efa", "tcpx", "tcpxo", "roce", "infiniband", "ici")
SCALE_UP_LINKS: Final = (
    "none",
    "pcie",
    "nvlink",
    "nvlink_pairs",
    "nvswitch",
    "infinity_fabric",
    "ici",
    "neuronlink",
)


def load_catalog(manifest_path: Path | None = None) -> Catalog:
    """Return the catalog of a manifest, or the embedded one.

    Raises CatalogError with the position of the first invalid row.
    """
    table_texts, manifest_sha256, as_of = verify_manifest(
        manifest_path or CATALOG_FOLDER / "manifest.json"
    )
    sources = _sources(table_texts["sources.csv"])
    instances, offered_regions = _instances(table_texts["instances.csv"])
    zones = _zones(table_texts["zones.csv"], sources)
    offers = _offers(
        table_texts["prices.csv"], instances, zones, (sources, offered_regions)
    )
    priced_types = {
        (offer.provider, offer.instance.instance_type) for offer in offers
    }
    return Catalog(
        offers=tuple(
            candidate
            for candidate in offers
            # Plans use only prices at which a machine can be ordered.
            if candidate.purchase in ORDERABLE_PURCHASES
        ),
        unlisted=tuple(
            candidate
            for candidate in offers
            if candidate.purchase not in ORDERABLE_PURCHASES
        ),
        unpriced=tuple(
            instance
            for machine_key, instance in instances.items()
            # Machine types without any price are named, not planned with.
            if machine_key not in priced_types
        ),
        price_book=_price_book(table_texts["services.csv"]),
        sha256=manifest_sha256,
        as_of=as_of,
    )


def _sources(table_text: str) -> dict[str, str]:
    columns = {
        "source": table.nonempty_text,
        "what": table.nonempty_text,
        "as_of": table.any_text,
        "url": table.any_text,
    }
    return {
        table_row["source"]: table_row["what"]
        for table_row in table.read_rows(table_text, "sources.csv", columns)
    }


def _instances(
    table_text: str,
) -> tuple[
    dict[tuple[str, str], Instance], dict[tuple[str, str], tuple[str, ...]]
]:
    """Return machine types, and the regions in which each is offered.

    Both by provider and machine type. No regions means every region with a price.
    """
    columns: table.Columns = {
        "provider": table.one_of(*clouds()),
        "instance_type": table.nonempty_text,
        "family": table.nonempty_text,
        "accelerator": table.one_of(*accelerators()),
        "accelerators": table.integer_between(1, 64),
        "fraction": table.real_between(0.01, 1),
        "memory_gib_each": table.real_between(0.5, 2000),
        "vcpu": table.integer_between(1, 1024),
        "ram_gib": table.real_between(1, 65_536),
        "nvme_gb": table.real_between(0, 1_000_000),
        "network_gbps": lambda cell_text: table.real_between(0, 100_000)(
            cell_text or "0"
        ),
        "fabric": table.one_of(*FABRICS),
        "fabric_gbps": table.real_between(0, 100_000),
        "gpudirect_rdma": table.yes_or_no,
        "network_cards": lambda cell_text: table.integer_between(0, 64)(
            cell_text or "0"
        ),
        "fabric_interfaces": table.integer_between(0, 64),
        "scaleup": table.one_of(*SCALE_UP_LINKS),
        "arch": table.one_of("x86_64", "arm64"),
        "on_demand": table.yes_or_no,
        "spot": table.yes_or_no,
        "min_driver": table.any_text,
        "regions": table.word_list,
        "confidence": table.CONFIDENCE_LEVEL,
        **table.SOURCE_COLUMNS,
    }
    instances = {}
    offered_regions = {}
    skipped_columns = ("min_driver", "regions", "source", "as_of")
    for table_row in table.read_rows(table_text, "instances.csv", columns):
        machine_key = (table_row["provider"], table_row["instance_type"])
        if machine_key in instances:
            table.refuse_row(
                table_row.place, f"{machine_key[1]} is given twice"
            )
        instances[machine_key] = Instance(
            **{
                column: cell_value
                for column, cell_value in table_row.cells.items()
                if column not in skipped_columns
            }
        )
        offered_regions[machine_key] = (
            # A star means every region that has a price.
            () if table_row["regions"] == ("*",) else table_row["regions"]
        )
    return instances, offered_regions


def _zones(
    table_text: str, sources: dict[str, str]
) -> dict[tuple[str, str, str], tuple[str, ...]]:
    columns: table.Columns = {
        "provider": table.one_of(*clouds()),
        "region": table.nonempty_text,
        "instance_type": table.nonempty_text,
        "zones": table.word_list,
        "source": table.one_of(*sources),
        "as_of": table.partial_date,
        "confidence": table.CONFIDENCE_LEVEL,
    }
    zone_rows = table.read_rows(table_text, "zones.csv", columns)
    return {
        (
            zone_row["provider"],
            zone_row["region"],
            zone_row["instance_type"],
        ): zone_row["zones"]
        for zone_row in zone_rows
    }


def _offers(
    table_text: str,
    instances: dict[tuple[str, str], Instance],
    zones: dict[tuple[str, str, str], tuple[str, ...]],
    references: tuple[dict[str, str], dict[tuple[str, str], tuple[str, ...]]],
) -> list[Offer]:
    """Return the offers: prices joined with machine types and zones.

    A price alone does not prove that a region has the hardware. A price is skipped without
    zones or outside of the regions of the machine type.
    """
    sources, offered_regions = references
    columns: table.Columns = {
        "provider": table.one_of(*clouds()),
        "instance_type": table.nonempty_text,
        "region": table.nonempty_text,
        "purchase": table.one_of(*PURCHASES),
        "scope": table.one_of("machine", "accelerators_only"),
        "usd_hour": table.usd_price,
        "basis": table.one_of("observed", "derived", "inferred"),
        "usd_min": table.optional(table.usd_price),
        "usd_max": table.optional(table.usd_price),
        "as_of": table.partial_date,
        "source": table.one_of(*sources),
        "confidence": table.CONFIDENCE_LEVEL,
    }
    # Machine types with zone rows of their own; * serves the others.
    zoned_types = {
        (provider, instance_type) for provider, _, instance_type in zones
    }
    offers: list[Offer] = []
    price_rows = list(table.read_rows(table_text, "prices.csv", columns))
    on_demand_usd_hour = {
        (cells["provider"], cells["instance_type"], cells["region"]): cells[
            "usd_hour"
        ]
        for cells in (price_row.cells for price_row in price_rows)
        if cells["purchase"] == "on_demand"
    }
    for price_row in price_rows:
        cells = price_row.cells
        provider, region = cells["provider"], cells["region"]
        purchase = cells["purchase"]
        machine_key = (provider, cells["instance_type"])
        if machine_key not in instances:
            table.refuse_row(
                price_row.place,
                f"instance_type: no machine is named '{machine_key[1]}'",
            )
        # Quoted prices of blocks may apply to every region.
        any_region = region == "*" and purchase not in ORDERABLE_PURCHASES
        zoned_type = machine_key[1] if machine_key in zoned_types else "*"
        offer_zones = (
            () if any_region else zones.get((provider, region, zoned_type))
        )
        instance_type = instances[machine_key]
        if (
            offer_zones is None
            or (purchase == "on_demand" and not instance_type.on_demand)
            or (purchase == "spot" and not instance_type.spot)
            or (
                offered_regions[machine_key]
                and not any_region
                and region not in offered_regions[machine_key]
            )
        ):
            continue  # not offered there
        if purchase == "spot" and cells["usd_hour"] >= on_demand_usd_hour.get(
            (*machine_key, region), INFINITE_USD
        ):
            continue  # a spot price at or above on demand: there is no capacity
        offers.append(
            Offer(
                instance=instance_type,
                region=region,
                zones=offer_zones,
                # A price of accelerators alone cannot be ordered.
                purchase=purchase
                if cells["scope"] == "machine"
                else "dws_calendar",
                usd_hour=cells["usd_hour"],
                basis=cells["basis"],
                source=cells["source"],
                as_of=cells["as_of"],
                confidence=cells["confidence"],
            )
        )
    return offers


def _price_book(table_text: str) -> PriceBook:
    columns: table.Columns = {
        "provider": table.one_of(*clouds()),
        "category": table.nonempty_text,
        "item": table.nonempty_text,
        "role": table.any_text,
        "region": table.nonempty_text,
        "unit": table.nonempty_text,
        "usd": lambda cell_text: (
            # Services may be free, machines may not.
            table.usd_price(cell_text) if float(cell_text) else Decimal(0)
        ),
        "from_gb": table.optional(table.finite_decimal),
        "to_gb": table.optional(table.finite_decimal),
        "as_of": table.partial_date,
        "source": table.nonempty_text,
        "confidence": table.CONFIDENCE_LEVEL,
        "note": table.any_text,
    }
    tiers_by_role: dict[tuple[str, str], list[ServicePrice]] = {}
    for table_row in table.read_rows(table_text, "services.csv", columns):
        if table_row["role"]:
            cells = {
                column: cell_value
                for column, cell_value in table_row.cells.items()
                if column not in ("category", "note")
            }
            tiers_by_role.setdefault(
                (table_row["provider"], table_row["role"]), []
            ).append(ServicePrice(**cells))
    return PriceBook(
        {
            role_key: tuple(
                sorted(
                    # Volume tiers in the order of their lower limit.
                    price_tiers,
                    key=lambda price_tier: price_tier.from_gb or 0,
                )
            )
            for role_key, price_tiers in tiers_by_role.items()
        }
    )
