"""The kinds of workload. Each is imported when a spec of it is read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.workload.base import Workload

# One line a kind: the word of the spec, and where its workload is.
WORKLOADS: Final = {
    "Inference": "planner.workload.serving:INFERENCE",
    "Batch": "planner.workload.serving:BATCH",
    "Training": "planner.workload.training:TRAINING",
    "Workspace": "planner.workload.workspace:WORKSPACE",
}


def workload_of_kind(kind: str) -> Workload:
    """Return the workload of a kind; raises KeyError for a kind that is not registered."""
    module_name, _, attribute = WORKLOADS[kind].partition(":")
    workload: Workload = getattr(import_module(module_name), attribute)
    return workload


def workload_of(spec: object) -> Workload:
    """Return the workload of a spec: the class of a spec is named for its kind."""
    return workload_of_kind(type(spec).__name__)
