"""Certificates with which a balancer ends the encryption of its clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from planner.spec.model import Spec


class Certificate(Struct, frozen=True):
    """A certificate of a cloud, in one of its regions."""

    cloud: str
    region: str
    id: str


def certificate_of(spec: Spec) -> Certificate | None:
    """Return the certificate of the endpoint of a spec; nothing where it has none."""
    endpoint = getattr(spec, "endpoint", None)
    if endpoint is None or endpoint.certificate is None:
        return None
    for cloud, facts in clouds().items():
        found = re.fullmatch(facts.certificate_form, endpoint.certificate)
        if found is not None:
            return Certificate(cloud, found["region"], endpoint.certificate)
    return None
