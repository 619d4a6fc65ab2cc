"""The files that a spec names: they stand beside it, and are a part of what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.spec.model import Batch, Inference, Training

if TYPE_CHECKING:
    from planner.spec.model import Spec


def named_files(spec: Spec) -> tuple[str, ...]:
    """Return the names of the files that a spec names, relative to its folder, sorted."""
    names = {spec.buy.owned, spec.where.on_premises}
    if isinstance(spec, Inference | Batch | Training):
        names.add(spec.model.config)
    if isinstance(spec, Inference | Batch):
        names.add(spec.traffic.trace)
        names.update(spec.serving.beside or ())
    return tuple(sorted(name for name in names if name))
