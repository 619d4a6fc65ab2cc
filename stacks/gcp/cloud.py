"""Google Cloud as a cloud on which stacks are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.cloud import JoinedCloud
from stacks.gcp import (
    alarm,
    dashboard,
    fabric,
    files,
    fleet,
    home,
    identity,
    network,
    observe,
    placement,
    shutdown,
    storage,
    watch,
)
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from stacks.cloud import Cloud

CLOUD: Cloud = JoinedCloud(
    name="gcp",
    user_data_bytes=int(
        lookup_table("limits.csv", "limit", "value")["gcp_user_data_bytes"]
    ),
    fleet=fleet,
    shutdown=shutdown,
    parts=(
        network,
        fabric,
        placement,
        storage,
        files,
        identity,
        observe,
        watch,
        alarm,
        dashboard,
        home,
    ),
)
