"""Which checkpoints a training job no longer needs.

Kept are the newest, and the newest of each span of steps. Names end with the step at which they
were written, and steps do not depend on clocks or restarts.
"""

from __future__ import annotations

import re

CHECKPOINT_NAME = re.compile(r"iter_([0-9]+)")


def expired_checkpoints(
    names: list[str], keep_last: int, span_steps: int
) -> list[str]:
    """Return the names of the checkpoints that are not kept, the oldest first.

    Kept are the newest `keep_last`, and the newest of each `span_steps` steps.
    """
    step_names = sorted(
        (int(match[1]), name)
        for name in names
        if (match := CHECKPOINT_NAME.fullmatch(name))
    )
    # Later steps of a span replace earlier ones.
    newest_of_span = {step // span_steps: name for step, name in step_names}
    kept_names = {
        *(name for _, name in step_names[-keep_last:]),
        *newest_of_span.values(),
    }
    return [name for _, name in step_names if name not in kept_names]
