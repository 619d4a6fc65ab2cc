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


def load(path: Path | None = None) -> Catalog:
    """Open the catalog of a manifest, or the embedded one; raises CatalogError at the bad row."""
    texts, sha256, as_of = verified(path or FOLDER / "manifest.json")
    known = _sources(texts["sources.csv"])
    instances, where = _instances(texts["instances.csv"])
    zones = _zones(texts["zones.csv"], known)
    offers = _offers(texts["prices.csv"], instances, zones, (known, where))
    priced = {
        (offer.provider, offer.instance.instance_type) for offer in offers
    }
    return Catalog(
        offers=tuple(o for o in offers if o.purchase in ORDERABLE),
        unlisted=tuple(o for o in offers if o.purchase not in ORDERABLE),
        unpriced=tuple(i for key, i in instances.items() if key not in priced),
        book=_services(texts["services.csv"]),
        sha256=sha256,
        as_of=as_of,
    )


def _sources(text: str) -> dict[str, str]:
    columns = {
        "source": table.text,
        "what": table.text,
        "as_of": table.free,
        "url": table.free,
    }
    return {
        row["source"]: row["what"]
        for row in table.rows(text, "sources.csv", columns)
    }


def _instances(
    text: str,
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
        "network_gbps": lambda c: table.real(0, 100_000)(c or "0"),
        "fabric": table.one_of(*FABRICS),
        "fabric_gbps": table.real(0, 100_000),
        "gpudirect_rdma": table.yes,
        "network_cards": lambda c: table.whole(0, 64)(c or "0"),
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
    found, where = {}, {}
    skipped = ("min_driver", "regions", "source", "as_of")
    for row in table.rows(text, "instances.csv", columns):
        key = (row["provider"], row["instance_type"])
        if key in found:
            table.refuse(row.place, f"{key[1]} is given twice")
        found[key] = Instance(
            **{k: v for k, v in row.cells.items() if k not in skipped}
        )
        where[key] = () if row["regions"] == ("*",) else row["regions"]
    return found, where


def _zones(
    text: str, known: dict[str, str]
) -> dict[tuple[str, str, str], tuple[str, ...]]:
    columns: dict[str, Any] = {
        "provider": table.one_of(*PROVIDERS),
        "region": table.text,
        "instance_type": table.text,
        "zones": table.listed,
        "source": table.one_of(*known),
        "as_of": table.date,
        "confidence": table.CONFIDENCE,
    }
    found = table.rows(text, "zones.csv", columns)
    return {
        (r["provider"], r["region"], r["instance_type"]): r["zones"]
        for r in found
    }


def _offers(
    text: str,
    instances: dict[tuple[str, str], Instance],
    zones: dict[tuple[str, str, str], tuple[str, ...]],
    facts: tuple[dict[str, str], dict[tuple[str, str], tuple[str, ...]]],
) -> list[Offer]:
    """Join prices with machines: a price in a region is no hardware in that region."""
    known, where = facts
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
        "source": table.one_of(*known),
        "confidence": table.CONFIDENCE,
    }
    listed = {(provider, machine) for provider, _, machine in zones}
    found: list[Offer] = []
    rows = list(table.rows(text, "prices.csv", columns))
    demand = {
        (r["provider"], r["instance_type"], r["region"]): r["usd_hour"]
        for r in rows
        if r["purchase"] == "on_demand"
    }
    for row in rows:
        key = (row["provider"], row["instance_type"])
        if key not in instances:
            table.refuse(
                row.place, f"instance_type: no machine is named '{key[1]}'"
            )
        at = (key[0], row["region"])
        everywhere = row["region"] == "*" and row["purchase"] not in ORDERABLE
        located = (
            ()
            if everywhere
            else zones.get((*at, key[1] if key in listed else "*"))
        )
        machine = instances[key]
        sold = {"on_demand": machine.on_demand, "spot": machine.spot}
        soldout = row["purchase"] == "spot" and row["usd_hour"] >= demand.get(
            (*key, row["region"]), row["usd_hour"] + 1
        )
        if (
            located is None
            or soldout
            or not sold.get(row["purchase"], True)
            or (
                where[key]
                and not everywhere
                and row["region"] not in where[key]
            )
        ):
            continue  # not offered there, or a spot price that says "no capacity"
        found.append(
            Offer(
                instance=machine,
                region=row["region"],
                zones=located,
                purchase=row["purchase"]
                if row["scope"] == "machine"
                else "dws_calendar",
                usd_hour=row["usd_hour"],
                basis=row["basis"],
                source=row["source"],
                as_of=row["as_of"],
                confidence=row["confidence"],
            )
        )
    return found


def _services(text: str) -> PriceBook:
    columns: dict[str, Any] = {
        "provider": table.one_of(*PROVIDERS),
        "category": table.text,
        "item": table.text,
        "role": table.free,
        "region": table.text,
        "unit": table.text,
        "usd": lambda c: table.price(c) if float(c) else Decimal(0),
        "from_gb": table.optional(table.decimal),
        "to_gb": table.optional(table.decimal),
        "as_of": table.date,
        "source": table.text,
        "confidence": table.CONFIDENCE,
        "note": table.free,
    }
    prices: dict[tuple[str, str], list[ServicePrice]] = {}
    for row in table.rows(text, "services.csv", columns):
        if row["role"]:
            cells = {
                k: v
                for k, v in row.cells.items()
                if k not in ("category", "note")
            }
            prices.setdefault((row["provider"], row["role"]), []).append(
                ServicePrice(**cells)
            )
    return PriceBook(
        {
            key: tuple(sorted(tiers, key=lambda t: t.from_gb or 0))
            for key, tiers in prices.items()
        }
    )
