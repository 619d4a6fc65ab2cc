"""Which checkpoints a job keeps, and that those are the ones that are priced."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.perf.reliability.retention import (
    Retention,
    held_checkpoint_s,
    held_checkpoints,
)
from stacks.runtime.vm.node.retention import expired_checkpoints


@given(
    st.sets(st.integers(1, 3000), max_size=60),
    st.integers(2, 6),
    st.integers(1, 900),
)
def test_kept_are_the_newest_and_one_of_each_span(
    steps: set[int], keep_last: int, span: int
) -> None:
    names = [f"iter_{step:07d}" for step in steps]
    random.Random(1).shuffle(names)
    expired = expired_checkpoints(
        [*names, "done-abc", "iter_x"], keep_last, span
    )
    kept = {int(name[5:]) for name in set(names) - set(expired)}
    assert set(sorted(steps)[-keep_last:]) <= kept
    assert {step // span for step in steps} == {step // span for step in kept}
    for step in kept - set(sorted(steps)[-keep_last:]):
        assert step == max(s for s in steps if s // span == step // span)


@given(
    st.integers(1, 400),
    st.integers(2, 5),
    st.integers(1, 40),
    st.integers(1, 30),
)
def test_what_is_priced_is_what_the_machines_keep(
    steps: int, keep_last: int, span: int, every: int
) -> None:
    """Checkpoints come every few steps, and the node's own rule deletes at each of them."""
    span *= every
    retention = Retention(keep_last=keep_last, keep_every_s=span)
    held: list[str] = []
    held_s = 0
    for step in range(steps):
        if step and step % every == 0:
            held.append(f"iter_{step:07d}")
            for name in expired_checkpoints(held, keep_last, span):
                held.remove(name)
        held_s += len(held)
    assert held_checkpoint_s(retention, every, steps) == pytest.approx(held_s)
    # The last one is written when the run ends.
    held.append(f"iter_{steps:07d}")
    left = len(held) - len(expired_checkpoints(held, keep_last, span))
    assert held_checkpoints(retention, every, steps) == left
