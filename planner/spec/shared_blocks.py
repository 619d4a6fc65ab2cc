"""Blocks and fields of several kinds of specs: model, place, purchase, shutdown and header."""

from __future__ import annotations

from typing import Final

from planner.spec import model
from planner.spec.block import CapacityBlock
from planner.spec.field import Block, Choice, Field
from planner.spec.field_table import block_fields

MODEL: Final = Block(
    "model",
    model.ModelSpec,
    block_fields("shared", "model"),
    exclusive_groups=(("name", "params", "config"),),
)
ACCELERATORS: Final = Block(
    "accelerators",
    model.AcceleratorRule,
    block_fields("shared", "accelerators"),
)
PLACEMENT: Final = Block(
    "where",
    model.PlacementRule,
    block_fields("shared", "where", {"accelerators": ACCELERATORS}),
)
CAPACITY_BLOCK: Final = Block(
    "block", CapacityBlock, block_fields("shared", "block")
)
PURCHASE: Final = Block(
    "buy",
    model.PurchaseRule,
    block_fields("shared", "buy", {"block": CAPACITY_BLOCK}),
)
SHUTDOWN: Final = Block(
    "shutdown",
    model.ShutdownRule,
    block_fields("shared", "shutdown"),
)
NETWORK: Final = Block(
    "network",
    model.NetworkRule,
    block_fields("shared", "network"),
)
ENCRYPTION: Final = Block(
    "encryption",
    model.EncryptionRule,
    block_fields("shared", "encryption"),
)
USAGE: Final = Block(
    "usage",
    model.UsageRule,
    block_fields("shared", "usage"),
)
SHARED_FIELDS: Final = block_fields(
    "shared",
    "shared",
    {
        "where": PLACEMENT,
        "buy": PURCHASE,
        "shutdown": SHUTDOWN,
        "network": NETWORK,
        "encryption": ENCRYPTION,
        "usage": USAGE,
    },
)


def header_fields(kind: str) -> tuple[Field, ...]:
    """Return the first fields of a spec: the version of the format, and the kind."""
    return block_fields("shared", "header", {"kind": Choice((kind,))})
