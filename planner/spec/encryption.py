"""The key of a customer, with which data at rest are encrypted instead of one of the cloud."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.errors import Problem
from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from planner.spec.model import Spec


class CustomerKey(Struct, frozen=True):
    """A key that there is already.

    region  where it is; empty where its name does not say so
    """

    cloud: str
    region: str
    id: str


class StoreKey(Struct, frozen=True):
    """A key of a vault, and the identity with which a storage account uses it."""

    vault: str
    name: str
    identity: str


def store_key(spec: Spec) -> StoreKey | None:
    """Return the key of the storage account; nothing where that of the cloud does."""
    rule = spec.encryption
    if rule is None or not rule.store_key or not rule.store_identity:
        return None
    vault, _, name = rule.store_key.partition("/keys/")
    return StoreKey(vault, name, rule.store_identity)


def customer_key(spec: Spec) -> CustomerKey | None:
    """Return the key of a spec; nothing where the keys of the cloud do."""
    if spec.encryption is None:
        return None
    key = spec.encryption.key
    for cloud, facts in clouds().items():
        found = re.fullmatch(facts.key_form, key)
        if found is not None:
            return CustomerKey(cloud, found.groupdict().get("region", ""), key)
    return None


def encryption_problems(spec: Spec) -> list[Problem]:
    """Return what is wrong of the encryption of a spec: a key is of one region of one cloud."""
    key, rule = customer_key(spec), spec.encryption
    if key is None or rule is None:
        return []
    problems = []
    if not key.region and len(spec.where.regions) != 1:
        problems.append(
            Problem(
                code="encryption",
                message="encryption.key does not say in which region it is",
                cause="disks take a key of their own region alone",
                place=rule.place,
                next_step="write the region of the key: where: {regions: […]}",
            )
        )
    if bool(rule.store_key) != bool(rule.store_identity):
        problems.append(
            Problem(
                code="encryption",
                message="encryption.store_key and store_identity belong together",
                cause="a storage account uses a key as an identity that may",
                place=rule.place,
                next_step="write both, or neither",
            )
        )
    store_form = clouds()[key.cloud].vault_key_form
    if rule.store_key and not re.fullmatch(store_form, rule.store_key):
        problems.append(
            Problem(
                code="encryption",
                message="encryption.store_key is of another cloud than encryption.key",
                cause="the bucket there takes encryption.key itself",
                place=rule.place,
                next_step="remove store_key and store_identity",
            )
        )
    return problems
