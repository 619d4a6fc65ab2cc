"""Opens a catalog: every row of every table is checked, and references between tables hold."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.cost.price import PriceBook, ServicePrice
from planner.facts import table
from planner.facts.accelerator import accelerators
from planner.solve.offer import ORDERABLE, Catalog, Instance, Offer
from providers.catalog.manifest import FOLDER, verified

if TYPE_CHECKING:
    from pathlib import Path

PROVIDERS: Final = ("aws", "azure", "gcp")
PURCHASES: Final = (
    *ORDERABLE,
    "capacity_block",
    "list_unclear",
    "dws_calendar",
)
FABRICS: Final = ("none", "efa", "tcpx", "tcpxo", "roce", "infiniband", "ici")
SCALEUPS: Final = (
    "none",
    "pcie",
    "nvlink",
    "nvlink_pairs",
    "nvswitch",
    "infinity_fabric",
    "ici",
    "neuronlink",
)


def load(manifest_path: Path | None = None) -> Catalog:
    """Open the catalog of a manifest, or the embedded one; raises CatalogError at the bad row."""
    table_texts, manifest_sha256, as_of = verified(
        manifest_path or FOLDER / "manifest.json"
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
            candidate for candidate in offers if candidate.purchase in ORDERABLE
        ),
        unlisted=tuple(
            candidate
            for candidate in offers
            if candidate.purchase not in ORDERABLE
        ),
        unpriced=tuple(
            instance
            for machine_key, instance in instances.items()
            if machine_key not in priced_types
        ),
        price_book=_services(table_texts["services.csv"]),
        sha256=manifest_sha256,
        as_of=as_of,
    )


def _sources(table_text: str) -> dict[str, str]:
    columns = {
        "source": table.text,
        "what": table.text,
        "as_of": table.free,
        "url": table.free,
    }
    return {
        table_row["source"]: table_row["what"]
        for table_row in table.rows(table_text, "sources.csv", columns)
    }


def _instances(
    table_text: str,
) -> tuple[
    dict[tuple[str, str], Instance], dict[tuple[str, str], tuple[str, ...]]
]:
    """Return the machine types, and the regions that each is offered in (empty: where priced)."""
    columns: dict[str, Any] = {
        "provider": table.one_of(*PROVIDERS),
        "instance_type": table.text,
        "family": table.text,
        "accelerator": table.one_of(*accelerators()),
        "accelerators": table.whole(1, 64),
        "fraction": table.real(0.01, 1),
        "memory_gib_each": table.real(0.5, 2000),
        "vcpu": table.whole(1, 1024),
        "ram_gib": table.real(1, 65_536),
        "nvme_gb": table.real(0, 1_000_000),
        "network_gbps": lambda cell_text: table.real(0, 100_000)(
            cell_text or "0"
        ),
        "fabric": table.one_of(*FABRICS),
        "fabric_gbps": table.real(0, 100_000),
        "gpudirect_rdma": table.yes,
        "network_cards": lambda cell_text: table.whole(0, 64)(cell_text or "0"),
        "fabric_interfaces": table.whole(0, 64),
        "scaleup": table.one_of(*SCALEUPS),
        "arch": table.one_of("x86_64", "arm64"),
        "on_demand": table.yes,
        "spot": table.yes,
        "min_driver": table.free,
        "regions": table.listed,
        "confidence": table.CONFIDENCE,
        **table.SOURCED,
    }
    instances, offered_regions = {}, {}
    skipped_columns = ("min_driver", "regions", "source", "as_of")
    for table_row in table.rows(table_text, "instances.csv", columns):
        machine_key = (table_row["provider"], table_row["instance_type"])
        if machine_key in instances:
            table.refuse(table_row.place, f"{machine_key[1]} is given twice")
        instances[machine_key] = Instance(
            **{
                column: cell_value
                for column, cell_value in table_row.cells.items()
                if column not in skipped_columns
            }
        )
        offered_regions[machine_key] = (
            () if table_row["regions"] == ("*",) else table_row["regions"]
        )
    return instances, offered_regions


def _zones(
    table_text: str, sources: dict[str, str]
) -> dict[tuple[str, str, str], tuple[str, ...]]:
    columns: dict[str, Any] = {
        "provider": table.one_of(*PROVIDERS),
        "region": table.text,
        "instance_type": table.text,
        "zones": table.listed,
        "source": table.one_of(*sources),
        "as_of": table.date,
        "confidence": table.CONFIDENCE,
    }
    zone_rows = table.rows(table_text, "zones.csv", columns)
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
    """Join prices with machines: a price in a region is no hardware in that region."""
    sources, offered_regions = references
    columns: dict[str, Any] = {
        "provider": table.one_of(*PROVIDERS),
        "instance_type": table.text,
        "region": table.text,
        "purchase": table.one_of(*PURCHASES),
        "scope": table.one_of("machine", "accelerators_only"),
        "usd_hour": table.price,
        "basis": table.one_of("observed", "derived", "inferred"),
        "usd_min": table.optional(table.price),
        "usd_max": table.optional(table.price),
        "as_of": table.date,
        "source": table.one_of(*sources),
        "confidence": table.CONFIDENCE,
    }
    zoned_types = {
        (provider, instance_type) for provider, _, instance_type in zones
    }
    offers: list[Offer] = []
    price_rows = list(table.rows(table_text, "prices.csv", columns))
    on_demand_usd_hour = {
        (
            price_row["provider"],
            price_row["instance_type"],
            price_row["region"],
        ): price_row["usd_hour"]
        for price_row in price_rows
        if price_row["purchase"] == "on_demand"
    }
    for table_row in price_rows:
        machine_key = (table_row["provider"], table_row["instance_type"])
        if machine_key not in instances:
            table.refuse(
                table_row.place,
                f"instance_type: no machine is named '{machine_key[1]}'",
            )
        region_key = (machine_key[0], table_row["region"])
        any_region = (
            table_row["region"] == "*"
            and table_row["purchase"] not in ORDERABLE
        )
        offer_zones = (
            ()
            if any_region
            else zones.get(
                (
                    *region_key,
                    machine_key[1] if machine_key in zoned_types else "*",
                )
            )
        )
        instance_type = instances[machine_key]
        sold_purchases = {
            "on_demand": instance_type.on_demand,
            "spot": instance_type.spot,
        }
        is_sold_out = table_row["purchase"] == "spot" and table_row[
            "usd_hour"
        ] >= on_demand_usd_hour.get(
            (*machine_key, table_row["region"]), table_row["usd_hour"] + 1
        )
        if (
            offer_zones is None
            or is_sold_out
            or not sold_purchases.get(table_row["purchase"], True)
            or (
                offered_regions[machine_key]
                and not any_region
                and table_row["region"] not in offered_regions[machine_key]
            )
        ):
            continue  # not offered there, or a spot price that says "no capacity"
        offers.append(
            Offer(
                instance=instance_type,
                region=table_row["region"],
                zones=offer_zones,
                purchase=table_row["purchase"]
                if table_row["scope"] == "machine"
                else "dws_calendar",
                usd_hour=table_row["usd_hour"],
                basis=table_row["basis"],
                source=table_row["source"],
                as_of=table_row["as_of"],
                confidence=table_row["confidence"],
            )
        )
    return offers


def _services(table_text: str) -> PriceBook:
    columns: dict[str, Any] = {
        "provider": table.one_of(*PROVIDERS),
        "category": table.text,
        "item": table.text,
        "role": table.free,
        "region": table.text,
        "unit": table.text,
        "usd": lambda cell_text: (
            table.price(cell_text) if float(cell_text) else Decimal(0)
        ),
        "from_gb": table.optional(table.decimal),
        "to_gb": table.optional(table.decimal),
        "as_of": table.date,
        "source": table.text,
        "confidence": table.CONFIDENCE,
        "note": table.free,
    }
    tiers_by_role: dict[tuple[str, str], list[ServicePrice]] = {}
    for table_row in table.rows(table_text, "services.csv", columns):
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
                    price_tiers, key=lambda price_tier: price_tier.from_gb or 0
                )
            )
            for role_key, price_tiers in tiers_by_role.items()
        }
    )
