"""Price lists of small clouds in the shape that each documents, at the prices of the program.

oci.json    docs.oracle.com, Estimating Costs, Accessing List Pricing; read by the server of
            github.com/oracle/mcp, oci-pricing-mcp-server
vultr.json  vultr.com/api, list-plans, with the public answer of tests of
            github.com/dstackai/gpuhunt
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.facts.price_endpoint import price_endpoints
from providers.live import small_cloud


def price_list(cloud: str) -> dict[str, Any]:
    """Return the answer of a cloud."""
    path = Path(__file__).with_name(f"{cloud}.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def serve_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the price list of each cloud be at a path of a server: /oci, /vultr."""
    endpoints = {
        cloud: replace(endpoint, url=f"{url}/{cloud}?all=1")
        for cloud, endpoint in price_endpoints().items()
    }
    monkeypatch.setattr(small_cloud, "price_endpoints", lambda: endpoints)
