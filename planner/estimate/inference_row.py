"""Reads one row of a table of configurations; columns that hold measurements are never read."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.estimate import names
from planner.estimate.draft import parse_draft
from planner.estimate.names import RefusedError
from planner.perf.common.coefficient_table import REFERENCE_YEAR
from planner.perf.common.constant import constant
from planner.perf.common.layout import Node, ReplicaLayout, can_shard
from planner.perf.serving.deployment import Demand, Deployment, LoadKind
from planner.perf.serving.engine import (
    VARIED_LENGTHS,
    ServingEngine,
    engine_rows,
    kv_precision,
)
from planner.perf.serving.step import NO_DRAFT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

CONTEXT_STRETCH: Final = (
    2  # contexts are stretched by up to this in published runs
)
HOST_GPUS: Final = 8  # accelerators of a machine without a larger link
MAX_NUMBER: Final = 10_000_000
DEMAND_KINDS: Final[dict[str, LoadKind]] = {
    "offline_max": "offline",
    "static_batch": "static",
    "concurrency": "closed",
    "rate": "open",
    "all_at_once": "static",
}
POOL_PATTERN: Final = r"{} N workers? x N GPU \(tpN adpN epN\)".replace(
    "N", r"([1-9]\d{{0,4}})"
)
POOLS_PATTERN: Final = re.compile(
    POOL_PATTERN.format("prefill") + "; " + POOL_PATTERN.format("decode")
)
MLPERF_SCENARIOS: Final = ("Server", "Interactive")


def row_deployment(table_row: Mapping[str, str]) -> Deployment:
    """Return the configuration of a row; raises RefusedError with what is wrong."""
    language_model = names.resolve_model(table_row["model"])
    accelerator = names.resolve_gpu(table_row["gpu"])
    weight_precision = _row_precision(table_row, language_model, accelerator)
    engine_name = names.resolve_engine(table_row["framework"])
    decode_layout, replica_count, prefill_pool = _row_layout(
        table_row, weight_precision, language_model
    )
    kv_format = names.resolve_kv_cache(
        table_row.get("kv_precision") or ""
    ) or kv_precision(engine_name, language_model, weight_precision)
    pool_layouts = (
        [decode_layout]
        if prefill_pool is None
        else [decode_layout, prefill_pool[1]]
    )
    kv_layouts = [
        replace(pool_layout, kv_precision=kv_format)
        for pool_layout in pool_layouts
    ]
    for kv_layout in kv_layouts:
        _check_layout(language_model, kv_layout)
    row_demand = _row_demand(table_row)
    draft_model = parse_draft(table_row.get("spec_decode") or "")
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
        engine=_row_engine(table_row, engine_name),
        demand=row_demand,
        replica_count=replica_count,
        prefill_workers=None
        if prefill_pool is None
        else (prefill_pool[0], kv_layouts[1]),
        speculative=draft_model is not None,
        draft=draft_model or NO_DRAFT,
    )


def _row_precision(
    table_row: Mapping[str, str], language_model: Llm, accelerator: Accelerator
) -> str:
    weight_precision = names.resolve_precision(
        table_row.get("weight_precision")
        or table_row.get("precision")
        or "bf16"
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
    is_supported = accelerator.supports(weight_precision) or (
        accelerator.vendor == "nvidia"
        and float(accelerator.compute_capability) >= 8
    )
    if not is_supported:
        raise RefusedError(
            f"{accelerator.accelerator} does not compute {weight_precision}"
        )
    return weight_precision


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
    table_row: Mapping[str, str], weight_precision: str, language_model: Llm
) -> tuple[ReplicaLayout, int, tuple[int, ReplicaLayout] | None]:
    """Return the layout of a replica, how many there are, and the prefill workers."""
    disagg_text = (table_row.get("disagg_layout") or "").strip()
    pools_match = POOLS_PATTERN.fullmatch(disagg_text)
    if disagg_text and not pools_match:
        raise RefusedError(f"disagg_layout '{disagg_text}' is not understood")
    if pools_match:
        pool_sizes = [int(size_text) for size_text in pools_match.groups()]
        prefill_layout = _pool_layout(
            weight_precision, pool_sizes[1], 1, pool_sizes[4], pool_sizes[3]
        )
        return (
            _pool_layout(
                weight_precision, pool_sizes[6], 1, pool_sizes[9], pool_sizes[8]
            ),
            pool_sizes[5],
            (pool_sizes[0], prefill_layout),
        )
    if (table_row.get("serving_mode") or "").startswith("disagg"):
        raise RefusedError(
            "the layout of the prefill and decode workers is not given"
        )
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
        and not table_row.get("attn_dp")
        and _is_mlperf(table_row)
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


def _link_domain(
    accelerator: Accelerator, table_row: Mapping[str, str]
) -> Node:
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
        if accelerator.link == "none" or _is_pcie(table_row)
        else scaleup_link,
        network_gb_s=gpu_count * constant("network_each"),
    )


def _is_pcie(table_row: Mapping[str, str]) -> bool:
    return "interconnect: PCIe" in (table_row.get("notes") or "")


def _row_engine(
    table_row: Mapping[str, str], engine_name: str
) -> ServingEngine:
    engine_facts = engine_rows()[engine_name]
    engine_year = _release_year(
        engine_name, table_row.get("framework_version") or ""
    ) or date_year(table_row.get("source_date") or "", engine_facts["year"])
    is_modern = engine_year >= REFERENCE_YEAR and not _is_mlperf(table_row)
    if (
        engine_name == "trtllm"
        and not is_modern
        and "PyTorch" not in table_row["framework"]
    ):
        engine_facts = engine_rows()["trtllm-cpp"]
    max_batch_match = re.search(
        r"max batch per engine=(\d+)", table_row.get("notes") or ""
    )
    return ServingEngine(
        kind=engine_facts["kind"],
        software_year=engine_year,
        max_sequences=int(max_batch_match[1])
        if max_batch_match
        else engine_facts["sequences"],
        latency_tuned=(table_row.get("scenario") or "") in MLPERF_SCENARIOS,
    )


@cache
def _release_table() -> tuple[tuple[str, str, float], ...]:
    csv_text = (
        files("planner.estimate")
        .joinpath("data", "releases.csv")
        .read_text(encoding="utf-8")
    )
    release_rows = csv.DictReader(csv_text.splitlines())
    return tuple(
        (
            release_row["engine"],
            release_row["version"],
            float(release_row["year"]),
        )
        for release_row in release_rows
    )


def _release_year(engine_name: str, version_text: str) -> float | None:
    """Return the year of the newest release whose number a version starts with."""
    for release_engine, release_number, release_year in _release_table():
        if release_engine == engine_name and re.match(
            rf"{re.escape(release_number)}(\D|$)", version_text.strip(" v~")
        ):
            return release_year
    return None


def date_year(date_text: str, default_year: float) -> float:
    """Return a date such as 2025-06-30 as a year with its month as a fraction."""
    date_match = re.search(r"(20\d\d)(?:-(\d\d))?", date_text)
    if not date_match or date_text.startswith("<"):
        return default_year
    return int(date_match[1]) + (int(date_match[2] or 6) - 1) / 12


def _is_mlperf(table_row: Mapping[str, str]) -> bool:
    return (table_row.get("source_group") or "").startswith("mlperf") or (
        table_row.get("scenario") or ""
    ) in (
        *MLPERF_SCENARIOS,
        "Offline",
    )


def _row_demand(table_row: Mapping[str, str]) -> Demand:
    demand_kind = DEMAND_KINDS[names.resolve_load(table_row["load_kind"])]
    length_kind = table_row.get("len_kind") or ""
    mean_share = (
        constant("drawn_share")
        if length_kind.startswith("uniform in [0.8,1.0]")
        else 1.0
    )
    prompt_tokens = read_number(table_row, "input_len") or _dataset_prompt(
        table_row
    )
    answer_tokens = read_number(table_row, "output_len") or 1.0
    user_count = read_number(table_row, "concurrency")
    if names.resolve_load(table_row["load_kind"]) == "all_at_once":
        user_count = float(
            re.sub(r"\D", "", table_row["load_kind"]) or user_count or 1
        )
    if demand_kind in ("static", "closed") and not user_count:
        raise RefusedError("concurrency is missing")
    rate_per_s = (
        read_number(table_row, "request_rate_rps")
        if demand_kind == "open"
        else 0.0
    )
    if demand_kind == "open" and not rate_per_s:
        raise RefusedError("request_rate_rps is missing")
    request_match = re.search(
        r"(\d+) requests", table_row.get("scenario") or ""
    )
    return Demand(
        request_count=float(request_match[1]) if request_match else math.inf,
        load_kind=demand_kind,
        prompt_tokens=prompt_tokens * mean_share,
        answer_tokens=max(1.0, answer_tokens * mean_share),
        user_count=user_count,
        rate_per_s=rate_per_s,
        length_keys=VARIED_LENGTHS
        if length_kind.startswith("dataset")
        else VARIED_LENGTHS[:1]
        if mean_share < 1
        else (),
    )


@cache
def _dataset_lengths() -> dict[str, float]:
    csv_text = (
        files("planner.estimate")
        .joinpath("data", "datasets.csv")
        .read_text(encoding="utf-8")
    )
    return {
        dataset_row["model"]: float(dataset_row["input_tokens"])
        for dataset_row in csv.DictReader(csv_text.splitlines())
    }


def _dataset_prompt(table_row: Mapping[str, str]) -> float:
    """Return the mean prompt of a benchmark's dataset, which its rows leave out."""
    prompt_tokens = _dataset_lengths().get(
        names.resolve_model(table_row["model"]).model
    )
    if prompt_tokens is None or not _is_mlperf(table_row):
        raise RefusedError("input_len is missing")
    return prompt_tokens


def read_number(table_row: Mapping[str, str], column: str) -> float:
    """Return a number above 0, or 0 when the cell is empty."""
    cell_text = (table_row.get(column) or "").strip()
    if not cell_text:
        return 0.0
    try:
        cell_number = float(cell_text)
    except ValueError:
        raise RefusedError(f"{column} '{cell_text}' is not a number") from None
    if not 0 < cell_number < MAX_NUMBER or math.isnan(cell_number):
        raise RefusedError(
            f"{column} {cell_text} is not between 0 and {MAX_NUMBER:,}"
        )
    return cell_number


def read_count(
    table_row: Mapping[str, str], column: str, default_count: int
) -> int:
    """Return a whole number of 1 or more; of several alternatives, the first."""
    cell_text = (table_row.get(column) or "").split("|")[0].strip()
    if not cell_text:
        return default_count
    try:
        cell_number = float(cell_text)
    except ValueError:
        cell_number = math.nan
    if not cell_number.is_integer():
        raise RefusedError(f"{column} '{cell_text}' is not a whole number")
    if not 1 <= cell_number <= 100_000:
        raise RefusedError(f"{column} {cell_text} is not between 1 and 100,000")
    return int(cell_number)
