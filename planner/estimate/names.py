"""The many spellings of models, accelerators, engines and precisions in published tables."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from planner.errors import MissingError
from planner.facts import table
from planner.facts.accelerator import (
    Accelerator,
    accelerators,
    mig_profiles,
    mig_slice,
)
from planner.facts.llm import Llm, find_model
from planner.facts.model_name import compact_name
from planner.perf.serving.engine import engine_rows
from planner.suggest import closest, is_slip

if TYPE_CHECKING:
    from collections.abc import Iterable

MIG_SUFFIX: Final = re.compile(
    r"(?:[ /:-]+mig)?[ /:-]+(\d+g\.\d+gb)\s*$", re.IGNORECASE
)
VENDOR_PREFIX: Final = re.compile(
    r"^((nvidia|amd|google|aws|intel|geforce|instinct|tesla)[ -]+)+(?=\S)"
)
PRECISIONS: Final = ("fp32", "bf16", "fp8", "int8", "int4", "fp4", "mxfp4")


class RefusedError(Exception):
    """A configuration that is not predicted, with the reason in one sentence."""


@cache
def _spelling_table() -> dict[tuple[str, str], str]:
    column_types = {
        "kind": table.nonempty_text,
        "spelling": table.nonempty_text,
        "name": table.any_text,
    }
    spelling_rows = table.load_rows(
        "planner.estimate", "spellings.csv", column_types
    )
    return {
        (spelling_row["kind"], spelling_row["spelling"]): spelling_row["name"]
        for spelling_row in spelling_rows
    }


def _canonical_name(
    name_kind: str, spelling: str, canonical_names: Iterable[str]
) -> str:
    """Return our name for a spelling, with or without a remark, or for words of only one name."""
    canonical_names = set(canonical_names)
    normalized = spelling.strip().lower()
    bare_name = VENDOR_PREFIX.sub("", normalized.split("(")[0].strip())
    for candidate in (
        normalized,
        bare_name,
        "-".join(bare_name.split()),
        bare_name.split(" ")[0],
    ):
        canonical_name = _spelling_table().get(
            (name_kind, candidate), candidate
        )
        if canonical_name in canonical_names:
            return canonical_name
    name_by_compact = {
        compact_name(candidate): canonical
        for (entry_kind, candidate), canonical in _spelling_table().items()
        if entry_kind == name_kind
    }
    name_by_compact |= {
        compact_name(canonical): canonical for canonical in canonical_names
    }
    if name_by_compact.get(compact_name(bare_name)) in canonical_names:
        return name_by_compact[compact_name(bare_name)]
    spelling_words = set(bare_name.replace(" ", "-").split("-")) - {
        "nvidia",
        "amd",
    }
    matching_names = [
        canonical
        for canonical in canonical_names
        if spelling_words <= set(canonical.split("-"))
    ]
    if len(matching_names) == 1:
        return matching_names[0]
    known_spellings = [
        known_spelling
        for entry_kind, known_spelling in _spelling_table()
        if entry_kind == name_kind
    ]
    known_name = closest(normalized, [*canonical_names, *known_spellings])
    suggestion = f"; did you mean '{known_name}'?" if known_name else ""
    raise RefusedError(
        f"no {name_kind.replace('_', ' ')} is named '{spelling.strip()}'{suggestion}"
    )


def resolve_model(spelling: str) -> Llm:
    """Return a model by any of its spellings; raises RefusedError."""
    try:
        return find_model(spelling.strip())
    except MissingError as lookup_error:
        problem = lookup_error.problems[0]
        suggestion = (
            f"; {problem.next_step}"
            if problem.next_step.startswith("did you mean")
            else ""
        )
        raise RefusedError(f"{problem.message}{suggestion}") from None


def resolve_gpu(spelling: str) -> Accelerator:
    """Return an accelerator, or a MIG slice of one, by any of its spellings; raises RefusedError.

    A slice is named after its accelerator: 'a100-80gb-sxm 3g.40gb', 'H100 MIG 1g.10gb'.
    """
    slice_match = MIG_SUFFIX.search(spelling)
    if not slice_match:
        return accelerators()[_canonical_name("gpu", spelling, accelerators())]
    accelerator = accelerators()[
        _canonical_name("gpu", spelling[: slice_match.start()], accelerators())
    ]
    slice_accelerator = mig_slice(accelerator, slice_match[1].lower())
    if slice_accelerator is None:
        accelerator_name = accelerator.accelerator
        profile_names = (
            ", ".join(
                mig_profile.profile
                for mig_profile in mig_profiles()
                if mig_profile.accelerator == accelerator_name
            )
            or "none"
        )
        raise RefusedError(
            f"{accelerator_name} has no profile {slice_match[1]}; it has {profile_names}"
        )
    return slice_accelerator


def resolve_gke_accelerator(spelling: str) -> str:
    """Return our name for an accelerator type of GKE, by its exact spelling; or RefusedError."""
    known_types = {
        known_spelling: name
        for (kind, known_spelling), name in _spelling_table().items()
        if kind == "gke_accelerator"
    }
    if spelling not in known_types:
        raise RefusedError(
            f"no accelerator type of GKE that we know is '{spelling}'"
        )
    return known_types[spelling]


def resolve_engine(spelling: str) -> str:
    """Return an engine by any of its spellings; raises RefusedError."""
    return _canonical_name("framework", spelling, engine_rows())


def resolve_trainer(spelling: str, trainers: Iterable[str]) -> str:
    """Return a framework of training by any of its spellings, or nothing for one not listed.

    Raises RefusedError for a name that is likely a listed one with a slip of the pen.
    """
    listed_names = list(trainers)
    try:
        return _canonical_name("training_framework", spelling, listed_names)
    except RefusedError:
        if is_slip(spelling.strip().lower(), listed_names):
            raise
        return ""


def resolve_precision(spelling: str) -> str:
    """Return a weight precision by any of its spellings; raises RefusedError."""
    return _canonical_name("weight_precision", spelling, PRECISIONS)
