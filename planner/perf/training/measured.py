"""What the measured training runs cover: models, accelerators, software and tasks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from planner.facts import table

if TYPE_CHECKING:
    from planner.facts.llm import Llm

# Classes of kernels of which a mixture of experts was measured.
MIXTURE_KERNELS: Final = "kernels of mixtures"


@cache
def covered_names() -> frozenset[tuple[str, str]]:
    """Return what was measured: pairs of kind and name."""
    column_types = {
        "kind": table.nonempty_text,
        "name": table.nonempty_text,
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.load_rows(
        "planner.perf", "train_covered.csv", column_types
    )
    return frozenset((row["kind"], row["name"]) for row in table_rows)


def is_unseen_software(
    framework: str, kernels: str, language_model: Llm
) -> bool:
    """Return whether no run of a framework was measured, or no mixture with its kernels.

    Kernels of one class run experts alike, whichever framework calls them.
    """
    measured = covered_names()
    return ("framework", framework) not in measured or (
        bool(language_model.experts)
        and (MIXTURE_KERNELS, kernels) not in measured
    )


def task_kernels(task: str) -> str:
    """Return what is covered of a task: the classes of kernels that were measured at it."""
    return f"kernels of {task}"


def is_unseen_task(task: str, kernels: str) -> bool:
    """Return whether no run of a task with a class of kernels was measured.

    `task` is full, lora or qlora.
    """
    return (task_kernels(task), kernels) not in covered_names()
