"""The many spellings of models, accelerators, engines and precisions in published tables."""

from __future__ import annotations

import csv
import difflib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.errors import TonnageError
from planner.facts.accelerator import (
    Accelerator,
    accelerators,
    mig_profiles,
    sliced,
)
from planner.facts.llm import Llm, find, models, unmodelled
from planner.perf.engine import engines

if TYPE_CHECKING:
    from collections.abc import Iterable

SLICE: Final = re.compile(
    r"(?:[ /:-]+mig)?[ /:-]+(\d+g\.\d+gb)\s*$", re.IGNORECASE
)
VENDOR: Final = re.compile(
    r"^((nvidia|amd|google|aws|intel|geforce|instinct|tesla)[ -]+)+(?=\S)"
)
TUNED: Final = re.compile(
    r"-(instruct|it|chat|hf|base|fp8|nvfp4|fp4|awq|gptq|bf16)\b.*$"
)
PRECISIONS: Final = ("bf16", "fp8", "int8", "int4", "fp4", "mxfp4")


class RefusedError(Exception):
    """A configuration that is not predicted, with the reason in one sentence."""


@cache
def _spellings() -> dict[tuple[str, str], str]:
    text = (
        files("planner.estimate")
        .joinpath("data", "spellings.csv")
        .read_text(encoding="utf-8")
    )
    rows = csv.DictReader(text.splitlines())
    return {(row["kind"], row["spelling"]): row["name"] for row in rows}


def _known(kind: str, given: str, names: Iterable[str]) -> str:
    """Return our name for a spelling, with or without a remark, or for words of only one name."""
    names = set(names)
    word = given.strip().lower()
    bare = VENDOR.sub("", word.split("(")[0].strip())
    for spelled in (word, bare, "-".join(bare.split()), bare.split(" ")[0]):
        found = _spellings().get((kind, spelled), spelled)
        if found in names:
            return found
    alike = {
        _compact(spelled): name
        for (k, spelled), name in _spellings().items()
        if k == kind
    }
    alike |= {_compact(name): name for name in names}
    if alike.get(_compact(bare)) in names:
        return alike[_compact(bare)]
    words = set(bare.replace(" ", "-").split("-")) - {"nvidia", "amd"}
    holding = [name for name in names if words <= set(name.split("-"))]
    if len(holding) == 1:
        return holding[0]
    spelled_so = [s for k, s in _spellings() if k == kind]
    close = difflib.get_close_matches(word, [*names, *spelled_so], 1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise RefusedError(
        f"no {kind.replace('_', ' ')} is named '{given.strip()}'{hint}"
    )


def _compact(name: str) -> str:
    """A name without what separates its words."""
    return re.sub(r"[^a-z0-9.]+", "", name.lower())


def model(given: str) -> Llm:
    """Return a model by any of its spellings; raises RefusedError."""
    word = _spellings().get(("model", given.strip().lower()), given.strip())
    bare = TUNED.sub("", word.split("/")[-1].lower()).removeprefix("meta-")
    try:
        return find(
            word
            if word.lower() in unmodelled() or bare not in models()
            else bare
        )
    except TonnageError as error:
        problem = error.problems[0]
        if word.lower() in unmodelled():
            raise RefusedError(problem.message) from None
        return find(_known("model", bare, models()))


def gpu(given: str) -> Accelerator:
    """Return an accelerator, or a MIG slice of one, by any of its spellings; raises RefusedError.

    A slice is named after its accelerator: 'a100-80gb-sxm 3g.40gb', 'H100 MIG 1g.10gb'.
    """
    found = SLICE.search(given)
    if not found:
        return accelerators()[_known("gpu", given, accelerators())]
    whole = accelerators()[
        _known("gpu", given[: found.start()], accelerators())
    ]
    part = sliced(whole, found[1].lower())
    if part is None:
        name = whole.accelerator
        known = (
            ", ".join(
                p.profile for p in mig_profiles() if p.accelerator == name
            )
            or "none"
        )
        raise RefusedError(f"{name} has no profile {found[1]}; it has {known}")
    return part


def framework(given: str) -> str:
    """Return an engine by any of its spellings; raises RefusedError."""
    return _known("framework", given, engines())


def precision(given: str) -> str:
    """Return a weight precision by any of its spellings; raises RefusedError."""
    return _known("weight_precision", given, PRECISIONS)


def kv_precision(given: str) -> str:
    """Return a KV precision, or nothing when the table does not say; raises RefusedError."""
    return (
        _known("kv_precision", given, ("bf16", "fp8")) if given.strip() else ""
    )


def load_kind(given: str) -> str:
    """Return how a deployment is loaded; raises RefusedError."""
    kinds = (
        "offline_max",
        "static_batch",
        "concurrency",
        "rate",
        "all_at_once",
    )
    return _known("load_kind", given, kinds)
