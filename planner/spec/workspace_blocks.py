"""Blocks of a workspace: what its machines must hold, or their accelerators."""

from __future__ import annotations

from typing import Final

from planner.spec import model
from planner.spec.field import Block
from planner.spec.field_table import block_fields
from planner.spec.field_types import RenamedBlock

FITS: Final = RenamedBlock(
    Block("fits", model.FitRequirement, block_fields("workspace", "fits")),
    {"for": "use"},
)
WORKSPACE_GPUS: Final = Block(
    "accelerator",
    model.WorkspaceGpus,
    block_fields("workspace", "accelerator"),
)
