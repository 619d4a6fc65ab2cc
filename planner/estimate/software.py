"""What software a table's training run used: kernels, precision, and what they imply."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from planner.estimate.inference_row import date_year
from planner.perf.common.constant import constant
from planner.perf.training.job import Software

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.training.job import Kernels

SCORE_MATRIX_YEAR: Final = 2023.0  # before it Megatron stored the score matrix, without sequence parallelism
FUSED_LOSS_YEAR: Final = 2025.0  # from it a compiled loss is fused
CAPTURE_RELEASE: Final = 26.06  # release from which whole steps are captured
CAPTURE_YEAR: Final = 2026.49
RACK_GPUS: Final = (
    32  # accelerators of a link domain in which experts never leave it
)
PRECISION_PATTERNS: Final[tuple[tuple[str, str], ...]] = (
    ("nvfp4", "nvfp4"),
    ("mx", "mxfp8"),
    ("rowwise", "fp8row"),
    ("fp8|float8", "fp8"),
    ("int8", "int8"),
)
PLAIN_TORCH: Final = re.compile(  # what runs the kernels of PyTorch as they are
    r"deepspeed|hugging ?face|transformers|\bhf\b|accelerate|\btrl\b|axolotl|llama-?factory"
    r"|lightning|unsloth|nanotron|fairscale|metaseq"
)
SINKS_FAMILY: Final = "gpt_oss"  # the family whose attention has sinks


def row_software(
    table_row: Mapping[str, str], language_model: Llm, accelerator: Accelerator
) -> Software:
    """Return the software of a row; what nobody states is what its framework does by itself."""
    kernel_kind = kernel_class(table_row)
    math_precision = _row_precision(table_row, accelerator)
    notes_text = (table_row.get("notes") or "").lower()
    source_year = _source_year(table_row)
    is_torch = "torch" in (table_row.get("framework") or "").lower()
    captures_steps = kernel_kind == "te" and _captures_steps(
        table_row, source_year
    )
    tp_degree = int(float(table_row.get("tp") or 1))
    software_facts = Software(
        kernels=kernel_kind,
        precision=math_precision,
        sequence_parallel=kernel_kind != "megatron21"
        or "sequence" in (table_row.get("act_ckpt") or ""),
        tp_overlapped=kernel_kind == "te" or "async" in notes_text,
        graph_captured=captures_steps
        and math_precision == "mxfp8"
        and bool(language_model.experts)
        and _fits_link_domain(table_row, accelerator)
        and not language_model.state_layers
        and "Blackwell" in accelerator.architecture,
        drops_tokens="tokendrop)" in notes_text,
        attention_sinks=language_model.family == SINKS_FAMILY
        and kernel_kind == "te"
        and not captures_steps,
        packed_tokens=int(constant("train_context"))
        if _is_packed(table_row)
        else 0,
        gather_bytes=_gather_bytes(kernel_kind, math_precision, notes_text),
        loss=_loss_kernel(kernel_kind, source_year),
    )
    if "torchtune" in (table_row.get("framework") or "").lower():
        return replace(software_facts, loss="chunked", counts_allocated=True)
    return replace(
        software_facts,
        keeps_all_logits=is_torch and kernel_kind != "foundry",
        sequence_parallel=(
            software_facts.sequence_parallel or (is_torch and tp_degree > 1)
        ),
    )


def kernel_class(table_row: Mapping[str, str]) -> Kernels:
    """Return the class of kernels; whatever is not known is taken for fused ones."""
    framework_name = (table_row.get("framework") or "").lower()
    notes_text = (table_row.get("notes") or "").lower()
    if "llm-foundry" in framework_name or "composer" in framework_name:
        return "foundry"
    if "torchtitan" in framework_name or "torchtune" in framework_name:
        tensor_match = "torchtitan" in framework_name and re.search(
            r"\btp\b", notes_text
        )
        return (
            "compiled" if "compile" in notes_text or tensor_match else "eager"
        )
    if "maxtext" in framework_name or "neuron" in framework_name:
        return "xla"
    if (
        framework_name.startswith("megatron-")
        and _source_year(table_row) < SCORE_MATRIX_YEAR
    ):
        return "megatron21"
    is_plain_torch = framework_name == "meta internal" or (
        not framework_name.startswith("megatron")
        and PLAIN_TORCH.search(framework_name)
    )
    return "eager" if is_plain_torch else "te"


def _row_precision(
    table_row: Mapping[str, str], accelerator: Accelerator
) -> str:
    """Return the precision of products; an unparsed one is the usual of its date and vendor."""
    precision_text = (table_row.get("precision") or "").lower()
    if "not parsed" in precision_text or "unknown" in precision_text:
        if accelerator.vendor == "google":
            return "int8"
        is_newest = (
            "v5.1" in (table_row.get("source_group") or "")
            and "Blackwell" in accelerator.architecture
        )
        return "nvfp4" if is_newest else "fp8"
    return next(
        (
            precision_name
            for precision_pattern, precision_name in PRECISION_PATTERNS
            if re.search(precision_pattern, precision_text)
        ),
        "bf16",
    )


def _source_year(table_row: Mapping[str, str]) -> float:
    return date_year(table_row.get("source_date") or "", 2025.0)


def _captures_steps(table_row: Mapping[str, str], source_year: float) -> bool:
    release_match = re.match(
        r"\d+\.\d+", table_row.get("framework_version") or ""
    )
    return (
        float(release_match[0]) >= CAPTURE_RELEASE
        if release_match
        else source_year >= CAPTURE_YEAR
    )


def _fits_link_domain(
    table_row: Mapping[str, str], accelerator: Accelerator
) -> bool:
    return (
        accelerator.link_domain >= RACK_GPUS
        or float(table_row.get("n_gpus") or 0) <= accelerator.link_domain
    )


def _is_packed(table_row: Mapping[str, str]) -> bool:
    """Whether short documents were packed, as in the tuning recipes of Megatron-Bridge."""
    is_finetuning = (table_row.get("task") or "") in ("sft", "lora", "qlora")
    return is_finetuning and (table_row.get("framework") or "").startswith(
        "Megatron-Bridge"
    )


def _gather_bytes(
    kernel_kind: Kernels, math_precision: str, notes_text: str
) -> float:
    if kernel_kind == "te" and math_precision in ("fp8", "mxfp8"):
        return 1.0
    if kernel_kind == "te" and math_precision == "nvfp4":
        return 0.5625
    return 1.0 if "all-gather" in notes_text else 2.0


def _loss_kernel(
    kernel_kind: Kernels, source_year: float
) -> Literal["fused", "eager"]:
    if kernel_kind == "eager" or (
        kernel_kind == "compiled" and source_year < FUSED_LOSS_YEAR
    ):
        return "eager"
    return "eager" if kernel_kind == "megatron21" else "fused"
