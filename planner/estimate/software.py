"""What software a table's training run used: kernels, precision, and what they imply."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from planner.estimate.row import year_of
from planner.perf.constant import constant
from planner.perf.train.job import Software

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.train.job import Kernels

OLD: Final = 2023.0  # before it Megatron stored the score matrix, without sequence parallelism
FUSED: Final = 2025.0  # from it a compiled loss is fused
CAPTURED: Final = 26.06  # release from which whole steps are captured
CAPTURED_YEAR: Final = 2026.49
RACK: Final = (
    32  # accelerators of a link domain in which experts never leave it
)
PRECISIONS: Final[tuple[tuple[str, str], ...]] = (
    ("nvfp4", "nvfp4"),
    ("mx", "mxfp8"),
    ("rowwise", "fp8row"),
    ("fp8|float8", "fp8"),
    ("int8", "int8"),
)
PLAIN: Final = re.compile(  # what runs the kernels of PyTorch as they are
    r"deepspeed|hugging ?face|transformers|\bhf\b|accelerate|\btrl\b|axolotl|llama-?factory"
    r"|lightning|unsloth|nanotron|fairscale|metaseq"
)
SINKS: Final = "gpt_oss"  # the family whose attention has sinks


def software(row: Mapping[str, str], llm: Llm, chip: Accelerator) -> Software:
    """Return the software of a row; what nobody states is what its framework does by itself."""
    used, precision = kernels(row), _precision(row, chip)
    notes, year = (row.get("notes") or "").lower(), _year(row)
    torch = "torch" in (row.get("framework") or "").lower()
    tuned = used == "te" and _captured(row, year)
    tp = int(float(row.get("tp") or 1))
    found = Software(
        kernels=used,
        precision=precision,
        sequence_parallel=used != "megatron21"
        or "sequence" in (row.get("act_ckpt") or ""),
        overlapped=used == "te" or "async" in notes,
        captured=tuned
        and precision == "mxfp8"
        and bool(llm.experts)
        and _within(row, chip)
        and not llm.state_layers
        and "Blackwell" in chip.architecture,
        dropping="tokendrop)" in notes,
        sinks=llm.family == SINKS and used == "te" and not tuned,
        packed=int(constant("train_context")) if _packed(row) else 0,
        gather_bytes=_gathered(used, precision, notes),
        loss=_loss(used, year),
    )
    if "torchtune" in (row.get("framework") or "").lower():
        return replace(found, loss="chunked", allocated=True)
    return replace(
        found,
        merged_outputs=torch and used != "foundry",
        sequence_parallel=(found.sequence_parallel or (torch and tp > 1)),
    )


def kernels(row: Mapping[str, str]) -> Kernels:
    """Return the class of kernels; whatever is not known is taken for fused ones."""
    name, notes = (
        (row.get("framework") or "").lower(),
        (row.get("notes") or "").lower(),
    )
    if "llm-foundry" in name or "composer" in name:
        return "foundry"
    if "torchtitan" in name or "torchtune" in name:
        tensor = "torchtitan" in name and re.search(r"\btp\b", notes)
        return "compiled" if "compile" in notes or tensor else "eager"
    if "maxtext" in name or "neuron" in name:
        return "xla"
    if name.startswith("megatron-") and _year(row) < OLD:
        return "megatron21"
    plain = name == "meta internal" or (
        not name.startswith("megatron") and PLAIN.search(name)
    )
    return "eager" if plain else "te"


def _precision(row: Mapping[str, str], chip: Accelerator) -> str:
    """Return the precision of products; an unparsed one is the usual of its date and vendor."""
    said = (row.get("precision") or "").lower()
    if "not parsed" in said or "unknown" in said:
        if chip.vendor == "google":
            return "int8"
        newest = (
            "v5.1" in (row.get("source_group") or "")
            and "Blackwell" in chip.architecture
        )
        return "nvfp4" if newest else "fp8"
    return next(
        (name for word, name in PRECISIONS if re.search(word, said)), "bf16"
    )


def _year(row: Mapping[str, str]) -> float:
    return year_of(row.get("source_date") or "", 2025.0)


def _captured(row: Mapping[str, str], year: float) -> bool:
    release = re.match(r"\d+\.\d+", row.get("framework_version") or "")
    return float(release[0]) >= CAPTURED if release else year >= CAPTURED_YEAR


def _within(row: Mapping[str, str], chip: Accelerator) -> bool:
    return (
        chip.link_domain >= RACK
        or float(row.get("n_gpus") or 0) <= chip.link_domain
    )


def _packed(row: Mapping[str, str]) -> bool:
    """Whether short documents were packed, as in the tuning recipes of Megatron-Bridge."""
    tuned = (row.get("task") or "") in ("sft", "lora", "qlora")
    return tuned and (row.get("framework") or "").startswith("Megatron-Bridge")


def _gathered(used: Kernels, precision: str, notes: str) -> float:
    if used == "te" and precision in ("fp8", "mxfp8"):
        return 1.0
    if used == "te" and precision == "nvfp4":
        return 0.5625
    return 1.0 if "all-gather" in notes else 2.0


def _loss(used: Kernels, year: float) -> Literal["fused", "eager"]:
    if used == "eager" or (used == "compiled" and year < FUSED):
        return "eager"
    return "eager" if used == "megatron21" else "fused"
