"""Reads one row of a table of training runs; columns that hold measurements are never read."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.estimate import names
from planner.estimate.inference_row import HOST_GPUS, read_count, read_number
from planner.estimate.names import RefusedError
from planner.estimate.software import row_software
from planner.perf.training.job import Job, ParallelLayout
from planner.perf.training.model_states import frozen_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.training.job import Recompute, Sharding, Software

Row: TypeAlias = "Mapping[str, str]"
DEFAULT_GPUS: Final = 1024  # accelerators of a run that does not say how many
ACTIVATION_SIZE: Final = 80e6  # of one activation at the micro-batch that is taken when none is stated
MAX_BUBBLE: Final = 0.1  # share of a step that idles, above which a pipeline is interleaved more
CHUNK_LAYERS: Final = 4  # layers of an interleaved chunk where none is stated
ADAPTER_RANK: Final = 8  # of adapters
LARGE_GPU_GIB: Final = (
    100.0  # memory from which tensor parallelism is not assumed for adapters
)
FROZEN_8BIT_BYTES: Final = 1.1  # with scales and what stays in 16 bit
DEFAULT_TP: Final = 4


@dataclass(frozen=True, slots=True)
class ParsedJob:
    """The job of a row, and whether its layout or size had to be assumed."""

    job: Job
    is_assumed: bool


def parse_job(table_row: Row) -> ParsedJob:
    """Return the job of a row; raises RefusedError with what is wrong."""
    language_model = names.resolve_model(table_row["model"])
    accelerator = names.resolve_gpu(table_row["gpu"])
    if not (accelerator.bandwidth_gb_s and accelerator.bf16_tflops):
        raise RefusedError(
            f"the data sheet of {accelerator.accelerator} is not known"
        )
    if accelerator.link == "none":
        accelerator = replace(accelerator, link_domain=HOST_GPUS)
    software_facts = row_software(table_row, language_model, accelerator)
    gpu_count = read_count(table_row, "n_gpus", 0) or _stated_gpus(table_row)
    sequence_tokens = int(read_number(table_row, "seq_len"))
    is_assumed = not gpu_count or not sequence_tokens
    sequence_tokens = sequence_tokens or (
        2048
        if software_facts.kernels == "xla" or language_model.family == "gpt"
        else 8192
    )
    parallel_layout, global_batch, is_guessed = _row_layout(
        table_row,
        language_model,
        accelerator,
        (software_facts, gpu_count or DEFAULT_GPUS, sequence_tokens),
    )
    frozen_bytes_each = _frozen_param_bytes(table_row, software_facts)
    host_options = _host_options(table_row)
    return ParsedJob(
        Job(
            llm=language_model,
            chip=accelerator,
            layout=parallel_layout,
            software=software_facts,
            sequence_tokens=sequence_tokens,
            global_batch=global_batch,
            network_bytes_s=_network_gb_s(table_row, accelerator) * 1e9,
            optimizer=_row_optimizer(table_row, software_facts, gpu_count),
            frozen_bytes=frozen_bytes_each,
            lora_rank=ADAPTER_RANK if frozen_bytes_each else 0,
            offload_states=host_options["offload"],
            fused_backward=host_options["backward_step"],
        ),
        is_assumed or is_guessed,
    )


def _stated_gpus(table_row: Row) -> int:
    parallel_degrees = [
        read_count(table_row, column, 0) for column in ("tp", "pp", "cp", "dp")
    ]
    return (
        math.prod(max(1, degree) for degree in parallel_degrees)
        if parallel_degrees[0]
        else 0
    )


def _row_layout(
    table_row: Row,
    language_model: Llm,
    accelerator: Accelerator,
    run_facts: tuple[Software, int, int],
) -> tuple[ParallelLayout, float, bool]:
    """Return the layout, the global batch in sequences, and whether the layout was assumed."""
    software_facts, gpu_count, sequence_tokens = run_facts
    tp_degree, pp_degree, cp_degree = (
        read_count(table_row, column, 0) for column in ("tp", "pp", "cp")
    )
    global_batch, micro_batch = (
        float(read_count(table_row, column, 0))
        for column in ("global_batch", "micro_batch")
    )
    accumulation_steps = read_count(table_row, "grad_accum", 0)
    sharding_kind = _row_sharding(table_row, software_facts)
    tp_degree = (
        max(1, tp_degree // 2)
        if accelerator.vendor == "aws" and tp_degree
        else tp_degree
    )  # cores, two to a chip
    is_guessed = not tp_degree
    if is_guessed:
        tp_degree, pp_degree, cp_degree, sharding_kind = _default_layout(
            table_row,
            software_facts,
            accelerator,
            (gpu_count, global_batch, micro_batch or 1.0, accumulation_steps),
        )
        micro_batch = micro_batch or (
            1.0 if accelerator.vendor == "google" or global_batch else 0.0
        )
        global_batch = global_batch or (
            float(gpu_count) if accelerator.vendor == "google" else 0.0
        )
    pp_degree = max(1, pp_degree)
    cp_degree = max(1, cp_degree)
    if gpu_count % (tp_degree * pp_degree * cp_degree) and not is_guessed:
        raise RefusedError(
            f"n_gpus {gpu_count} is not a multiple of tp {tp_degree} x pp {pp_degree} x "
            f"cp {cp_degree}"
        )
    stated_dp = read_count(table_row, "dp", 0)
    dp_degree = (
        stated_dp
        if stated_dp and not is_guessed
        else max(1, gpu_count // (tp_degree * pp_degree * cp_degree))
    )
    if (
        software_facts.is_torch and pp_degree > 1 and micro_batch >= pp_degree
    ):  # the local batch is cut into pp micro-batches
        global_batch = global_batch or micro_batch * dp_degree
        micro_batch = micro_batch / pp_degree
    if not micro_batch:
        batch_per_rank = global_batch / dp_degree if global_batch else 64.0
        micro_batch = (
            max(1.0, batch_per_rank / accumulation_steps)
            if accumulation_steps
            else min(
                _default_microbatch(language_model, sequence_tokens),
                max(1.0, batch_per_rank),
            )
        )
    global_batch = global_batch or micro_batch * dp_degree
    micro_batch = (
        max(global_batch / dp_degree, 1e-3)
        if global_batch < dp_degree * micro_batch
        else micro_batch
    )
    return (
        ParallelLayout(
            tp=tp_degree,
            pp=pp_degree,
            vpp=_pipeline_chunks(
                table_row,
                language_model,
                software_facts,
                (pp_degree, global_batch / dp_degree / micro_batch),
            ),
            cp=cp_degree,
            dp=dp_degree,
            ep=max(1, read_count(table_row, "ep", 1))
            if language_model.experts
            else 1,
            sharding=sharding_kind,
            micro=micro_batch,
            shard_size=_shard_group(table_row),
            recompute=_row_recompute(table_row, software_facts),
        ),
        global_batch,
        is_guessed,
    )


def _default_layout(
    table_row: Row,
    software_facts: Software,
    accelerator: Accelerator,
    run_sizes: tuple[int, float, float, int],
) -> tuple[int, int, int, Sharding]:
    """Take a layout for a run that states none: from its batch, else sharded over everything."""
    gpu_count, global_batch, micro_batch, accumulation_steps = run_sizes
    if accelerator.vendor == "google" or not global_batch:
        return 1, 1, 1, "zero3"
    dp_degree = (
        max(1, round(global_batch / micro_batch / accumulation_steps))
        if accumulation_steps
        else gpu_count
    )
    model_group_gpus = max(1, gpu_count // dp_degree)
    if _frozen_param_bytes(table_row, software_facts):
        tp_degree = min(
            model_group_gpus,
            DEFAULT_TP if accelerator.memory_gib < LARGE_GPU_GIB else 1,
        )
        return tp_degree, 1, model_group_gpus // tp_degree, "zero1"
    tp_degree = min(model_group_gpus, DEFAULT_TP)
    return tp_degree, max(1, model_group_gpus // tp_degree), 1, "zero1"


def _default_microbatch(language_model: Llm, sequence_tokens: int) -> float:
    """The micro-batch at which one activation reaches 80 million elements, a power of two."""
    return float(
        2
        ** max(
            0,
            math.floor(
                math.log2(
                    max(
                        1.0,
                        ACTIVATION_SIZE
                        / (sequence_tokens * language_model.hidden),
                    )
                )
            ),
        )
    )


def _pipeline_chunks(
    table_row: Row,
    language_model: Llm,
    software_facts: Software,
    pipeline_sizes: tuple[int, float],
) -> int:
    """Interleaved chunks of a stage; where none are stated, four layers each in Megatron.

    Since chunks may be of any size, they are taken finer where the bubble would be large.
    """
    stated_chunks, (pp_degree, microbatch_count) = (
        read_count(table_row, "vpp", 0),
        pipeline_sizes,
    )
    if stated_chunks:
        return stated_chunks
    if pp_degree == 1 or language_model.experts:
        return 1
    if software_facts.is_torch:
        return (
            2 if "interleaved" in (table_row.get("notes") or "").lower() else 1
        )
    if (
        "kind" in table_row
    ):  # tables of memory state no chunks: three, where they divide
        return 3 if language_model.layers % (3 * pp_degree) == 0 else 1
    usual_chunks = (
        language_model.layers // pp_degree // CHUNK_LAYERS
        if software_facts.kernels in ("te", "megatron21")
        else 1
    )
    bubble_chunks = (
        math.ceil((pp_degree - 1) / microbatch_count / MAX_BUBBLE)
        if software_facts.kernels == "te"
        else 1
    )
    return max(
        1,
        usual_chunks,
        min(math.ceil(language_model.layers / pp_degree), bubble_chunks),
    )


def _row_sharding(table_row: Row, software_facts: Software) -> Sharding:
    sharding_text = (table_row.get("sharding") or "").lower()
    if "shard_grad" in sharding_text or "zero-2" in sharding_text:
        return "zero2"
    if "fsdp" in sharding_text or "zero-3" in sharding_text:
        return "zero3"
    if (
        "zero-1" in sharding_text
        or "distributed" in sharding_text
        or (not sharding_text and software_facts.kernels == "te")
    ):
        return "zero1"
    return "none"


def _shard_group(table_row: Row) -> int:
    group_match = re.search(
        r"megatron-fsdp (\d+)", (table_row.get("sharding") or "").lower()
    )
    return int(group_match[1]) if group_match else 0


def _row_recompute(table_row: Row, software_facts: Software) -> Recompute:
    recompute_text = (table_row.get("act_ckpt") or "").lower()
    if recompute_text.startswith(("true", "full")):
        return "full"
    if "layer" in recompute_text:
        return "layer"
    if "selective" in recompute_text:
        return "ops" if software_facts.is_torch else "attention"
    if recompute_text in ("false", "none") or "sequence" in recompute_text:
        return "none"
    return "forced"


def _frozen_param_bytes(table_row: Row, software_facts: Software) -> float:
    """Bytes of a parameter that is not trained; fused kernels keep it in 8 bit when they can."""
    task_text = " ".join(
        table_row.get(column) or "" for column in ("task", "notes", "row_id")
    ).lower()
    if (
        "qlora" in task_text
        or "nf4" in (table_row.get("precision") or "").lower()
    ):
        return frozen_bytes("qlora")
    is_8bit = (
        software_facts.kernels == "te" and software_facts.precision != "bf16"
    )
    return (
        (FROZEN_8BIT_BYTES if is_8bit else frozen_bytes("lora"))
        if "lora" in task_text
        else 0.0
    )


def _row_optimizer(
    table_row: Row, software_facts: Software, gpu_count: int
) -> str:
    """The optimizer that a framework takes by itself, or that a remark names."""
    framework_name = (table_row.get("framework") or "").lower()
    notes_text = (table_row.get("notes") or "").lower()
    if "torchtune" in framework_name:
        if "paged" in notes_text or gpu_count == 1:
            return "paged"
        return "adam8bit" if "8bit" in notes_text else "adamw-bf16"
    return "adamw-fp32" if software_facts.is_torch else "adamw"


def _host_options(table_row: Row) -> dict[str, bool]:
    notes_text = (table_row.get("notes") or "").lower()
    is_torchtune = "torchtune" in (table_row.get("framework") or "").lower()
    return {
        "offload": is_torchtune and "cpu offload" in notes_text,
        "backward_step": is_torchtune and "optimizer-in-backward" in notes_text,
    }


@cache
def _network_rates() -> dict[str, float]:
    csv_text = (
        files("planner.estimate")
        .joinpath("data", "networks.csv")
        .read_text(encoding="utf-8")
    )
    return {
        network_row["architecture"]: float(network_row["gb_s"])
        for network_row in csv.DictReader(csv_text.splitlines())
    }


def _network_gb_s(table_row: Row, accelerator: Accelerator) -> float:
    """GB/s one way of each accelerator beyond its link: as stated, else usual for the chip."""
    fabric_text = (table_row.get("fabric") or "").lower()
    node_match = re.search(r"(\d+) ?gbps/node", fabric_text)
    if node_match:
        return float(node_match[1]) / 8 / 8
    for fabric_pattern, fabric_gb_s in (
        ("hdr", 25.0),
        ("xdr 800", 100.0),
        ("400 ?gb/s rdma|ndr ?400", 50.0),
    ):
        if re.search(fabric_pattern, fabric_text):
            return fabric_gb_s
    return _network_rates().get(accelerator.architecture, 25.0)
