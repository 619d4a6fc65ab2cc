"""What software a table's training run used: kernels, precision, and what they imply."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from planner.estimate import names
from planner.estimate.cell import (
    Row,
    read_cell,
    read_choice,
    read_count,
    read_flag,
    read_number,
    read_version,
    read_year,
)
from planner.estimate.names import RefusedError
from planner.facts.accelerator import SIXTEEN_BIT, chip_cores
from planner.perf.common.constant import constant
from planner.perf.training.error_band import is_newer_release
from planner.perf.training.job import Software
from planner.perf.training.measured import is_unseen_software

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
# What is not stated of experts is that of other products, and never unknown.
EXPERT_PRECISIONS: Final = tuple(
    name for name in PRODUCT_PRECISIONS if name != "unknown"
)
GATHER_BYTES: Final = {"bf16": 2.0, "fp8": 1.0}  # of a weight
ROUTINGS: Final = ("dropless", "token_drop")
# Years in which a framework recomputes no further than backward needs: from PyTorch 2.1 on, and
# in torchtitan until its pull request 1580 of August 2025.
EARLY_STOP_YEARS: Final = {
    "torchtitan": (2023.8, 2025.63),
    "torchtune": (2023.8, math.inf),
}
GRAPHS: Final = ("none", "parts", "step")  # what is a graph of its own
EXCHANGES: Final = ("per_rank", "per_expert")
SCOPES: Final = ("steps", "run")
DOCUMENTS: Final = ("whole", "short")
PACKING_FRAMEWORK: Final = "megatron-bridge"  # packs the documents of tuning
SINKS_FAMILY: Final = "gpt_oss"  # the family whose attention has sinks


def row_software(
    table_row: Row, language_model: Llm, accelerator: Accelerator
) -> Software:
    """Return the software of a row; what nobody states is what its framework does by itself."""
    framework = training_framework(table_row)
    kernel_kind = kernel_class(table_row, accelerator)
    math_precision = _product_precision(table_row, accelerator)
    source_year = _source_year(table_row)
    version = read_version(table_row, "version")
    captures_steps = kernel_kind == "te" and _is_since(
        version, source_year, CAPTURE_RELEASE, CAPTURE_YEAR
    )
    captures_parts = kernel_kind == "te" and _is_since(
        version, source_year, PARTS_RELEASE, PARTS_YEAR
    )
    graphs = read_choice(table_row, "cuda_graphs", GRAPHS) or _usual_graphs(
        captures_steps=captures_steps
        and math_precision == "mxfp8"
        and _fits_link_domain(table_row, accelerator)
        and not language_model.state_layers
        and "Blackwell" in accelerator.architecture,
        captures_parts=captures_parts and accelerator.link_domain >= RACK_GPUS,
    )
    has_experts = bool(language_model.experts)
    is_torchtune = framework == "torchtune"
    return Software(
        kernels=kernel_kind,
        **_precision_traits(
            table_row, kernel_kind, math_precision, language_model
        ),
        sequence_parallel=read_flag(
            table_row,
            "sequence_parallel",
            default=kernel_kind != "megatron21",
        ),
        tp_overlapped=read_flag(
            table_row, "async_tp", default=kernel_kind == "te"
        ),
        graph_captured=has_experts and graphs == "step",
        parts_captured=has_experts and graphs == "parts",
        stops_early=read_flag(
            table_row,
            "early_stop",
            default=_stops_early(framework, source_year),
        ),
        attention_sinks=language_model.family == SINKS_FAMILY
        and kernel_kind == "te"
        and not captures_steps,
        packed_tokens=_packed_tokens(table_row, framework),
        **_novelty(table_row, framework, kernel_kind, language_model),
        is_whole_run=read_choice(table_row, "scope", SCOPES) == "run",
        loss="chunked"
        if is_torchtune
        else _loss_kernel(kernel_kind, source_year),
        keeps_all_logits=framework in ALL_LOGITS_FRAMEWORKS,
        counts_allocated=is_torchtune,
        **_exchange_traits(table_row),
    )


def _usual_graphs(*, captures_steps: bool, captures_parts: bool) -> str:
    """Return what a release launches as one graph when nobody says."""
    if captures_steps:
        return "step"
    return "parts" if captures_parts else "none"


def _exchange_traits(table_row: Row) -> dict[str, Any]:
    """Return who sends a token how often, and how well experts run."""
    return {
        "drops_tokens": read_choice(table_row, "routing", ROUTINGS)
        == "token_drop",
        "sends_per_expert": read_choice(table_row, "exchange", EXCHANGES)
        == "per_expert",
        "exchange_overlapped": read_flag(table_row, "exchange_overlap"),
        "gradient_slowdown": max(
            1.0, read_number(table_row, "expert_slowdown")
        ),
    }


def _stops_early(framework: str, source_year: float) -> bool:
    """Whether a framework ends recomputation at the last operand that backward needs."""
    first_year, end_year = EARLY_STOP_YEARS.get(framework, (0.0, 0.0))
    return first_year <= source_year < end_year


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


def _precision_traits(
    table_row: Row,
    kernel_kind: Kernels,
    math_precision: str,
    language_model: Llm,
) -> dict[str, Any]:
    """Return the precisions of products, and the bytes of a weight that is gathered."""
    expert_precision = _expert_precision(
        table_row, math_precision, language_model
    )
    return {
        "precision": math_precision,
        "expert_precision": expert_precision,
        "gather_bytes": _gather_bytes(
            table_row,
            kernel_kind,
            # Weights of two formats are gathered as they are trained.
            "bf16" if expert_precision else math_precision,
        ),
    }


def _expert_precision(
    table_row: Row, math_precision: str, language_model: Llm
) -> str:
    """Return the precision of experts where it is another one than that of other products.

    Raises RefusedError for a model without experts.
    """
    expert_precision = read_choice(
        table_row, "expert_precision", EXPERT_PRECISIONS
    )
    if expert_precision and not language_model.experts:
        raise RefusedError(
            f"expert_precision '{expert_precision}' is of experts, and "
            f"{language_model.model} has none"
        )
    return "" if expert_precision == math_precision else expert_precision or ""


def _packed_tokens(table_row: Row, framework: str) -> int:
    """Return the tokens of a packed document, or 0 where sequences are whole ones."""
    is_short = read_choice(table_row, "documents", DOCUMENTS) == "short"
    usual_tokens = (
        int(constant("train_context"))
        if is_short and framework == PACKING_FRAMEWORK
        else 0
    )
    return read_count(table_row, "document_tokens", usual_tokens)


def _novelty(
    table_row: Row, framework: str, kernel_kind: Kernels, language_model: Llm
) -> dict[str, Any]:
    """Return whether no run of a framework, of its mixtures or of its release was measured.

    A framework that is blank or not listed has none.
    """
    return {
        "is_unseen": is_unseen_software(framework, kernel_kind, language_model),
        "is_newer": is_newer_release(
            framework,
            kernel_kind,
            read_version(table_row, "version"),
            read_year(table_row, "date", 0.0),
        ),
    }


def training_framework(table_row: Row) -> str:
    """Return the name of a row's framework, or nothing when it is blank or not listed.

    Raises RefusedError for a slip of the pen in a listed name.
    """
    spelling = read_cell(table_row, "framework")
    return (
        names.resolve_trainer(spelling, FRAMEWORK_KERNELS) if spelling else ""
    )


def kernel_class(
    table_row: Row, accelerator: Accelerator | None = None
) -> Kernels:
    """Return the class of kernels of a row.

    A framework that nobody knows is taken for one that runs the kernels of PyTorch as they are,
    or XLA on an accelerator on which nothing else runs.
    """
    framework = training_framework(table_row)
    needs_xla = accelerator is not None and (
        accelerator.vendor == "google" or chip_cores(accelerator) > 1
    )
    kernel_kind = FRAMEWORK_KERNELS.get(
        framework, "xla" if needs_xla else "eager"
    )
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
