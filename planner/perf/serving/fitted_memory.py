"""Memory of an engine that is told a share of it: for weights and KV cache, or for what is free.

    pool  = min(fitted, told) - weights                       of an engine that fills a share
    fitted = memory_share * memory - reserve        `perf/data/coefficients.csv`
    told   = memory - what the engine sets aside    its own rule, `perf/data/engine_steps.csv`

    pool  = min(memory_share, told) * (memory - weights - reserve)     of one that measures that

The fit knows how many requests measured engines held; the rule of the engine knows what its steps
take at their largest. A plan counts on neither more than the other allows. An engine that measures
what is free after a step at its largest is told the smallest share that measured ones were told.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from planner.facts import table
from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.perf.serving.memory import StartupMemory, replica_memory
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout
    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.engine import ServingEngine

MIB_PER_GIB: Final = 1024.0


def engine_memory(
    llm: Llm,
    layout: ReplicaLayout,
    node: Node,
    engine: ServingEngine,
    coefficients: Coefficients,
    *,
    token_budget: int = 0,
) -> StartupMemory:
    """Return the memory of an accelerator of a replica once its engine has started.

    `token_budget` is the most tokens of a step, where it is stated.
    """
    if engine.has_startup_rules:
        return replica_memory(
            llm,
            layout,
            node,
            engine.software_year,
            token_budget=token_budget,
        )
    return fitted_memory(
        llm, layout, node, engine, coefficients, token_budget=token_budget
    )


@cache
def _step_rows() -> tuple[table.TableRow, ...]:
    count_column = table.integer_between(1, 1_000_000)
    columns: table.Columns = {
        "engine": table.nonempty_text,
        "from_gib": table.real_between(0, 100_000),
        "step_tokens": count_column,
        "graph_batch": count_column,
        "wide_graph_batch": count_column,
        **table.SOURCE_COLUMNS,
    }
    return tuple(table.load_rows("planner.perf", "engine_steps.csv", columns))


def _step_row(engine_kind: str, memory_gib: float) -> table.TableRow:
    """Return the defaults of an engine: the last row whose memory is not above that given."""
    return [
        row
        for row in _step_rows()
        if row["engine"] == engine_kind and row["from_gib"] <= memory_gib
    ][-1]


def step_tokens(
    engine_kind: str, memory_gib: float, token_budget: int = 0
) -> int:
    """Return the most tokens of a step: a budget in whole pages, or the engine's default."""
    tokens = token_budget or _step_row(engine_kind, memory_gib)["step_tokens"]
    page_tokens = int(constant("engine_page", engine_kind))
    return int(tokens) // page_tokens * page_tokens


def default_step_tokens(engine_kind: str, memory_gib: float) -> float:
    """Return the most tokens of a step that an engine takes by itself; 0 where unknown."""
    if all(row["engine"] != engine_kind for row in _step_rows()):
        return 0.0
    return float(_step_row(engine_kind, memory_gib)["step_tokens"])


def set_aside_gib(
    engine_kind: str,
    memory_gib: float,
    layout: ReplicaLayout,
    step_tokens: int,
) -> float:
    """Return what an engine keeps free of weights and cache by its own rule, GiB.

        fixed + a * step tokens + b * sequences of the largest graph + c * accelerators

    and at least so much on accelerators with much memory: rows `set_aside` of `constants.csv`.
    """
    row = _step_row(engine_kind, memory_gib)

    def rule(name: str) -> float:
        return constant(f"set_aside_{name}", engine_kind)

    graph_batch = row[
        "wide_graph_batch" if layout.tp >= rule("wide_tp") else "graph_batch"
    ]
    reserve_mib = (
        rule("fixed")
        + rule("step_token") * max(step_tokens, rule("smallest_step"))
        + rule("graph_sequence") * float(graph_batch)
        + rule("accelerator") * layout.accelerators
    )
    if memory_gib > rule("large"):
        reserve_mib = max(reserve_mib, rule("large_least"))
    return reserve_mib / MIB_PER_GIB


def fitted_memory(
    llm: Llm,
    layout: ReplicaLayout,
    node: Node,
    engine: ServingEngine,
    coefficients: Coefficients,
    *,
    token_budget: int = 0,
) -> StartupMemory:
    """Return the memory of an accelerator whose engine fills a share of it, or of what is free.

    The share that it is told is that of weights and pool: what is left is for activations and
    graphs, of which the fitted reserve counts as used. Of what is free it is that of the pool.
    """
    total_gib = node.memory_gib
    tokens = step_tokens(engine.kind, total_gib, token_budget)
    most_sequences = engine.max_sequences
    weights_gib = memory.weight_bytes(llm, layout) / BYTES_PER_GIB
    if engine.pool_rule.of_free:
        told_share = min(
            coefficients.memory_share, constant("told_free", engine.kind)
        )
        free_gib = total_gib - weights_gib - coefficients.reserve_gib
        # What does not fit lacks as much as it lacks: no share of it.
        kv_pool_gib = min(told_share * free_gib, free_gib)
        # It is told to make graphs for all batches, and nobody shows larger ones.
        row = _step_row(engine.kind, total_gib)
        most_sequences = min(most_sequences, int(row["graph_batch"]))
    else:
        filled_gib = min(
            coefficients.memory_share * total_gib - coefficients.reserve_gib,
            total_gib - set_aside_gib(engine.kind, total_gib, layout, tokens),
        )
        told_share = filled_gib / total_gib
        kv_pool_gib = filled_gib - weights_gib
    # Bytes of a token where a sequence is as long as the model takes.
    longest_tokens = llm.max_context or int(
        constant("engine_page", engine.kind)
    )
    token_bytes = memory.kv_bytes(llm, layout, longest_tokens) / longest_tokens
    return StartupMemory(
        total_gib=total_gib,
        weights_gib=weights_gib,
        activation_gib=coefficients.reserve_gib,
        non_torch_gib=0.0,
        graph_gib=0.0,
        kv_gib=kv_pool_gib,
        kv_tokens=int(max(0.0, kv_pool_gib) * BYTES_PER_GIB / token_bytes),
        max_sequences=most_sequences,
        max_step_tokens=tokens,
        told_share=told_share,
    )
