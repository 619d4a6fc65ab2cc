"""Blocks of a training run: what it is trained on, and how."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from planner.spec import model
from planner.spec.field import Block
from planner.spec.field_table import block_fields

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
        round_batch(batch_size / sequence_tokens)
        if counts_tokens
        else batch_size
    )
    return model.TrainingMethod(
        place=place, global_batch=batch_sequences, **train_values
    )


def round_batch(exact_sequences: float) -> int:
    """Return the roundest number of sequences within 5 % of a number; at least 1.

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
    block_fields("training", "data"),
)
TRAINING_METHOD: Final = Block(
    "train",
    _build_training,
    block_fields("training", "train"),
)
