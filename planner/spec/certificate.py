"""Certificates with which the encryption of clients ends: at a balancer, or at the machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts.cloud import clouds
from planner.spec.model import SECRET_SCHEME

if TYPE_CHECKING:
    from planner.spec.model import Spec


class Certificate(Struct, frozen=True):
    """A certificate of a cloud, in one of its regions."""

    cloud: str
    region: str
    id: str


def certificate_of(spec: Spec) -> Certificate | None:
    """Return the certificate of the balancer of a spec; nothing where it has none."""
    endpoint = getattr(spec, "endpoint", None)
    if endpoint is None or endpoint.certificate is None:
        return None
    for cloud, facts in clouds().items():
        found = re.fullmatch(facts.certificate_form, endpoint.certificate)
        if found is not None:
            return Certificate(cloud, found["region"], endpoint.certificate)
    return None


def machine_certificate(spec: Spec) -> str:
    """Return the name of the secret with the certificate of the machines; empty without one."""
    endpoint = getattr(spec, "endpoint", None)
    certificate = (endpoint and endpoint.certificate) or ""
    if not certificate.startswith(SECRET_SCHEME):
        return ""
    return certificate.removeprefix(SECRET_SCHEME)
