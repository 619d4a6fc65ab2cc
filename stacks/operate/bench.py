"""How far a benchmark is, by what its machine leaves in the bucket of its stack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import obstore
from msgspec import Struct

from stacks.runtime.vm.node.bench import FAILURE, MANIFEST, PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection

    from obstore.store import ObjectStore

    from stacks.operate.bucket import Bucket


class BenchState(Struct, frozen=True, kw_only=True):
    """What has come since the last look.

    results  what the client measured under a load, by name
    failure  why a load cannot be measured; empty while nothing says so
    is_over  whether nothing comes any more
    """

    results: dict[str, bytes]
    failure: str = ""
    is_over: bool = False


def bench_state(bucket: Bucket, known: Collection[str]) -> BenchState:
    """Return how far a benchmark is; results of `known` names are not read again.

    Raises the errors of the bucket.
    """
    store = bucket.folder(PREFIX)
    manifest, failure = (
        key.removeprefix(PREFIX) for key in (MANIFEST, FAILURE)
    )
    with bucket.errors():
        names = sorted(
            meta["path"] for page in obstore.list(store) for meta in page
        )
        return BenchState(
            results={
                name: _read(store, name)
                for name in names
                if name not in (manifest, failure) and name not in known
            },
            failure=_failure(_read(store, failure)) if failure in names else "",
            is_over=manifest in names,
        )


def _read(store: ObjectStore, name: str) -> bytes:
    return bytes(obstore.get(store, name).bytes())


def _failure(record: bytes) -> str:
    """Return what a machine has left of a load that it could not measure."""
    try:
        document = json.loads(record)
        return f"{document['name']}: {document['reason']}"
    except (ValueError, LookupError, TypeError):
        return "a load could not be measured"
