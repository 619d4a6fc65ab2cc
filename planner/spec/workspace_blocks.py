"""Blocks of a workspace: what its machines must hold, or their accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.spec import model
from planner.spec.field import Block
from planner.spec.field_table import block_fields
from planner.spec.field_types import RenamedBlock

if TYPE_CHECKING:
    from planner.errors import Place


def _build_fits(place: Place, model_: str, use: str) -> model.FitRequirement:
    return model.FitRequirement(place=place, model=model_, use=use)  # type: ignore[arg-type]


FITS: Final = RenamedBlock(
    Block("fits", _build_fits, block_fields("workspace", "fits")),
    {"model": "model_", "for": "use"},
)
WORKSPACE_GPUS: Final = Block(
    "accelerator",
    model.WorkspaceGpus,
    block_fields("workspace", "accelerator"),
)
