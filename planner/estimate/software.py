"""What software a table's training run used: kernels, precision, and what they imply."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from planner.estimate import names
from planner.estimate.cell import (
    Row,
    read_cell,
    read_choice,
    read_count,
    read_flag,
    read_version,
    read_year,
)
from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.common.constant import constant
from planner.perf.training.error_band import covered_names
from planner.perf.training.job import Software

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.training.job import Kernels

# Before it Megatron stored the score matrix, without sequence parallelism.
SCORE_MATRIX_YEAR: Final = 2023.0
FUSED_LOSS_YEAR: Final = 2025.0  # from it a compiled loss is fused
# Release from which recipes for racks capture router and dispatch (Megatron-Bridge 0.3).
PARTS_RELEASE: Final = 26.02
PARTS_YEAR: Final = 2026.12
CAPTURE_RELEASE: Final = 26.06  # release from which whole steps are captured
CAPTURE_YEAR: Final = 2026.49
DEFAULT_YEAR: Final = 2025.0  # of a run without a date
# From it Blackwell's benchmark entries multiply in NVFP4.
FP4_YEAR: Final = 2025.75
# Accelerators of a link domain in which experts never leave it.
RACK_GPUS: Final = 32
FRAMEWORK_KERNELS: Final[dict[str, Kernels]] = {
    "megatron-bridge": "te",
    "megatron-lm": "te",
    "megatron-deepspeed": "te",
    "nemo": "te",
    "pytorch": "te",  # with the layers of Transformer Engine
    "llm-foundry": "foundry",
    "composer": "foundry",
    "maxtext": "xla",
    "neuronx": "xla",
    # What runs the kernels of PyTorch as they are.
    "torchtitan": "eager",
    "torchtune": "eager",
    "deepspeed": "eager",
    "transformers": "transformers",
    "accelerate": "transformers",
    "trl": "transformers",
    "axolotl": "transformers",
    "llama-factory": "transformers",
    "lightning": "eager",
    "unsloth": "eager",
    "nanotron": "eager",
    "fairscale": "eager",
    "metaseq": "eager",
}
ALL_LOGITS_FRAMEWORKS: Final = ("pytorch", "torchtitan")
PRODUCT_PRECISIONS: Final = (
    *SIXTEEN_BIT,
    "fp8",
    "fp8row",
    "mxfp8",
    "nvfp4",
    "int8",
    "unknown",
)
GATHER_BYTES: Final = {"bf16": 2.0, "fp8": 1.0}  # of a weight
ROUTINGS: Final = ("dropless", "token_drop")
SCOPES: Final = ("steps", "run")
DOCUMENTS: Final = ("whole", "short")
PACKING_FRAMEWORK: Final = "megatron-bridge"  # packs the documents of tuning
SINKS_FAMILY: Final = "gpt_oss"  # the family whose attention has sinks


def row_software(
    table_row: Row, language_model: Llm, accelerator: Accelerator
) -> Software:
    """Return the software of a row; what nobody states is what its framework does by itself."""
    framework = training_framework(table_row)
    kernel_kind = kernel_class(table_row)
    math_precision = _product_precision(table_row, accelerator)
    source_year = _source_year(table_row)
    version = read_version(table_row, "version")
    captures_steps = kernel_kind == "te" and _is_since(
        version, source_year, CAPTURE_RELEASE, CAPTURE_YEAR
    )
    is_captured = (
        captures_steps
        and math_precision == "mxfp8"
        and bool(language_model.experts)
        and _fits_link_domain(table_row, accelerator)
        and not language_model.state_layers
        and "Blackwell" in accelerator.architecture
    )
    is_torchtune = framework == "torchtune"
    return Software(
        kernels=kernel_kind,
        precision=math_precision,
        sequence_parallel=read_flag(
            table_row,
            "sequence_parallel",
            default=kernel_kind != "megatron21",
        ),
        tp_overlapped=read_flag(
            table_row, "async_tp", default=kernel_kind == "te"
        ),
        graph_captured=is_captured,
        parts_captured=kernel_kind == "te"
        and _is_since(version, source_year, PARTS_RELEASE, PARTS_YEAR)
        and bool(language_model.experts)
        and accelerator.link_domain >= RACK_GPUS
        and not is_captured,
        drops_tokens=read_choice(table_row, "routing", ROUTINGS)
        == "token_drop",
        attention_sinks=language_model.family == SINKS_FAMILY
        and kernel_kind == "te"
        and not captures_steps,
        packed_tokens=_packed_tokens(table_row, framework),
        gather_bytes=_gather_bytes(table_row, kernel_kind, math_precision),
        is_unseen=_is_unseen(framework),
        is_whole_run=read_choice(table_row, "scope", SCOPES) == "run",
        loss="chunked"
        if is_torchtune
        else _loss_kernel(kernel_kind, source_year),
        keeps_all_logits=framework in ALL_LOGITS_FRAMEWORKS,
        counts_allocated=is_torchtune,
    )


def _product_precision(table_row: Row, accelerator: Accelerator) -> str:
    """Return the precision of products; one that is unknown is the usual of vendor and date."""
    math_precision = (
        read_choice(table_row, "precision", PRODUCT_PRECISIONS) or "bf16"
    )
    if math_precision != "unknown":
        return math_precision
    if accelerator.vendor == "google":
        return "int8"
    multiplies_fp4 = (
        "Blackwell" in accelerator.architecture
        and _source_year(table_row) >= FP4_YEAR
    )
    return "nvfp4" if multiplies_fp4 else "fp8"


def _packed_tokens(table_row: Row, framework: str) -> int:
    """Return the tokens of a packed document, or 0 where sequences are whole ones."""
    is_short = read_choice(table_row, "documents", DOCUMENTS) == "short"
    usual_tokens = (
        int(constant("train_context"))
        if is_short and framework == PACKING_FRAMEWORK
        else 0
    )
    return read_count(table_row, "document_tokens", usual_tokens)


def _is_unseen(framework: str) -> bool:
    """Whether no run of a framework was measured; a blank one is the usual one."""
    return bool(framework) and ("framework", framework) not in covered_names()


def training_framework(table_row: Row) -> str:
    """Return the name of a row's framework, or nothing when blank; raises RefusedError."""
    spelling = read_cell(table_row, "framework")
    return (
        names.resolve_trainer(spelling, FRAMEWORK_KERNELS) if spelling else ""
    )


def kernel_class(table_row: Row) -> Kernels:
    """Return the class of kernels; a run without a framework is taken for one of fused ones."""
    framework = training_framework(table_row)
    kernel_kind = FRAMEWORK_KERNELS.get(framework, "te")
    if (
        framework.startswith("megatron-")
        and _source_year(table_row) < SCORE_MATRIX_YEAR
    ):
        return "megatron21"
    is_compiled = read_flag(table_row, "compiled")
    return "compiled" if kernel_kind == "eager" and is_compiled else kernel_kind


def _source_year(table_row: Row) -> float:
    return read_year(table_row, "date", DEFAULT_YEAR)


def _is_since(
    version: str, source_year: float, release: float, year: float
) -> bool:
    """Whether the release of a container, such as 26.06.01, is not before another."""
    release_match = re.match(r"\d+\.\d+", version)
    return (
        float(release_match[0]) >= release
        if release_match
        else source_year >= year
    )


def _fits_link_domain(table_row: Row, accelerator: Accelerator) -> bool:
    return (
        accelerator.link_domain >= RACK_GPUS
        or read_count(table_row, "n_gpus", 0) <= accelerator.link_domain
    )


def _gather_bytes(
    table_row: Row, kernel_kind: Kernels, math_precision: str
) -> float:
    """Bytes of a weight that is gathered; fused kernels gather it as it is multiplied."""
    gather_precision = read_choice(
        table_row, "gather_precision", tuple(GATHER_BYTES)
    )
    if gather_precision:
        return GATHER_BYTES[gather_precision]
    if kernel_kind == "te" and math_precision in ("fp8", "mxfp8"):
        return 1.0
    if kernel_kind == "te" and math_precision == "nvfp4":
        return 0.5625
    return 2.0


def _loss_kernel(
    kernel_kind: Kernels, source_year: float
) -> Literal["fused", "eager"]:
    if kernel_kind in ("eager", "transformers") or (
        kernel_kind == "compiled" and source_year < FUSED_LOSS_YEAR
    ):
        return "eager"
    return "eager" if kernel_kind == "megatron21" else "fused"
