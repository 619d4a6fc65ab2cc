"""Blocks and fields of several kinds of specs: model, place, purchase, shutdown and header."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from planner.facts.cloud import clouds
from planner.spec import model, unit
from planner.spec.field import (
    Block,
    Choice,
    Field,
    LabelTable,
    ListOf,
    Quantity,
    TextPattern,
)
from planner.spec.field_types import CloudName, ScheduleType

NAME_TEXT: Final = TextPattern(
    r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
    "a name of a-z, 0-9 and -, at most 40 characters",
    40,
)
GLOB_TEXT: Final = TextPattern(
    r"[A-Za-z0-9*?._-]+", "a name or a pattern with *"
)
FILE_TEXT: Final = TextPattern(
    r"(?!/)(?!.*\.\.)[A-Za-z0-9_./ -]+", "a path beside the spec, without .."
)
MODEL_TEXT: Final = TextPattern(r"[A-Za-z0-9][A-Za-z0-9._/-]*", "a model name")
PRECISIONS: Final = ("auto", "bf16", "fp8", "int8", "int4", "fp4", "mxfp4")

MODEL: Final = Block(
    "model",
    model.ModelSpec,
    (
        Field(
            "name",
            MODEL_TEXT,
            "a known model; `tonnage models` lists them",
        ),
        Field(
            "params",
            Quantity(unit.parse_count, "70B", minimum=10**6, maximum=10**14),
            "only a size: a dense architecture is assumed, and said so",
        ),
        Field(
            "config", FILE_TEXT, "a Hugging Face config.json beside the spec"
        ),
        Field(
            "precision",
            ListOf(Choice(PRECISIONS), allows_single=True),
            (
                "allowed weight precisions; auto takes the released one, and fp8 where the "
                "accelerator has it"
            ),
            default=("auto",),
        ),
        Field(
            "kv_precision",
            Choice(("auto", "bf16", "fp8")),
            "precision of the KV cache; auto is bf16",
            default="auto",
        ),
        Field(
            "context",
            Quantity(unit.parse_context, "8k", minimum=16, maximum=2**24),
            (
                "longest sequence that must fit, in tokens (k is 1024); the default is what "
                "the traffic needs"
            ),
        ),
    ),
    doc="what is served",
    exclusive_groups=(("name", "params", "config"),),
)

PLACEMENT: Final = Block(
    "where",
    model.PlacementRule,
    (
        Field(
            "clouds",
            ListOf(CloudName(), allows_single=True),
            "clouds that may be used",
            default=lambda: tuple(clouds()),
        ),
        Field(
            "regions",
            ListOf(GLOB_TEXT, allows_single=True),
            "regions that may be used, with * as wildcard; all when empty",
            default=(),
        ),
        Field(
            "accelerators",
            Block(
                "accelerators",
                model.AcceleratorRule,
                (
                    Field(
                        "allow",
                        ListOf(GLOB_TEXT, allows_single=True),
                        "only these accelerators",
                        default=(),
                    ),
                    Field(
                        "deny",
                        ListOf(GLOB_TEXT, allows_single=True),
                        "never these accelerators",
                        default=(),
                    ),
                ),
            ),
            "accelerators that may or may not be used",
            default=model.AcceleratorRule(),
        ),
    ),
    doc="where it may run",
)
PURCHASE: Final = Block(
    "buy",
    model.PurchaseRule,
    (
        Field(
            "spot",
            Choice(("auto", "never", "only")),
            (
                "auto uses spot where an interruption loses no promise: batch yes, services "
                "and workspaces no"
            ),
            default="auto",
        ),
        Field(
            "commit",
            ListOf(Choice(("none", "1y", "3y")), allows_single=True),
            "commitments that may be bought",
            default=("none",),
        ),
        Field(
            "budget",
            Quantity(
                unit.parse_spending,
                "60000/month",
                minimum=Decimal(1),
                maximum=10**10,
            ),
            "most that it may cost: infeasible above it",
        ),
    ),
    doc="how capacity may be bought",
)
SHUTDOWN: Final = Block(
    "shutdown",
    model.ShutdownRule,
    (
        Field(
            "idle",
            Quantity(
                unit.parse_seconds, "30m", minimum=300, maximum=30 * 86400
            ),
            "give the machine back after this long without GPU work",
        ),
        Field(
            "ttl",
            Quantity(
                unit.parse_seconds, "72h", minimum=600, maximum=120 * 86400
            ),
            "hard deadline after creation, even when busy",
        ),
        Field(
            "schedule",
            ScheduleType(),
            "hours in which it runs; outside them it is given back",
        ),
    ),
    doc="when capacity is given back",
)

SHARED_FIELDS: Final = (
    Field(
        "name",
        NAME_TEXT,
        "names the stack and every resource in it",
        required=True,
    ),
    Field(
        "labels",
        LabelTable(
            TextPattern(
                r"[a-z][a-z0-9_-]{0,30}", "a key of a-z, 0-9, _ and -", 31
            ),
            TextPattern(
                r"[A-Za-z0-9_.@ -]{0,63}", "letters, digits and . _ @ -", 63
            ),
        ),
        "become tags on every resource",
        default={},
    ),
    Field("where", PLACEMENT, "where it may run", default=model.PlacementRule),
    Field(
        "buy",
        PURCHASE,
        "how capacity may be bought",
        default=model.PurchaseRule(),
    ),
    Field(
        "shutdown",
        SHUTDOWN,
        "when capacity is given back",
        default=model.ShutdownRule(),
    ),
    Field(
        "runtime",
        Choice(("vm", "kubernetes", "slurm")),
        "what runs the replicas; only vm is built yet",
        default="vm",
    ),
)


def header_fields(kind: str) -> tuple[Field, ...]:
    """Return the first fields of a spec: the version of the format, and the kind."""
    return (
        Field(
            "apiVersion",
            Choice(("tonnage/v1",)),
            "version of this format",
            required=True,
        ),
        Field(
            "kind",
            Choice((kind,)),
            "what sort of workload it is",
            required=True,
        ),
    )
