"""Price lists of small clouds in the shape that each documents, at the prices of the program."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from planner.facts.price_endpoint import price_endpoints
from providers.live import small_cloud
from tests.providers.shapes import Document, answer_of

# The call in which each tells its prices.
CALLS: Final = {"oci": "oci/products", "vultr": "vultr/list-plans"}


def price_list(cloud: str) -> Document:
    """Return the answer of a cloud."""
    return answer_of(CALLS[cloud])


def serve_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the price list of each cloud be at a path of a server: /oci, /vultr."""
    endpoints = {
        cloud: replace(endpoint, url=f"{url}/{cloud}?all=1")
        for cloud, endpoint in price_endpoints().items()
    }
    monkeypatch.setattr(small_cloud, "price_endpoints", lambda: endpoints)
