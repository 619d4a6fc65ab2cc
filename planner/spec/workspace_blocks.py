"""Blocks of a workspace: what its machines must hold, or their accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.spec import model, unit
from planner.spec.field import Block, Choice, Field, Quantity
from planner.spec.field_types import RenamedBlock
from planner.spec.shared_blocks import MODEL_TEXT

if TYPE_CHECKING:
    from planner.errors import Place


def _build_fits(place: Place, model_: str, use: str) -> model.FitRequirement:
    return model.FitRequirement(place=place, model=model_, use=use)  # type: ignore[arg-type]


FITS: Final = RenamedBlock(
    Block(
        "fits",
        _build_fits,
        (
            Field("model", MODEL_TEXT, "a known model", required=True),
            Field(
                "for",
                Choice(("inference", "lora", "finetune")),
                "what is done with it",
                required=True,
            ),
        ),
    ),
    {"model": "model_", "for": "use"},
)
WORKSPACE_GPUS: Final = Block(
    "accelerator",
    model.WorkspaceGpus,
    (
        Field(
            "memory",
            Quantity(unit.parse_bytes, "24GiB", minimum=2**30, maximum=2**40),
            "memory of each accelerator",
            required=True,
        ),
        Field(
            "count",
            Quantity(unit.parse_count, "1", minimum=1, maximum=64),
            "accelerators of a machine",
            default=1,
        ),
    ),
)
