"""A spec that is made of a few answers: what is asked of each kind of work, and the file. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from collections.abc import Mapping

# The words of people for the kinds of a spec.
KINDS: Final = {
    "serve": "Inference",
    "batch": "Batch",
    "train": "Training",
    "workspace": "Workspace",
}
# What a person says to leave out what may be left out.
NONE: Final = "none"
HEAD: Final = (
    "# yaml-language-server: $schema=spec.schema.json",
    "# Made of answers to tonnage init. What else there is: tonnage schema spec, or docs/spec.md.",
    "apiVersion: tonnage/v1",
)
# Other values are quoted: then they are text to the reader, whatever they have in them.
PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9][\w.%+-]*(://[\w./-]+)?")


class DraftQuestion(Struct, frozen=True):
    """What is asked for a key of a spec.

    key       of the spec, with dots between blocks
    text      the question
    default   the answer of who just goes on
    note      comment beside the key in the file
    may_lack  whether the key may be left out
    is_list   whether the answer is words with commas
    """

    key: str
    text: str
    default: str
    note: str = ""
    may_lack: bool = False
    is_list: bool = False


class SpecDraft(NamedTuple):
    """The text of a spec, and the line of each key that was asked for, from 1."""

    text: str
    lines: dict[str, int]


MODEL: Final = DraftQuestion(
    "model.name", "model", "llama-3.1-8b", "known ones: tonnage models"
)
CLOUDS: Final = DraftQuestion(
    "where.clouds", "clouds", ", ".join(clouds()), is_list=True
)
INPUT: Final = DraftQuestion(
    "traffic.input_tokens", "tokens of a prompt, on average", "1200"
)
OUTPUT: Final = DraftQuestion(
    "traffic.output_tokens", "tokens of an answer, on average", "250"
)


ASKED: Final[dict[str, tuple[DraftQuestion, ...]]] = {
    "serve": (
        MODEL,
        DraftQuestion(
            "sla.ttft_p95",
            "time to the first token, 95th percentile, or none",
            "800ms",
            may_lack=True,
        ),
        DraftQuestion(
            "sla.tpot_p95",
            "time of each token after it, 95th percentile, or none",
            "40ms",
            "25 a second; people read 5 to 8",
            may_lack=True,
        ),
        DraftQuestion(
            "traffic.peak_rps", "requests a second at the busiest time", "2"
        ),
        INPUT,
        OUTPUT,
        DraftQuestion(
            "traffic.profile",
            "the week: flat, business-hours or diurnal",
            "business-hours",
        ),
    ),
    "batch": (
        MODEL,
        DraftQuestion("traffic.requests_per_day", "requests a day", "100k"),
        INPUT,
        OUTPUT,
        DraftQuestion("deadline", "time that the run of a day may take", "8h"),
    ),
    "train": (
        MODEL,
        DraftQuestion(
            "data.tokens", "tokens to train on, all passes together", "50M"
        ),
        DraftQuestion(
            "data.location", "where they lie", "s3://your-bucket/data"
        ),
        DraftQuestion(
            "train.method", "pretrain, finetune, lora, qlora or dpo", "lora"
        ),
        DraftQuestion(
            "train.deadline",
            "time that it may take, or none",
            "24h",
            may_lack=True,
        ),
    ),
    "workspace": (
        DraftQuestion(
            "accelerator.memory", "memory of the accelerator", "24GiB"
        ),
        DraftQuestion("users", "people, each with a machine", "1"),
        DraftQuestion(
            "shutdown.idle",
            "a machine stops after being idle for",
            "1h",
            "without work of the GPU",
        ),
    ),
}


def questions(kind: str) -> tuple[DraftQuestion, ...]:
    """Return what is asked of a kind of work, in the order of the file."""
    return (
        DraftQuestion("name", "name of the stack", kind),
        *ASKED[kind],
        CLOUDS,
    )


def draft(kind: str, answers: Mapping[str, str | None]) -> SpecDraft:
    """Return the spec of answers by key; a key without one is left out."""
    lines = [*HEAD, f"kind: {KINDS[kind]}"]
    places: dict[str, int] = {}
    block = ""
    for question in questions(kind):
        answer = answers[question.key]
        if answer is None:
            continue
        head, _, key = question.key.rpartition(".")
        if head and head != block:
            lines.append(f"{head}:")
        block = head
        indent = "  " if head else ""
        note = f"  # {question.note}" if question.note else ""
        value = _list_text(answer) if question.is_list else _value_text(answer)
        lines.append(f"{indent}{key}: {value}{note}")
        places[question.key] = len(lines)
    return SpecDraft("\n".join(lines) + "\n", places)


def _list_text(answer: str) -> str:
    words = [word.strip() for word in answer.split(",")]
    return f"[{', '.join(_value_text(word) for word in words if word)}]"


def _value_text(answer: str) -> str:
    if PLAIN_VALUE.fullmatch(answer):
        return answer
    return json.dumps(answer, ensure_ascii=False)
