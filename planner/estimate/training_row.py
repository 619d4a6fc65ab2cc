"""Reads one row of a table of training runs; columns that hold measurements are never read."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.estimate import names
from planner.estimate.cell import (
    Row,
    read_choice,
    read_count,
    read_flag,
    read_number,
)
from planner.estimate.inference_row import HOST_GPUS
from planner.estimate.model_row import row_model
from planner.estimate.names import RefusedError
from planner.estimate.software import row_software, training_framework
from planner.estimate.training_layout import lay_out, stated_gpus
from planner.facts import table
from planner.facts.accelerator import SIXTEEN_BIT
from planner.facts.further_prediction import with_further_predictions
from planner.perf.training.job import Job, ParallelLayout
from planner.perf.training.model_states import (
    frozen_bytes,
    optimizers,
    reference_model,
)

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.perf.training.job import (
        Software,
    )

METHODS: Final = (
    "full",
    "lora",
    "qlora",
    # The words of a spec.
    "pretrain",
    "continued",
    "finetune",
    "dpo",
    "dpo-lora",
)
DEFAULT_NETWORK_GB_S: Final = 25.0  # of an architecture that nobody stated
DEFAULT_LATENCY_S: Final = 30e-6
US_PER_SECOND: Final = 1e6
ADAPTER_RANK: Final = 8  # of adapters
FROZEN_8BIT_BYTES: Final = 1.1  # with scales and what stays in 16 bit


class ParsedJob(Struct, frozen=True):
    """The job of a row, and whether its layout or size had to be assumed."""

    job: Job
    is_assumed: bool


def parse_job(table_row: Row) -> ParsedJob:
    """Return the job of a row; raises RefusedError with what is wrong."""
    language_model = with_further_predictions(
        row_model(table_row), read_count(table_row, "mtp_layers", 0)
    )
    accelerator = names.resolve_gpu(table_row["gpu"])
    if not (accelerator.bandwidth_gb_s and accelerator.bf16_tflops):
        raise RefusedError(
            f"the data sheet of {accelerator.accelerator} is not known"
        )
    if accelerator.link == "none":
        accelerator = replace(accelerator, link_domain=HOST_GPUS)
    software_facts = row_software(table_row, language_model, accelerator)
    gpu_count = stated_gpus(table_row, accelerator)
    sequence_tokens = int(read_number(table_row, "seq_len"))
    is_assumed = (
        not gpu_count or not sequence_tokens or language_model.is_assumed
    )
    sequence_tokens = sequence_tokens or (
        2048
        if software_facts.kernels == "xla" or language_model.family == "gpt"
        else 8192
    )
    frozen_bytes_each = _frozen_param_bytes(table_row, software_facts)
    network = _row_network(table_row, accelerator)
    training_job = Job(
        llm=language_model,
        chip=accelerator,
        layout=ParallelLayout(),
        software=software_facts,
        sequence_tokens=sequence_tokens,
        global_batch=0.0,
        network_bytes_s=network.gb_s * 1e9,
        network_latency_s=network.latency_s,
        optimizer=_row_optimizer(table_row, software_facts, gpu_count),
        frozen_bytes=frozen_bytes_each,
        lora_rank=ADAPTER_RANK if frozen_bytes_each else 0,
        offload_states=read_flag(table_row, "offload_states"),
        fused_backward=read_flag(table_row, "optimizer_in_backward"),
        reference=reference_model(_row_method(table_row)),
    )
    laid_out_job, is_guessed = lay_out(table_row, training_job, gpu_count)
    return ParsedJob(laid_out_job, is_assumed or is_guessed)


def _row_method(table_row: Row) -> str:
    return read_choice(table_row, "method", METHODS) or "full"


def _frozen_param_bytes(table_row: Row, software_facts: Software) -> float:
    """Bytes of a parameter that is not trained; fused kernels keep it in 8 bit when they can."""
    method = _row_method(table_row)
    is_8bit = (
        software_facts.kernels == "te"
        and software_facts.precision not in SIXTEEN_BIT
    )
    return (
        FROZEN_8BIT_BYTES
        if method in ("lora", "dpo-lora") and is_8bit
        else frozen_bytes(method)
    )


def _row_optimizer(
    table_row: Row, software_facts: Software, gpu_count: int
) -> str:
    """The optimizer of a row, or the one that its framework takes by itself."""
    optimizer = read_choice(table_row, "optimizer", tuple(optimizers()))
    if optimizer:
        return optimizer
    framework = training_framework(table_row)
    if framework == "megatron-bridge":
        return "adamw-16bit"  # its recipes reduce gradients in 16 bit
    if framework == "torchtune":
        # Its recipes for one accelerator page the states to the host.
        return "paged" if gpu_count == 1 else "adamw-bf16"
    return "adamw-fp32" if software_facts.is_torch else "adamw"


class _Network(Struct, frozen=True):
    """The usual network of an architecture: GB/s of an accelerator one way, and latency."""

    gb_s: float
    latency_s: float


@cache
def _networks() -> dict[str, _Network]:
    column_types = {
        "architecture": table.nonempty_text,
        "gb_s": table.real_between(0.1, 10_000),
        "latency_us": table.real_between(1, 10_000),
        "meaning": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        network_row["architecture"]: _Network(
            network_row["gb_s"], network_row["latency_us"] / US_PER_SECOND
        )
        for network_row in table.load_rows(
            "planner.estimate", "networks.csv", column_types
        )
    }


def _row_network(table_row: Row, accelerator: Accelerator) -> _Network:
    """Return the network beyond the link: as stated, else usual for the architecture."""
    usual = _networks().get(
        accelerator.architecture,
        _Network(DEFAULT_NETWORK_GB_S, DEFAULT_LATENCY_S),
    )
    stated_gb_s = read_number(table_row, "network_gb_s")
    return _Network(stated_gb_s or usual.gb_s, usual.latency_s)
