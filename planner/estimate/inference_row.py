"""Reads one row of a table of configurations; columns that hold measurements are never read."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.estimate import names
from planner.estimate.cell import (
    Row,
    read_cell,
    read_choice,
    read_count,
    read_number,
)
from planner.estimate.draft import read_draft
from planner.estimate.engine_row import (
    read_benchmark,
    read_kv_precision,
    row_engine,
)
from planner.estimate.model_row import CONFIG_COLUMN, row_model
from planner.estimate.names import RefusedError
from planner.facts import table
from planner.facts.accelerator import SIXTEEN_BIT, chip_cores
from planner.facts.model_name import named_precision
from planner.perf.common.constant import constant
from planner.perf.common.layout import Node, ReplicaLayout, can_shard
from planner.perf.common.memory import weight_bytes
from planner.perf.serving.deployment import Demand, Deployment, LoadKind
from planner.perf.serving.engine import VARIED_LENGTHS, kv_precision
from planner.perf.serving.served_rate import LatencyLimits
from planner.perf.serving.step import NO_DRAFT
from planner.units import BYTES_PER_GIB, MS_PER_S

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

# Contexts are stretched by up to this in published runs.
CONTEXT_STRETCH: Final = 2
LAYOUT_COLUMNS: Final = ("tp", "pp", "ep", "attn_dp", "replicas")
SERVING_MODES: Final = ("agg", "disagg")
INTERCONNECTS: Final = ("link", "pcie")
HOST_GPUS: Final = 8  # accelerators of a machine without a larger link
DEMAND_KINDS: Final[dict[str, LoadKind]] = {
    "offline_max": "offline",
    "static_batch": "static",
    "concurrency": "closed",
    "rate": "open",
    "all_at_once": "burst",
}
LENGTH_SPREADS: Final[dict[str, tuple[str, ...]]] = {
    "fixed": (),
    "narrow": VARIED_LENGTHS[:1],
    "wide": VARIED_LENGTHS,
}
POOL_PATTERN: Final = r"{} N workers? x N GPU \(tpN adpN epN\)".replace(
    "N", r"([1-9]\d{{0,4}})"
)
POOLS_PATTERN: Final = re.compile(
    POOL_PATTERN.format("prefill") + "; " + POOL_PATTERN.format("decode")
)


def row_deployment(table_row: Row) -> Deployment:
    """Return the configuration of a row; raises RefusedError with what is wrong."""
    language_model = row_model(table_row)
    accelerator = names.resolve_gpu(table_row["gpu"])
    weight_precision = _row_precision(table_row, language_model, accelerator)
    engine_name = names.resolve_engine(read_cell(table_row, "framework"))
    decode_layout, replica_count, prefill_pool = _row_layout(
        table_row, weight_precision, language_model, accelerator
    )
    kv_format = read_kv_precision(table_row) or kv_precision(
        engine_name, language_model, weight_precision
    )
    pool_layouts = (
        [decode_layout]
        if prefill_pool is None
        else [decode_layout, prefill_pool[1]]
    )
    kv_layouts = [
        replace(pool_layout, kv_precision=kv_format)
        for pool_layout in pool_layouts
    ]
    # Engines of chips with several cores pad the heads to whatever they are cut over.
    if chip_cores(accelerator) == 1:
        for kv_layout in kv_layouts:
            _check_layout(language_model, kv_layout)
    row_demand = _row_demand(table_row, language_model)
    draft_model = read_draft(table_row)
    if (
        row_demand.prompt_tokens + row_demand.answer_tokens
        > CONTEXT_STRETCH * language_model.max_context
        > 0
    ):
        raise RefusedError(
            f"{language_model.model} takes {language_model.max_context:,} tokens of "
            "context at most"
        )
    return Deployment(
        llm=language_model,
        layout=kv_layouts[0],
        node=_link_domain(accelerator, table_row),
        engine=row_engine(table_row, engine_name),
        demand=row_demand,
        replica_count=replica_count,
        prefill_workers=None
        if prefill_pool is None
        else (prefill_pool[0], kv_layouts[1]),
        speculative=draft_model is not None,
        draft=draft_model or NO_DRAFT,
    )


def _row_precision(
    table_row: Row, language_model: Llm, accelerator: Accelerator
) -> str:
    weight_precision = names.resolve_precision(
        table_row.get("weight_precision")
        or table_row.get("precision")
        or named_precision(table_row["model"])
        or _config_precision(table_row, language_model)
    )
    # A model released in mxfp4 is served so, whatever its activations are called.
    if language_model.precision == "mxfp4" and weight_precision in (
        "fp4",
        "fp8",
    ):
        weight_precision = "mxfp4"
    if not (accelerator.bandwidth_gb_s and accelerator.bf16_tflops):
        raise RefusedError(
            f"the data sheet of {accelerator.accelerator} is not known"
        )
    # Tables call both formats of 16 bit bf16.
    run_formats = (
        SIXTEEN_BIT if weight_precision == "bf16" else (weight_precision,)
    )
    is_supported = accelerator.served_precisions(run_formats) or (
        accelerator.vendor == "nvidia"
        and float(accelerator.compute_capability) >= 8
    )
    if not is_supported:
        raise RefusedError(
            f"{accelerator.accelerator} does not compute {weight_precision}"
        )
    return weight_precision


def _config_precision(table_row: Row, language_model: Llm) -> str:
    """Return the format that a config.json states, and 16 bit of every other model."""
    is_config = bool(read_cell(table_row, CONFIG_COLUMN))
    return language_model.precision if is_config else "bf16"


def _check_layout(language_model: Llm, replica_layout: ReplicaLayout) -> None:
    """Refuse what no engine can lay out."""
    if not can_shard(language_model, replica_layout.attention_tp):
        raise RefusedError(
            f"{language_model.model} cannot be cut over {replica_layout.attention_tp} accelerators"
        )
    if replica_layout.pp > language_model.layers:
        raise RefusedError(
            f"pp {replica_layout.pp} is more than the {language_model.layers} layers of "
            f"{language_model.model}"
        )


def _row_layout(
    table_row: Row,
    weight_precision: str,
    language_model: Llm,
    accelerator: Accelerator,
) -> tuple[ReplicaLayout, int, tuple[int, ReplicaLayout] | None]:
    """Return the layout of a replica, how many there are, and the prefill workers."""
    disagg_text = read_cell(table_row, "disagg_layout")
    pools_match = POOLS_PATTERN.fullmatch(disagg_text)
    if disagg_text and not pools_match:
        raise RefusedError(f"disagg_layout '{disagg_text}' is not understood")
    if pools_match:
        return _split_pools(pools_match, weight_precision)
    if read_choice(table_row, "serving_mode", SERVING_MODES) == "disagg":
        raise RefusedError(
            "the layout of the prefill and decode workers is not given"
        )
    table_row = _tp_in_chips(table_row, accelerator)
    table_row = _smallest_tp(
        table_row, weight_precision, language_model, accelerator
    )
    gpu_count, pp_degree, replica_count = _replica_sizes(table_row)
    tp_degree = read_count(
        table_row, "tp", gpu_count // (pp_degree * replica_count)
    )
    attention_dp = read_count(table_row, "attn_dp", 1)
    ep_degree = read_count(table_row, "ep", 1)
    tp_degree = (
        max(tp_degree, gpu_count // (pp_degree * replica_count))
        if attention_dp > 1 or ep_degree > 1
        else tp_degree
    )
    # Load-generator runs of latent-attention models with spread experts repeat attention.
    if (
        language_model.kv_lora_rank
        and ep_degree > 1
        and not read_cell(table_row, "attn_dp")
        and read_benchmark(table_row)
    ):
        attention_dp = ep_degree
    if tp_degree * pp_degree * replica_count != gpu_count:
        raise RefusedError(
            f"tp {tp_degree} x pp {pp_degree} x replicas {replica_count} is not n_gpus {gpu_count}"
        )
    return (
        _pool_layout(
            weight_precision, tp_degree, pp_degree, ep_degree, attention_dp
        ),
        replica_count,
        None,
    )


def _tp_in_chips(table_row: Row, accelerator: Accelerator) -> Row:
    """Return a row whose tp counts chips; some engines count their cores.

    A tp that makes up n_gpus with pp and replicas counts chips already.
    """
    cores = chip_cores(accelerator)
    tp_degree = read_count(table_row, "tp", 0)
    others = read_count(table_row, "pp", 1) * read_count(
        table_row, "replicas", 1
    )
    counts_chips = tp_degree * others == read_count(table_row, "n_gpus", 0)
    if cores == 1 or not tp_degree or counts_chips:
        return table_row
    return {**table_row, "tp": str(math.ceil(tp_degree / cores))}


def _smallest_tp(
    table_row: Row,
    weight_precision: str,
    language_model: Llm,
    accelerator: Accelerator,
) -> Row:
    """Return a row that states no layout with the smallest tp that fits, and replicas of it.

    Where it states no n_gpus either, it is one replica. What fits leaves a share of the memory to
    the KV cache. Rows that state any part of a layout are left as they are, and so are models that
    nothing fits.
    """
    if any(read_cell(table_row, x) for x in LAYOUT_COLUMNS):
        return table_row
    gpu_count = read_count(table_row, "n_gpus", 0)
    room = constant("weights_share") * accelerator.memory_gib * BYTES_PER_GIB
    for tp_degree in range(1, (gpu_count or HOST_GPUS) + 1):
        layout = _pool_layout(weight_precision, tp_degree, 1, 1, 1)
        if (
            gpu_count % tp_degree == 0
            and can_shard(language_model, tp_degree)
            and weight_bytes(language_model, layout) <= room
        ):
            return {**table_row, "tp": str(tp_degree)}
    return table_row


def _split_pools(
    pools_match: re.Match[str], weight_precision: str
) -> tuple[ReplicaLayout, int, tuple[int, ReplicaLayout]]:
    """Return the decode layout, its workers, and the prefill workers with theirs."""
    (
        prefill_workers,
        prefill_gpus,
        _,
        prefill_attention_dp,
        prefill_ep,
        decode_workers,
        decode_gpus,
        _,
        decode_attention_dp,
        decode_ep,
    ) = (int(size_text) for size_text in pools_match.groups())
    prefill_layout = _pool_layout(
        weight_precision, prefill_gpus, 1, prefill_ep, prefill_attention_dp
    )
    decode_layout = _pool_layout(
        weight_precision, decode_gpus, 1, decode_ep, decode_attention_dp
    )
    return decode_layout, decode_workers, (prefill_workers, prefill_layout)


def _replica_sizes(table_row: Row) -> tuple[int, int, int]:
    """Return accelerators in all, pipeline stages, and replicas; raises RefusedError."""
    pp_degree = read_count(table_row, "pp", 1)
    gpu_count = read_count(
        table_row,
        "n_gpus",
        read_count(table_row, "tp", 1)
        * pp_degree
        * read_count(table_row, "replicas", 1),
    )
    replica_count = read_count(table_row, "replicas", 0) or max(
        1, gpu_count // (read_count(table_row, "tp", gpu_count) * pp_degree)
    )
    if gpu_count % (pp_degree * replica_count):
        raise RefusedError(
            f"n_gpus {gpu_count} is not a multiple of pp {pp_degree} x replicas {replica_count}"
        )
    return gpu_count, pp_degree, replica_count


def _pool_layout(
    weight_precision: str,
    tp_degree: int,
    pp_degree: int,
    ep_degree: int,
    attention_dp: int,
) -> ReplicaLayout:
    attention_dp = attention_dp if tp_degree % attention_dp == 0 else tp_degree
    ep_degree = ep_degree if tp_degree % ep_degree == 0 else tp_degree
    return ReplicaLayout(
        precision=weight_precision,
        kv_precision="bf16",
        tp=tp_degree,
        pp=pp_degree,
        ep=ep_degree,
        adp=attention_dp,
    )


def _link_domain(accelerator: Accelerator, table_row: Row) -> Node:
    """The accelerators that talk without a network: a link's domain, or those of a host."""
    scaleup_link = (
        "nvlink_pairs" if accelerator.link == "nvlink_pairs" else "nvlink"
    )
    gpu_count = max(HOST_GPUS, accelerator.link_domain)
    return Node(
        accelerator=accelerator,
        accelerator_count=gpu_count,
        memory_gib=accelerator.memory_gib,
        compute_fraction=1.0,
        scaleup_link="pcie"
        if accelerator.link == "none"
        or read_choice(table_row, "interconnect", INTERCONNECTS) == "pcie"
        else scaleup_link,
        network_gb_s=gpu_count * constant("network_each"),
    )


def _row_demand(table_row: Row, language_model: Llm) -> Demand:
    load_name = read_choice(table_row, "load_kind", tuple(DEMAND_KINDS))
    if load_name is None:
        raise RefusedError("load_kind is missing")
    demand_kind = DEMAND_KINDS[load_name]
    length_spread = (
        read_choice(table_row, "length_spread", tuple(LENGTH_SPREADS))
        or "fixed"
    )
    # Lengths drawn between 80 and 100 % of the nominal ones are shorter on average.
    mean_share = constant("drawn_share") if length_spread == "narrow" else 1.0
    prompt_tokens = read_number(table_row, "input_len") or _dataset_prompt(
        table_row, language_model
    )
    answer_tokens = read_number(table_row, "output_len") or 1.0
    user_count = read_number(table_row, "concurrency")
    if demand_kind in ("static", "burst", "closed") and not user_count:
        raise RefusedError("concurrency is missing")
    rate_per_s = (
        read_number(table_row, "request_rate_rps")
        if demand_kind == "open"
        else 0.0
    )
    if demand_kind == "open" and not rate_per_s:
        raise RefusedError("request_rate_rps is missing")
    return Demand(
        request_count=read_number(table_row, "request_count")
        or read_number(table_row, "n_requests")
        or math.inf,
        message_tokens=float(read_count(table_row, "stream_interval", 1)),
        limits=_row_limits(table_row),
        load_kind=demand_kind,
        prompt_tokens=prompt_tokens * mean_share,
        answer_tokens=max(1.0, answer_tokens * mean_share),
        user_count=user_count,
        rate_per_s=rate_per_s,
        length_keys=LENGTH_SPREADS[length_spread],
    )


def _row_limits(table_row: Row) -> LatencyLimits | None:
    """Return the limits of a row on both 99th percentiles; None unless it states both."""
    ttft_p99_ms = read_number(table_row, "sla_ttft_p99_ms")
    tpot_p99_ms = read_number(table_row, "sla_tpot_p99_ms")
    if not ttft_p99_ms or not tpot_p99_ms:
        return None
    return LatencyLimits(ttft_p99_ms / MS_PER_S, tpot_p99_ms / MS_PER_S)


@cache
def _dataset_lengths() -> dict[str, float]:
    length = table.real_between(1, 1_000_000)
    column_types = {
        "model": table.nonempty_text,
        "input_tokens": length,
        "input_most": length,
        "output_most": length,
        **table.SOURCE_COLUMNS,
    }
    return {
        dataset_row["model"]: dataset_row["input_tokens"]
        for dataset_row in table.load_rows(
            "planner.estimate", "datasets.csv", column_types
        )
    }


def _dataset_prompt(table_row: Row, language_model: Llm) -> float:
    """Return the mean prompt of a benchmark's dataset, which its rows leave out."""
    prompt_tokens = _dataset_lengths().get(language_model.model)
    if prompt_tokens is None or not read_benchmark(table_row):
        raise RefusedError("input_len is missing")
    return prompt_tokens
