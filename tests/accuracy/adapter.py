"""Turns published rows, with their notes and names of sources, into rows of typed columns.

The program reads typed columns only (docs/estimate.md). What publications say in prose is
understood here, and nowhere else: a row that is written by hand never passes this module.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from planner.estimate import names
from planner.estimate.names import RefusedError
from planner.estimate.software import FRAMEWORK_KERNELS, kernel_class
from planner.facts.accelerator import Accelerator
from planner.perf.common.constant import constant

Row: TypeAlias = Mapping[str, str]
TypedRow: TypeAlias = dict[str, str]
TRUTH: Final = Path(__file__).parents[1] / "data" / "truth"
SERVING_COLUMNS: Final = (  # that truth and program spell alike
    "row_id",
    "model",
    "n_gpus",
    "ep",
    "attn_dp",
    "replicas",
    "disagg_layout",
    "request_rate_rps",
    "input_len",
    "output_len",
)
TRAINING_COLUMNS: Final = (
    "row_id",
    "kind",
    "model",
    "n_gpus",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "seq_len",
    "micro_batch",
    "global_batch",
    "grad_accum",
)
STARTUP_COLUMNS: Final = (
    "row_id",
    "kind",
    "gpu_mem_gib",
    "tp",
    "pp",
    "max_model_len",
    "gpu_memory_utilization",
)
GPUS: Final[Mapping[str, str]] = {  # what a publication means by a size
    "22gb class": "a10g",
    "22gb turing/ampere (21.48 gib)": "rtx-2080-ti-22gb",
    "80gb": "h100-sxm",
    "80gb (79.14 gib)": "h100-sxm",
    "80gb class (assumed h100)": "h100-sxm",
    "96gb class": "rtx-pro-6000-bse",
}
MODELS: Final[Mapping[str, str]] = {
    "meta-llama-3-8b single safetensors": "llama-3-8b",
    "qwen2.5-vl-32b (lingshu-32b)": "qwen2.5-32b",
}
ENGINES: Final[Mapping[str, str]] = {
    "tensorrt-llm + triton backend": "trtllm-cpp",
}
# The first text that a framework's name holds tells which it is.
TRAINERS: Final[Mapping[str, str]] = {
    "megatron-bridge": "megatron-bridge",
    "megatron-lm": "megatron-lm",
    "llm-foundry": "llm-foundry",
    "torchtitan": "torchtitan",
    "torchtune": "torchtune",
    "maxtext": "maxtext",
    "neuron": "neuronx",
    "meta internal": "fairscale",
    "torch": "pytorch",
}
UNKNOWN_TRAINER: Final = "nemo"  # stacks of vendors run fused kernels
PRECISIONS: Final = (  # the first pattern that a precision holds
    ("not parsed|unknown", ""),
    ("nvfp4", "nvfp4"),
    ("mx", "mxfp8"),
    ("rowwise", "fp8row"),
    ("fp8|float8", "fp8"),
    ("int8", "int8"),
    ("fp16", "fp16"),
)
SHARDINGS: Final = (
    ("shard_grad|zero-2", "zero2"),
    ("fsdp|zero-3", "zero3"),
    ("zero-1|distributed", "zero1"),
    (".", "none"),
)
RECOMPUTED: Final = (
    ("^true|^full", "full"),
    ("layer", "layer"),
    ("selective", "selective"),
    ("^false$|^none$|sequence", "none"),
)
NETWORKS: Final = (  # GB/s one way of each accelerator
    ("hdr", "25"),
    ("xdr 800", "100"),
    ("400 ?gb/s rdma|ndr ?400", "50"),
)
NODE_GPUS: Final = 8
BITS: Final = 8
CORES_PER_CHIP: Final = 2  # of Trainium, whose degrees are published in cores
MEMORY_CHUNKS: Final = (
    3  # of a stage, in papers whose tables of memory state none
)
RELEASE: Final = re.compile(
    r"^v?~?(\d+(?:\.\d+)*(?:[.-]?(?:rc|pre|post|dev)\d*)*)"
)
# Of a span of years, such as 2023-2024, the first counts.
DATE: Final = re.compile(r"20\d\d(?:-(?:0[1-9]|1[0-2])\b(?:-\d\d)?)?")


def serving_row(truth_row: Row) -> TypedRow:
    """Return the typed columns of a measured deployment."""
    notes = _text(truth_row, "notes")
    framework = _text(truth_row, "framework").lower()
    load_kind = _text(truth_row, "load_kind")
    started_at_once = re.fullmatch(r"all_at_once_(\d+)", load_kind)
    typed = {
        name: _text(truth_row, name)
        for name in SERVING_COLUMNS
        if name in truth_row
    }
    return typed | {
        "model": _model(truth_row),
        "gpu": _gpu(truth_row),
        "framework": ENGINES.get(framework, framework.split("(")[0].strip()),
        "backend": "pytorch" if "pytorch" in framework else "",
        "version": _release(truth_row),
        "date": _date(truth_row),
        "benchmark": _benchmark(truth_row),
        "weight_precision": _bare(truth_row, "weight_precision"),
        "kv_precision": _bare(truth_row, "kv_precision"),
        # Of several alternatives the first is predicted.
        "tp": _text(truth_row, "tp").split("|")[0],
        "pp": _text(truth_row, "pp").split("|")[0],
        "serving_mode": "disagg"
        if _text(truth_row, "serving_mode").startswith("disagg")
        else "agg",
        "interconnect": "pcie" if "interconnect: PCIe" in notes else "",
        "max_sequences": _captured(r"max batch per engine=(\d+)", notes),
        "load_kind": {"poisson_rate": "rate"}.get(
            load_kind, "all_at_once" if started_at_once else load_kind
        ),
        "concurrency": started_at_once[1]
        if started_at_once
        else _text(truth_row, "concurrency"),
        "request_count": _captured(
            r"(\d+) requests", _text(truth_row, "scenario")
        ),
        "length_spread": _length_spread(truth_row),
        **_draft(truth_row),
    }


def training_row(truth_row: Row) -> TypedRow:
    """Return the typed columns of a measured training run, or of its measured memory."""
    accelerator = names.resolve_gpu(_gpu(truth_row))
    notes = _text(truth_row, "notes").lower()
    framework = _trainer(truth_row)
    sharding_text = _text(truth_row, "sharding").lower()
    recompute_text = _text(truth_row, "act_ckpt").lower()
    is_torchtune = framework == "torchtune"
    typed = {
        name: _text(truth_row, name)
        for name in TRAINING_COLUMNS
        if name in truth_row
    } | {
        "model": _model(truth_row),
        "gpu": _gpu(truth_row),
        "framework": framework,
        "version": _release(truth_row),
        "date": _date(truth_row),
        "method": _method(truth_row),
        "precision": _product_precision(truth_row, accelerator),
        "tp": _chip_degree(truth_row, accelerator),
        "sharding": _first_name(SHARDINGS, sharding_text),
        "shard_size": _captured(r"megatron-fsdp (\d+)", sharding_text),
        "recompute": _first_name(RECOMPUTED, recompute_text),
        "sequence_parallel": _yes("sequence" in recompute_text),
        "compiled": _yes(_is_compiled(framework, notes)),
        "async_tp": _yes("async" in notes),
        "gather_precision": "fp8" if "all-gather" in notes else "",
        "routing": "token_drop" if "tokendrop)" in notes else "",
        "document_tokens": _document_tokens(truth_row, framework),
        "optimizer": _optimizer(notes) if is_torchtune else "",
        "offload_states": _yes(is_torchtune and "cpu offload" in notes),
        "optimizer_in_backward": _yes(
            is_torchtune and "optimizer-in-backward" in notes
        ),
        "network_gb_s": _network(truth_row),
    }
    return typed | _chunks(truth_row, typed)


def memory_row(truth_row: Row) -> TypedRow:
    """Return the typed columns of a row of measured memory."""
    if _text(truth_row, "kind").startswith("training"):
        return training_row(truth_row)
    typed = {
        name: _text(truth_row, name)
        for name in STARTUP_COLUMNS
        if name in truth_row
    }
    return typed | {
        "model": _model(truth_row),
        "gpu": _gpu(truth_row),
        "framework": _text(truth_row, "framework"),
        "date": _date(truth_row),
        "precision": _text(truth_row, "precision"),
        "kv_precision": _text(truth_row, "kv_precision"),
    }


def startup_row(log_row: Row) -> TypedRow:
    """Return the typed columns of a published log of vLLM.

    Cards that logs only hint at are named by their memory alone.
    """
    typed = memory_row(
        {
            **log_row,
            "kind": "inference_vllm_startup",
            "gpu_mem_gib": log_row["gpu_total_gib"],
            "source_date": log_row["date"],
        }
    )
    try:
        names.resolve_gpu(typed["gpu"])
    except RefusedError:
        typed["gpu"] = ""
    return typed


ADAPTERS: Final[Mapping[str, Callable[[Row], TypedRow]]] = {
    "inference.csv": serving_row,
    "training.csv": training_row,
    "memory.csv": memory_row,
}


def typed_rows(name: str) -> list[TypedRow]:
    """Return the rows of a table of the truth in typed columns."""
    lines = (TRUTH / name).read_text(encoding="utf-8").splitlines()
    return [ADAPTERS[name](row) for row in csv.DictReader(lines)]


def written(table_rows: Sequence[Row]) -> str:
    """Return rows as the text of a table."""
    buffer = io.StringIO()
    header = dict.fromkeys(column for row in table_rows for column in row)
    writer = csv.DictWriter(buffer, list(header), restval="")
    writer.writeheader()
    writer.writerows(table_rows)
    return buffer.getvalue()


def _text(truth_row: Row, name: str) -> str:
    return (truth_row.get(name) or "").strip()


def _bare(truth_row: Row, name: str) -> str:
    """A cell without its remark in parentheses."""
    return _text(truth_row, name).split("(")[0].strip()


def _yes(stated: bool) -> str:
    """A typed flag: what is not stated stays blank."""
    return "yes" if stated else ""


def _captured(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def _first_name(patterns: Sequence[tuple[str, str]], text: str) -> str:
    """The name of the first pattern that a text holds."""
    return next(
        (name for pattern, name in patterns if re.search(pattern, text)), ""
    )


def _model(truth_row: Row) -> str:
    spelling = _text(truth_row, "model")
    return MODELS.get(spelling.lower(), spelling)


def _gpu(truth_row: Row) -> str:
    spelling = _text(truth_row, "gpu")
    return GPUS.get(spelling.lower(), spelling.split("(")[0].strip())


def _release(truth_row: Row) -> str:
    """The release of a framework; versions of what lies below it say nothing of it."""
    return _captured(RELEASE.pattern, _text(truth_row, "framework_version"))


def _date(truth_row: Row) -> str:
    """The date of a publication; one that is only a limit is none."""
    date_text = _text(truth_row, "source_date")
    date_match = DATE.search(date_text)
    is_limit = date_text.startswith("<")
    return date_match[0] if date_match and not is_limit else ""


def _benchmark(truth_row: Row) -> str:
    """The rules of MLPerf that a row followed, by the scenario of its source."""
    scenario = _text(truth_row, "scenario")
    if scenario in ("Offline", "Server", "Interactive"):
        return f"mlperf_{scenario.lower()}"
    is_mlperf = _text(truth_row, "source_group").startswith("mlperf")
    return "mlperf_offline" if is_mlperf else ""


def _length_spread(truth_row: Row) -> str:
    length_kind = _text(truth_row, "len_kind")
    if length_kind.startswith("uniform in [0.8,1.0]"):
        return "narrow"
    return "wide" if length_kind.startswith("dataset") else "fixed"


def _draft(truth_row: Row) -> TypedRow:
    """Speculative decoding: its kind and tokens, or that it may have been on."""
    told = _text(truth_row, "spec_decode").lower()
    if not told or told.startswith("no"):
        return {"draft": "none"}
    draft_match = re.match(r"(mtp|eagle3?|medusa|ngram)-(\d{1,2})\b", told)
    if not draft_match:
        return {"draft": "unknown"}
    return {"draft": draft_match[1], "draft_tokens": draft_match[2]}


def _trainer(truth_row: Row) -> str:
    framework = _text(truth_row, "framework").lower()
    name = next(
        (name for text, name in TRAINERS.items() if text in framework),
        UNKNOWN_TRAINER,
    )
    assert name in FRAMEWORK_KERNELS
    return name


def _method(truth_row: Row) -> str:
    """What is trained; sources say it in the task, in their notes or in the name of a row."""
    told = " ".join(
        _text(truth_row, name) for name in ("task", "notes", "row_id")
    ).lower()
    if "qlora" in told or "nf4" in _text(truth_row, "precision").lower():
        return "qlora"
    return "lora" if "lora" in told else "full"


def _product_precision(truth_row: Row, accelerator: Accelerator) -> str:
    """The precision of products; one that was not published is the usual of date and vendor."""
    told = _text(truth_row, "precision").lower()
    if not re.search("not parsed|unknown", told):
        return _first_name(PRECISIONS, told) or "bf16"
    if accelerator.vendor == "google":
        return "int8"
    is_newest = (
        "v5.1" in _text(truth_row, "source_group")
        and "Blackwell" in accelerator.architecture
    )
    return "nvfp4" if is_newest else "fp8"


def _chip_degree(truth_row: Row, accelerator: Accelerator) -> str:
    told = _text(truth_row, "tp")
    if accelerator.vendor != "aws" or not told:
        return told
    return str(max(1, int(told) // CORES_PER_CHIP))


def _is_compiled(framework: str, notes: str) -> bool:
    """Whether torch.compile ran; torchtitan's tensor parallelism was measured with it."""
    is_tensor_parallel = framework == "torchtitan" and re.search(
        r"\btp\b", notes
    )
    return "compile" in notes or bool(is_tensor_parallel)


def _document_tokens(truth_row: Row, framework: str) -> str:
    """The tuning recipes of Megatron-Bridge pack short documents."""
    is_tuning = _text(truth_row, "task") in ("sft", "lora", "qlora")
    is_packed = is_tuning and framework == "megatron-bridge"
    return f"{constant('train_context'):.0f}" if is_packed else ""


def _optimizer(notes: str) -> str:
    if "paged" in notes:
        return "paged"
    return "adam8bit" if "8bit" in notes else ""


def _network(truth_row: Row) -> str:
    fabric = _text(truth_row, "fabric").lower()
    node_gbit_s = _captured(r"(\d+) ?gbps/node", fabric)
    if node_gbit_s:
        return str(float(node_gbit_s) / BITS / NODE_GPUS)
    return _first_name(NETWORKS, fabric)


def _chunks(truth_row: Row, typed: Row) -> TypedRow:
    """Chunks of a stage that tables of memory leave out: three, where they divide the layers."""
    stages = int(_text(truth_row, "pp") or 1)
    is_torch = kernel_class(typed) in ("eager", "compiled", "foundry")
    model = names.resolve_model(typed["model"])
    if "kind" not in truth_row or stages == 1 or is_torch or model.experts:
        return {}
    divides = model.layers % (MEMORY_CHUNKS * stages) == 0
    return {"vpp": str(MEMORY_CHUNKS if divides else 1)}
