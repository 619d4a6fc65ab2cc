"""A catalog as it was read, kept for the next start.

Reading and checking thousands of rows of text takes longer than the search of a small fleet. What
was read is written into a folder once for each catalog and version of the program. The text stays
the truth: a file that is missing, damaged or of another catalog is not used.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError, Struct, msgpack

from planner.cost import service_price
from planner.cost.service_price import PriceBook, ServicePrice
from planner.facts import accelerator, small_cloud, table
from planner.facts.small_cloud import (
    SmallCloudMachine,  # noqa: TC001 - msgspec reads the annotations
)
from planner.market import catalog_source, price_age
from planner.market import offer as offer_module
from planner.market.catalog_source import (
    CatalogSource,  # noqa: TC001 - msgspec reads the annotations
)
from planner.market.offer import (
    Catalog,
    Instance,
    Offer,
    OldPrice,
    PriceRange,
    ReclaimBand,
)
from planner.version import VERSION
from providers.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DIGEST_BYTES: Final = hashlib.sha256().digest_size


class _CompiledOffer(Struct, frozen=True, array_like=True, gc=False):
    """An offer without what it shares with the others of its place."""

    purchase: str
    usd_hour: Decimal
    basis: str
    source: str
    as_of: str
    confidence: str
    old_price: OldPrice | None
    price_range: PriceRange | None
    reclaim_band: ReclaimBand | None
    form: str


class _CompiledPlace(Struct, frozen=True, array_like=True, gc=False):
    """Offers of a machine type, given by its number among all of them, in a region."""

    instance: int
    region: str
    zones: tuple[str, ...]
    offers: tuple[_CompiledOffer, ...]


class _CompiledCatalog(Struct, frozen=True, array_like=True):
    """A catalog without repetition. `unpriced` are places of machine types."""

    sha256: str
    as_of: str
    instances: tuple[Instance, ...]
    offers: tuple[_CompiledPlace, ...]
    unlisted: tuple[_CompiledPlace, ...]
    unpriced: tuple[int, ...]
    prices: tuple[tuple[str, str, tuple[ServicePrice, ...]], ...]
    small_machines: tuple[SmallCloudMachine, ...] | None
    sources: tuple[CatalogSource, ...]


def read_compiled(folder: Path, manifest_sha256: str) -> Catalog | None:
    """Return the catalog of a manifest as it was written; nothing when it has to be read anew."""
    try:
        file_bytes = _compiled_path(folder, manifest_sha256).read_bytes()
    except OSError:
        return None
    digest, payload = file_bytes[:DIGEST_BYTES], file_bytes[DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    try:
        compiled = msgpack.decode(payload, type=_CompiledCatalog)
    except MsgspecError:
        return None
    if compiled.sha256 != manifest_sha256:
        return None
    return Catalog(
        offers=_unpack(compiled.offers, compiled.instances),
        unlisted=_unpack(compiled.unlisted, compiled.instances),
        unpriced=tuple(
            compiled.instances[place] for place in compiled.unpriced
        ),
        price_book=PriceBook(
            {
                (provider, role): tiers
                for provider, role, tiers in compiled.prices
            }
        ),
        sha256=compiled.sha256,
        as_of=compiled.as_of,
        small_machines=compiled.small_machines,
        sources=compiled.sources,
    )


def write_compiled(folder: Path, catalog: Catalog) -> None:
    """Keep a catalog for the next start. A folder that cannot be written is no error."""
    instances: dict[tuple[str, str], Instance] = {
        (instance.provider, instance.instance_type): instance
        for instance in (
            *(each.instance for each in (*catalog.offers, *catalog.unlisted)),
            *catalog.unpriced,
        )
    }
    places = {key: place for place, key in enumerate(instances)}
    payload = msgpack.encode(
        _CompiledCatalog(
            sha256=catalog.sha256,
            as_of=catalog.as_of,
            instances=tuple(instances.values()),
            offers=_pack(catalog.offers, places),
            unlisted=_pack(catalog.unlisted, places),
            unpriced=tuple(
                places[instance.provider, instance.instance_type]
                for instance in catalog.unpriced
            ),
            prices=tuple(
                (provider, role, tiers)
                for (provider, role), tiers in catalog.price_book.prices.items()
            ),
            small_machines=catalog.small_machines,
            sources=catalog.sources,
        )
    )
    with suppress(OSError):
        write_atomically(
            _compiled_path(folder, catalog.sha256),
            hashlib.sha256(payload).digest() + payload,
        )


def _pack(
    offers: Iterable[Offer], places: Mapping[tuple[str, str], int]
) -> tuple[_CompiledPlace, ...]:
    """Return offers as those of places: neighbours in the table share one."""
    return tuple(
        _CompiledPlace(
            places[cloud, machine_type],
            region,
            zones,
            tuple(
                _CompiledOffer(
                    offer.purchase,
                    offer.usd_hour,
                    offer.basis,
                    offer.source,
                    offer.as_of,
                    offer.confidence,
                    offer.old_price,
                    offer.price_range,
                    offer.reclaim_band,
                    offer.form,
                )
                for offer in here
            ),
        )
        for (cloud, machine_type, region, zones), here in groupby(
            offers, key=lambda offer: (*offer.key[:3], offer.zones)
        )
    )


def _unpack(
    compiled_places: Iterable[_CompiledPlace], instances: tuple[Instance, ...]
) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            instance=instances[place.instance],
            region=place.region,
            zones=place.zones,
            purchase=compiled.purchase,
            usd_hour=compiled.usd_hour,
            basis=compiled.basis,
            source=compiled.source,
            as_of=compiled.as_of,
            confidence=compiled.confidence,
            old_price=compiled.old_price,
            price_range=compiled.price_range,
            reclaim_band=compiled.reclaim_band,
            form=compiled.form,
        )
        for place in compiled_places
        for compiled in place.offers
    )


def _compiled_path(folder: Path, manifest_sha256: str) -> Path:
    name_seed = f"{manifest_sha256} {VERSION} {_reader_digest()}"
    name = hashlib.sha256(name_seed.encode()).hexdigest()[:32]
    return folder / f"catalog-{name}.msgpack"


@cache
def _reader_digest() -> str:
    """A digest of all that decides what is read from the text, and of how it is kept."""
    digest = hashlib.sha256()
    for path in (
        Path(__file__),
        Path(__file__).with_name("load.py"),
        Path(table.__file__),
        Path(accelerator.__file__).parent / "data" / "accelerators.csv",
        Path(accelerator.__file__).parent / "data" / "commitment_sources.csv",
        Path(offer_module.__file__),
        Path(catalog_source.__file__),
        Path(price_age.__file__),
        Path(small_cloud.__file__),
        Path(service_price.__file__),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()
