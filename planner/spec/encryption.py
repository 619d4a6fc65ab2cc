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
    key = customer_key(spec)
    if key is None or spec.encryption is None:
        return []
    if key.region or len(spec.where.regions) == 1:
        return []
    return [
        Problem(
            code="encryption",
            message="encryption.key does not say in which region it is",
            cause="disks take a key of their own region alone",
            place=spec.encryption.place,
            next_step="write the region of the key: where: {regions: […]}",
        )
    ]
