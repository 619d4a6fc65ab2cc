"""Google Cloud as a cloud on which stacks are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.cloud import JoinedCloud
from stacks.gcp import (
    fabric,
    files,
    fleet,
    identity,
    network,
    observe,
    placement,
    shutdown,
    storage,
)

if TYPE_CHECKING:
    from stacks.cloud import Cloud

CLOUD: Cloud = JoinedCloud(
    name="gcp",
    fleet=fleet,
    shutdown=shutdown,
    parts=(network, fabric, placement, storage, files, identity, observe),
)
