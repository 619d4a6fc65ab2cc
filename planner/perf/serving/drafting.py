"""Speculative decoding of a service: what guesses tokens, how often rightly, and what that takes.

How often guesses are right depends on the text. It is a stated assumption: published for a method
and a model, or measured by the owner of the service.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.facts.model_name import compact_name
from planner.numeric import bisect_up
from planner.perf.common import memory
from planner.perf.serving.step import speculate
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.engine import ServingEngine
    from planner.perf.serving.memory import StartupMemory
    from planner.perf.serving.step import Draft

# Guesses without a model of their own, from the prompt.
PROMPT_LOOKUP: Final = "ngram"
ANY_MODEL: Final = "*"
PARAMS_PER_BILLION: Final = 1e9
HALVINGS: Final = 40


class DraftRow(Struct, frozen=True, kw_only=True):
    """What is published of a method, for one model or for all.

    names            of the weights that the draft was trained for; other weights of the same
                     architecture accept less
    draft_tokens     tokens that are guessed in a step
    tokens_per_step  mean tokens of a step that were measured, None where nothing is published
    measured_tokens  guesses of a step in that measurement
    params_b         weights that are loaded beside those of the model, billions
    format           their number format, or `model` for that of the model
    repository       where they are on Hugging Face, empty where they come with the model
    task             what was asked in the measurement
    """

    method: str
    model: str
    names: str
    draft_tokens: int
    tokens_per_step: float | None
    measured_tokens: int | None
    params_b: float
    format: str
    repository: str
    task: str
    source: str
    as_of: str

    @property
    def acceptance(self) -> float | None:
        """Chance that a guess is right if all before it were, None where nothing is published.

        The a of  1 + a + a^2 + ... + a^k = tokens of a step.
        """
        measured, guesses = self.tokens_per_step, self.measured_tokens
        if measured is None or guesses is None:
            return None
        return bisect_up(
            lambda share: speculate(guesses, share).tokens_per_step >= measured,
            0.0,
            1.0,
            HALVINGS,
        )


class Drafting(Struct, frozen=True, kw_only=True):
    """Speculative decoding as a service does it.

    method        as vLLM names it
    draft_tokens  tokens that are guessed in a step
    acceptance    chance that a guess is right if all before it were
    params        weights of the draft that are loaded beside those of the model
    format        their number format, or `model` for that of the model
    repository    where they are on Hugging Face, empty where they come with the model
    task          what the acceptance was measured with, empty where the spec states it
    """

    method: str
    draft_tokens: int
    acceptance: float
    params: float = 0.0
    format: str = "model"
    repository: str = ""
    task: str = ""

    @property
    def draft(self) -> Draft:
        """What it does to a step."""
        return speculate(
            self.draft_tokens,
            self.acceptance,
            prompt_lookup=self.method == PROMPT_LOOKUP,
        )

    @property
    def waits_for_tokens(self) -> bool:
        """Whether the scheduler needs the tokens of a step to prepare the next one."""
        # vLLM guesses from the prompt on the CPU, so it does not plan ahead then.
        return self.method == PROMPT_LOOKUP

    def weights_gib(self, layout: ReplicaLayout) -> float:
        """Return GiB of its weights on one accelerator: they are divided as the model is."""
        precision = layout.precision if self.format == "model" else self.format
        weight_bytes = self.params * memory.quantized_bytes(precision)
        return weight_bytes / layout.tp / BYTES_PER_GIB

    def cache_share(self, llm: Llm) -> float:
        """Return the share of the KV pool that is left to the model.

        layers / (layers + 1): a draft has a layer of its own, with the cache of one.
        """
        if self.method == PROMPT_LOOKUP or not llm.attending_layers:
            return 1.0
        return llm.attending_layers / (llm.attending_layers + 1)


@cache
def draft_rows() -> tuple[DraftRow, ...]:
    """Return all rows. Raises CatalogError for an invalid one."""
    columns: table.Columns = {
        "method": table.nonempty_text,
        "model": table.nonempty_text,
        "names": table.any_text,
        "draft_tokens": table.integer_between(1, 16),
        "tokens_per_step": table.optional(table.real_between(1, 17)),
        "measured_tokens": table.optional(table.integer_between(1, 16)),
        "params_b": table.real_between(0, 1000),
        "format": table.one_of("bf16", "fp8", "model"),
        "repository": table.any_text,
        "task": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.perf", "drafts.csv", columns)
    return tuple(DraftRow(**row.cells) for row in rows)


def find_draft(method: str, llm: Llm, model_name: str) -> DraftRow | None:
    """Return what is known of a method for the weights that a spec names, None without a row."""
    wanted = compact_name(model_name.rpartition("/")[2])
    for row in draft_rows():
        names = {compact_name(name) for name in row.names.split(";")}
        is_of_model = row.model == llm.model and wanted in names
        if row.method == method and (row.model == ANY_MODEL or is_of_model):
            return row
    return None


def known_methods(llm: Llm, model_name: str) -> tuple[str, ...]:
    """Return the methods that have a row for the weights that a spec names."""
    methods = dict.fromkeys(row.method for row in draft_rows())
    return tuple(
        method for method in methods if find_draft(method, llm, model_name)
    )


def published_methods(model_name: str) -> tuple[str, ...]:
    """Return the methods whose acceptance is published for weights of a name."""
    wanted = compact_name(model_name.rpartition("/")[2])
    return tuple(
        row.method
        for row in draft_rows()
        if row.acceptance is not None
        and wanted in map(compact_name, row.names.split(";"))
    )


def drafting(row: DraftRow, acceptance: float) -> Drafting:
    """Return speculative decoding by a method with a chance that guesses are right."""
    is_published = acceptance == row.acceptance
    return Drafting(
        method=row.method,
        draft_tokens=row.draft_tokens,
        acceptance=acceptance,
        params=row.params_b * PARAMS_PER_BILLION,
        format=row.format,
        repository=row.repository,
        task=row.task if is_published else "",
    )


def engine_with(
    engine: ServingEngine, drafting: Drafting | None
) -> ServingEngine:
    """Return an engine as it works beside guesses, if there are some."""
    if drafting is None or not drafting.waits_for_tokens:
        return engine
    return replace(engine, plans_ahead=False)


def beside_draft(
    alone: StartupMemory,
    llm: Llm,
    layout: ReplicaLayout,
    drafting: Drafting | None,
) -> StartupMemory:
    """Return the memory of an accelerator that also holds a draft, if there is one.

    pool = (pool without a draft - weights of the draft) * layers / (layers + 1)
    """
    if drafting is None:
        return alone
    draft_gib = drafting.weights_gib(layout)
    pool_gib = (alone.kv_gib - draft_gib) * drafting.cache_share(llm)
    share = max(0.0, pool_gib / alone.kv_gib) if alone.kv_gib > 0 else 0.0
    return replace(
        alone,
        weights_gib=alone.weights_gib + draft_gib,
        kv_gib=pool_gib,
        kv_tokens=int(alone.kv_tokens * share),
    )
