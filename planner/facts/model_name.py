"""What the name of a model says: which architecture it may mean, and the precision of its weights.

People write names as Hugging Face does: an owner, a version, words of training such as Instruct,
and words of quantization such as AWQ. Which words say nothing of the architecture is the table
model_words.csv; kinds of models that are not sized at all are in other_models.csv.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from msgspec import Struct

from planner.errors import Place, Problem
from planner.facts import table

# A month of release as a name has it: 2507, or 0528.
RELEASE_MONTH: Final = re.compile(r"-\d{4}$")
WEIGHT_PRECISIONS: Final = (
    "bf16",
    "fp16",
    "fp8",
    "int8",
    "int4",
    "fp4",
    "mxfp4",
)
MATCHED_ON: Final = ("name", "architecture")


class OtherModel(Struct, frozen=True, kw_only=True):
    """A family of models that are no decoder language models.

    matched_on  name: of the model; architecture: model_type or _class_name of its config.json
    pattern     in lower case, with * as wildcard
    kind        what such a model is, with its article
    """

    matched_on: str
    pattern: str
    kind: str
    source: str
    as_of: str


def compact_name(name: str) -> str:
    """Return a name without case, and without what separates its words.

    >>> compact_name("Llama 3.1-8B")
    'llama3.18b'
    """
    return re.sub(r"[^a-z0-9.]+", "", name.lower())


def architecture_names(name: str) -> tuple[str, ...]:
    """Return what an architecture may be called that a name means, the most exact first.

    The name itself, without its owner, without the words of training and quantization, and
    without the month of a release.
    """
    # What stands in brackets is a remark, and so is what follows a space after a whole name.
    remarked_name = name.split("(", maxsplit=1)[0].strip().lower()
    bare_name = remarked_name.split("/")[-1]
    first_word = bare_name.split(" ")[0]
    plain_names = [_without_words(bare_name), _without_words(first_word)]
    undated_names = [
        _without_words(RELEASE_MONTH.sub("", plain_name))
        for plain_name in plain_names
    ]
    candidates = [remarked_name, bare_name, *plain_names, *undated_names]
    ownerless_names = [
        candidate.removeprefix("meta-") for candidate in candidates
    ]
    return tuple(dict.fromkeys([*candidates, *ownerless_names]))


def named_precision(name: str) -> str:
    """Return the precision of the weights that a name states, or an empty text.

    >>> named_precision("Qwen/Qwen2.5-32B-Instruct-AWQ")
    'int4'
    """
    stated_precisions = [
        _word_precisions()[word]
        for word in _word_pattern().findall(name.lower().split("/")[-1])
    ]
    return next(filter(None, stated_precisions), "")


def other_model(name: str, matched_on: str = "name") -> OtherModel | None:
    """Return the family of other models that a name or an architecture belongs to, if any."""
    lowered_name = name.lower()
    for family in _other_models():
        if family.matched_on == matched_on and any(
            fnmatchcase(candidate, family.pattern)
            for candidate in (lowered_name, lowered_name.split("/")[-1])
        ):
            return family
    return None


def other_model_problem(
    name: str, family: OtherModel, place: Place | None
) -> Problem:
    """Return the refusal of a model that is no decoder language model."""
    return Problem(
        code="unsupported-model",
        message=f"{name} is {family.kind}, and only language models are sized",
        place=place,
        next_step="name a model that writes text: tonnage models",
    )


def _without_words(bare_name: str) -> str:
    """Return a name without the words that say nothing of the architecture."""
    return _word_pattern().sub("", bare_name.replace(" ", "-"))


@cache
def _word_pattern() -> re.Pattern[str]:
    # The longest first: gptq-int8 is not gptq.
    words = sorted(_word_precisions(), key=len, reverse=True)
    return re.compile(rf"-({'|'.join(map(re.escape, words))})(?=-|$)")


@cache
def _word_precisions() -> dict[str, str]:
    """Return the words that say nothing of the architecture, with the precision they state."""
    columns: table.Columns = {
        "word": table.nonempty_text,
        "precision": table.optional(table.one_of(*WEIGHT_PRECISIONS)),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    word_rows = table.load_rows("planner.facts", "model_words.csv", columns)
    return {
        word: word_row["precision"] or ""
        for (word,), word_row in table.rows_by_key(word_rows, "word").items()
    }


@cache
def _other_models() -> tuple[OtherModel, ...]:
    columns: table.Columns = {
        "matched_on": table.one_of(*MATCHED_ON),
        "pattern": table.nonempty_text,
        "kind": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    family_rows = table.load_rows("planner.facts", "other_models.csv", columns)
    return tuple(
        OtherModel(**family_row.cells)
        for family_row in table.rows_by_key(
            family_rows, "matched_on", "pattern"
        ).values()
    )
