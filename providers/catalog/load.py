"""Load a catalog; every row and every reference between tables is checked."""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.cost.service_price import PriceBook, ServicePrice
from planner.facts import table
from planner.facts.accelerator import accelerators
from planner.facts.cloud import clouds
from planner.facts.commitment import forms_of_sources
from planner.facts.small_cloud import SMALL_CLOUD_FILE, read_small_clouds
from planner.market.catalog_source import CatalogSource
from planner.market.offer import (
    ORDERABLE_PURCHASES,
    Catalog,
    Instance,
    Offer,
    PriceRange,
    ReclaimBand,
)
from planner.market.price_age import mark_old_prices
from planner.market.term import TERM_PURCHASES
from providers.catalog import compiled
from providers.catalog.manifest import CATALOG_FOLDER, verify_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PURCHASES: Final = (
    *ORDERABLE_PURCHASES,
    "capacity_block",
    "list_unclear",
    "dws_calendar",
    "flex_start",
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


class SnapshotPrices(Struct, frozen=True):
    """The prices of a manifest's tables, or of the embedded ones.

    `cache_folder` holds what was read of them at an earlier start; None keeps nothing.
    """

    manifest_path: Path | None = None
    cache_folder: Path | None = None

    def catalog(self) -> Catalog:
        """Return the catalog; raises CatalogError with the position of the first invalid row."""
        table_texts, manifest_sha256, as_of = verify_manifest(
            self.manifest_path or CATALOG_FOLDER / "manifest.json"
        )
        if self.cache_folder is None:
            return _read_tables(table_texts, manifest_sha256, as_of)
        catalog = compiled.read_compiled(self.cache_folder, manifest_sha256)
        if catalog is None:
            catalog = _read_tables(table_texts, manifest_sha256, as_of)
            compiled.write_compiled(self.cache_folder, catalog)
        return catalog


def load_catalog(manifest_path: Path | None = None) -> Catalog:
    """Return the catalog of a manifest, or the embedded one, as its text says.

    Raises CatalogError with the position of the first invalid row.
    """
    return SnapshotPrices(manifest_path).catalog()


def _read_tables(
    table_texts: Mapping[str, str], manifest_sha256: str, as_of: str
) -> Catalog:
    sources = _sources(table_texts["sources.csv"])
    instances, offered_regions = _instances(table_texts["instances.csv"])
    zones = _zones(table_texts["zones.csv"], sources)
    offers = mark_old_prices(
        _offers(
            table.read_rows(
                table_texts["prices.csv"],
                "prices.csv",
                _price_columns(sources, as_of),
            ),
            _MachineSupply(
                instances,
                offered_regions,
                zones,
                _reclaim_bands(table_texts["reclaims.csv"], sources),
            ),
        ),
        as_of,
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
        price_book=_price_book(table_texts["services.csv"], as_of),
        sha256=manifest_sha256,
        as_of=as_of,
        small_machines=read_small_clouds(table_texts[SMALL_CLOUD_FILE])
        if SMALL_CLOUD_FILE in table_texts
        else None,
        sources=tuple(sources.values()),
    )


def _sources(table_text: str) -> dict[str, CatalogSource]:
    columns = {
        "source": table.nonempty_text,
        "what": table.nonempty_text,
        "as_of": table.any_text,
        "url": table.any_text,
    }
    return {
        table_row["source"]: CatalogSource(
            name=table_row["source"],
            what=table_row["what"],
            as_of=table_row["as_of"],
            url=table_row["url"],
        )
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
    instances = {}
    offered_regions = {}
    skipped_columns = ("min_driver", "regions", "source", "as_of")
    for table_row in table.read_rows(
        table_text, "instances.csv", _instance_columns()
    ):
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


def _instance_columns() -> table.Columns:
    """Return the columns of the table of machine types, each with its converter."""
    return {
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


def _zones(
    table_text: str, sources: Mapping[str, CatalogSource]
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


def _reclaim_bands(
    table_text: str, sources: Mapping[str, CatalogSource]
) -> dict[tuple[str, str, str], ReclaimBand]:
    """Return the bands of reclaims by provider, machine type and region."""
    share_type = table.real_between(0, 1)
    columns: table.Columns = {
        "provider": table.one_of(*clouds()),
        "instance_type": table.nonempty_text,
        "region": table.nonempty_text,
        "low_share": share_type,
        "high_share": share_type,
        "source": table.one_of(*sources),
        "as_of": table.partial_date,
        "confidence": table.CONFIDENCE_LEVEL,
    }
    return {
        _price_key(band_row.cells): ReclaimBand(
            band_row["low_share"], band_row["high_share"], band_row["as_of"]
        )
        for band_row in table.read_rows(table_text, "reclaims.csv", columns)
    }


class _MachineSupply(Struct, frozen=True, dict=True):
    """Machine types, and where each is offered.

    `instances`  by provider and machine type
    `offered_regions`  regions by provider and machine type; () means every region with a price
    `zones`  by provider, region and machine type, which is * for types without rows of their own
    `reclaim_bands`  of machines on spot, by provider, machine type and region
    """

    instances: Mapping[tuple[str, str], Instance]
    offered_regions: Mapping[tuple[str, str], tuple[str, ...]]
    zones: Mapping[tuple[str, str, str], tuple[str, ...]]
    reclaim_bands: Mapping[tuple[str, str, str], ReclaimBand]

    @cached_property
    def zoned_types(self) -> set[tuple[str, str]]:
        """Machine types with zone rows of their own; * serves the others."""
        return {
            (provider, instance_type)
            for provider, _, instance_type in self.zones
        }

    def priced_instance(self, price_row: table.TableRow) -> Instance:
        """Return the machine type of a price; raises CatalogError for an unknown one."""
        machine_key = (price_row["provider"], price_row["instance_type"])
        if machine_key not in self.instances:
            table.refuse_row(
                price_row.place,
                f"instance_type: no machine is named '{machine_key[1]}'",
            )
        return self.instances[machine_key]

    def offer_zones(self, cells: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the zones of a price, () for every region; None where it is not offered."""
        provider, region = cells["provider"], cells["region"]
        # Quoted prices of blocks may apply to every region.
        if region == "*" and cells["purchase"] not in ORDERABLE_PURCHASES:
            return ()
        machine_key = (provider, cells["instance_type"])
        offered_regions = self.offered_regions[machine_key]
        if offered_regions and region not in offered_regions:
            return None
        zoned_type = machine_key[1] if machine_key in self.zoned_types else "*"
        return self.zones.get((provider, region, zoned_type))


def _offers(
    rows: Iterable[table.TableRow], machine_supply: _MachineSupply
) -> list[Offer]:
    """Return the offers: prices joined with machine types and zones.

    A price alone does not prove that a region has the hardware. A price is skipped without
    zones or outside of the regions of the machine type.
    """
    price_rows = list(rows)
    on_demand_usd_hour = _on_demand_prices(price_rows)
    offers: list[Offer] = []
    for price_row in price_rows:
        cells = price_row.cells
        purchase = cells["purchase"]
        instance = machine_supply.priced_instance(price_row)
        offer_zones = machine_supply.offer_zones(cells)
        if offer_zones is None or not _is_sold(instance, purchase):
            continue  # not offered there
        if purchase == "spot" and _reaches_on_demand(cells, on_demand_usd_hour):
            continue  # a spot price at or above on demand: there is no capacity
        offers.append(
            Offer(
                instance=instance,
                region=cells["region"],
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
                price_range=_price_range(cells),
                reclaim_band=machine_supply.reclaim_bands.get(_price_key(cells))
                if purchase == "spot"
                else None,
                form=forms_of_sources().get(cells["source"], "")
                if purchase in TERM_PURCHASES
                else "",
            )
        )
    return offers


def _price_columns(
    sources: Mapping[str, CatalogSource], today: str
) -> table.Columns:
    """Return the columns of the table of prices, each with its converter.

    No price is of a day after `today`, the date of the catalog: it would never grow old.
    """
    return {
        "provider": table.one_of(*clouds()),
        "instance_type": table.nonempty_text,
        "region": table.nonempty_text,
        "purchase": table.one_of(*PURCHASES),
        "scope": table.one_of("machine", "accelerators_only"),
        "usd_hour": table.usd_price,
        "basis": table.one_of("observed", "derived", "inferred"),
        "usd_min": table.optional(table.usd_price),
        "usd_max": table.optional(table.usd_price),
        "as_of": table.date_until(today),
        "source": table.one_of(*sources),
        "confidence": table.CONFIDENCE_LEVEL,
    }


def _on_demand_prices(
    price_rows: Iterable[table.TableRow],
) -> dict[tuple[str, str, str], Decimal]:
    """Return USD an hour on demand, by provider, machine type and region."""
    return {
        _price_key(price_row.cells): price_row["usd_hour"]
        for price_row in price_rows
        if price_row["purchase"] == "on_demand"
    }


def _price_key(cells: dict[str, Any]) -> tuple[str, str, str]:
    return cells["provider"], cells["instance_type"], cells["region"]


def _reaches_on_demand(
    cells: dict[str, Any],
    on_demand_usd_hour: Mapping[tuple[str, str, str], Decimal],
) -> bool:
    usd_hour: Decimal = cells["usd_hour"]
    return usd_hour >= on_demand_usd_hour.get(_price_key(cells), INFINITE_USD)


def _price_range(cells: dict[str, Any]) -> PriceRange | None:
    """Return what a price was seen to range over, where that is wider than the price."""
    low_usd, high_usd = cells["usd_min"], cells["usd_max"]
    if low_usd is None or high_usd is None or low_usd == high_usd:
        return None
    return PriceRange(min(low_usd, cells["usd_hour"]), high_usd)


def _is_sold(instance: Instance, purchase: str) -> bool:
    """Return whether a machine type is sold in this way at all."""
    if purchase == "on_demand":
        return instance.on_demand
    return purchase != "spot" or instance.spot


def _price_book(table_text: str, today: str) -> PriceBook:
    columns: table.Columns = {
        "provider": table.one_of(*clouds()),
        "category": table.nonempty_text,
        "item": table.nonempty_text,
        "role": table.any_text,
        "region": table.nonempty_text,
        "unit": table.nonempty_text,
        "usd": lambda cell_text: (
            # Services may be free, machines may not.
            table.usd_price(cell_text) if Decimal(cell_text) else Decimal(0)
        ),
        "from_gb": table.optional(table.finite_decimal),
        "to_gb": table.optional(table.finite_decimal),
        "as_of": table.date_until(today),
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
