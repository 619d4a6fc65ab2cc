"""Microsoft Azure as a cloud on which stacks are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure import (
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
from stacks.cloud import JoinedCloud
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from stacks.cloud import Cloud

CLOUD: Cloud = JoinedCloud(
    name="azure",
    user_data_bytes=int(
        lookup_table("limits.csv", "limit", "value")["azure_user_data_bytes"]
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
