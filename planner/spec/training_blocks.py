"""Blocks of a training run: what it is trained on, and how."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.spec import model, unit
from planner.spec.field import (
    Block,
    Choice,
    Field,
    ListOf,
    Quantity,
    TextPattern,
)
from planner.spec.field_types import GlobalBatchType

if TYPE_CHECKING:
    from planner.errors import Place


def _build_training(
    place: Place, global_batch: tuple[int, bool] | None, **train_values: Any
) -> model.TrainingMethod:
    sequence_tokens = train_values["sequence"]
    if global_batch is None:
        return model.TrainingMethod(place=place, **train_values)
    batch_size, counts_tokens = global_batch
    batch_sequences = (
        # A batch in tokens is rarely a whole number of sequences.
        _round_batch(batch_size / sequence_tokens)
        if counts_tokens
        else batch_size
    )
    return model.TrainingMethod(
        place=place, global_batch=batch_sequences, **train_values
    )


def _round_batch(exact_sequences: float) -> int:
    """Return the roundest number of sequences within 5 % of a number.

    It is a multiple of the largest power of two that has a multiple in that range: 4M tokens
    in sequences of 4,096 tokens become 1,024 sequences.
    """
    low_sequences = math.ceil(0.95 * exact_sequences)
    high_sequences = math.floor(1.05 * exact_sequences)
    # Small batches have no whole number within 5 %.
    if low_sequences > high_sequences:
        return max(1, round(exact_sequences))
    # Halve the step until one of its multiples lies in the range.
    rounding_step: int = 1 << high_sequences.bit_length()
    while (
        not (high_sequences // rounding_step) * rounding_step >= low_sequences
    ):
        rounding_step //= 2
    return max(
        1,
        min(
            (
                # The largest and the smallest multiple in the range.
                (high_sequences // rounding_step) * rounding_step,
                -(-low_sequences // rounding_step) * rounding_step,
            ),
            key=lambda candidate: abs(candidate - exact_sequences),
        ),
    )


DATA: Final = Block(
    "data",
    model.Dataset,
    (
        Field(
            "tokens",
            Quantity(unit.parse_count, "1T", minimum=1000, maximum=10**15),
            "tokens that are trained on, all passes together",
        ),
        Field(
            "samples",
            Quantity(unit.parse_count, "50k", minimum=1, maximum=10**12),
            "sequences instead of tokens, or pairs of them for dpo",
        ),
        Field(
            "location",
            TextPattern(
                r"(s3|gs|abfss?|https)://[A-Za-z0-9._~/@%+-]+",
                "an address such as s3://bucket/folder",
            ),
            "where the dataset lies",
            required=True,
        ),
        Field(
            "size",
            Quantity(unit.parse_bytes, "4TiB", minimum=1, maximum=10**17),
            "bytes of the dataset; the default is 4 for each token",
        ),
        Field(
            "storage",
            Choice(("auto", "object", "parallel")),
            (
                "where machines read and write: auto adds a parallel file system when "
                "objects are too slow and it costs less"
            ),
            default="auto",
        ),
    ),
    doc="what is trained on",
)
TRAINING_METHOD: Final = Block(
    "train",
    _build_training,
    (
        Field(
            "method",
            Choice(
                (
                    "pretrain",
                    "continued",
                    "finetune",
                    "lora",
                    "qlora",
                    "dpo",
                    "dpo-lora",
                )
            ),
            (
                "from nothing, from a checkpoint, all weights, adapters, adapters on 4-bit "
                "weights, or preferences with a reference model"
            ),
            required=True,
        ),
        Field(
            "sequence",
            Quantity(unit.parse_context, "8k", minimum=128, maximum=2**24),
            "tokens of a sequence (k is 1024)",
            default=8192,
        ),
        Field(
            "global_batch",
            GlobalBatchType(),
            (
                "tokens or sequences of a step; the default is 4M tokens for pretraining, 64 "
                "sequences else"
            ),
        ),
        Field(
            "optimizer",
            Choice(
                ("adamw", "adamw-16bit", "adam8bit", "adafactor", "muon", "sgd")
            ),
            "optimizer",
            default="adamw",
        ),
        Field(
            "precision",
            ListOf(
                Choice(("auto", "bf16", "fp16", "fp8", "mxfp8", "nvfp4")),
                allows_single=True,
            ),
            "allowed precisions of products; auto is bf16",
            default=("auto",),
        ),
        Field(
            "deadline",
            Quantity(
                unit.parse_seconds, "14d", minimum=600, maximum=730 * 86400
            ),
            "time that the run may take; without one the cheapest run within a year",
        ),
        Field(
            "budget",
            Quantity(unit.parse_number, "50000", minimum=1, maximum=10**12),
            (
                "USD that the whole run may cost at most; without a deadline the plan is "
                "then the fastest run within it"
            ),
        ),
        Field(
            "checkpoint",
            Quantity(unit.parse_seconds, "30m", minimum=60, maximum=7 * 86400),
            "time between checkpoints; the default loses least time",
        ),
        Field(
            "evaluation",
            Quantity(unit.parse_percent, "1%", maximum=Decimal("0.5")),
            "share of tokens that is evaluated on top",
            default=Decimal(0),
        ),
        Field(
            "rank",
            Quantity(unit.parse_count, "16", minimum=1, maximum=1024),
            "rank of the adapters of lora and qlora",
            default=16,
        ),
    ),
    doc="how it is trained",
)
