"""The difference of two files, specs or saved plans, whose plans are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.errors import SpecError
from planner.plan.canonical import dump_document, is_plan
from planner.plan.diff_report import plans_document
from planner.render.clean import without_secrets
from planner.spec.change import key_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.diff_document import DiffDocument
    from planner.plan.threshold import Threshold
    from planner.plan.types import Plan
    from planner.spec.change import KeyChange


def file_difference(
    paths: tuple[str, str],
    contents: tuple[bytes, bytes],
    plans: tuple[Plan, Plan],
    thresholds: Sequence[Threshold] = (),
) -> DiffDocument:
    """Return the difference of two files, specs or saved plans, with the plans of both."""
    keys = (
        plan_key_changes(plans, paths[1])
        if any(map(is_plan, contents))
        else clean_key_changes(*contents, paths[1])
    )
    return plans_document(paths, plans, keys=keys, thresholds=thresholds)


def plan_key_changes(
    plans: tuple[Plan, Plan], path: str
) -> tuple[KeyChange, ...]:
    """Return what the specs of two plans say differently, without lines.

    A plan has its spec with defaults filled in, so that of the other side is taken too.
    """
    before, after = (
        dump_document(plan.spec.normalized).encode() for plan in plans
    )
    return tuple(
        replace(change, line_before=None, line=None)
        for change in clean_key_changes(before, after, path)
    )


def clean_key_changes(
    before: bytes, after: bytes, path: str
) -> tuple[KeyChange, ...]:
    """Return what a spec says differently, without passwords of addresses.

    Nothing is known of a file that is no YAML.
    """
    try:
        changes = key_changes(before, after, path)
    except SpecError:
        return ()
    return tuple(
        replace(
            change,
            before=change.before and without_secrets(change.before),
            after=change.after and without_secrets(change.after),
        )
        for change in changes
    )
