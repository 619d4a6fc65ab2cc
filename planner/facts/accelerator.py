"""Accelerators and their MIG profiles: peaks of the data sheet, usable memory, links."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.facts import table

LINK_KINDS: Final = (
    "nvlink",
    "nvlink_pairs",
    "infinity_fabric",
    "ici",
    "neuronlink",
    "roce",
    "none",
)
MEMORY_TYPES: Final = (
    "HBM2",
    "HBM2e",
    "HBM3",
    "HBM3e",
    "GDDR5",
    "GDDR6",
    "GDDR7",
    "LPDDR5",
)
PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8", "int4", "fp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One chip. Memory in GiB as the driver reports it; peaks are dense, in TFLOP/s.

    `link_gb_s` is the bidirectional scale-up bandwidth of one accelerator, 0 without a link;
    `link_domain` is how many accelerators it joins.
    """

    accelerator: str
    vendor: str
    name: str
    architecture: str
    compute_capability: str
    year: int
    memory_gib: float
    memory_type: str
    bandwidth_gb_s: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    int8_tops: float | None
    fp4_tflops: float | None
    link: str
    link_gb_s: float
    link_domain: int
    pcie_gen: int
    tdp_w: float | None
    mig: bool
    precisions: tuple[str, ...]
    confidence: str
    source: str
    as_of: str

    def tflops(self, precision: str) -> float:
        """Peak of a compute precision; weight-only formats compute in 16 bit, so 0 is absent."""
        if precision == "bf16":
            return self.bf16_tflops or 0.0
        if precision == "fp8":
            return self.fp8_tflops or 0.0
        if precision == "int8":
            return self.int8_tops or 0.0
        return (self.fp4_tflops or 0.0) if precision == "fp4" else 0.0

    def compute_precision(self, precision: str) -> str:
        """The precision in which weights of `precision` are multiplied.

        4-bit integers and mxfp4 are unpacked to 16 bit unless fp4 units exist; fp8 and int8 need
        units of their own and fall back to 16 bit as weight-only formats.
        """
        unit_precision = "fp4" if precision == "mxfp4" else precision
        if (
            unit_precision in self.precisions
            and self.tflops(unit_precision) > 0
        ):
            return unit_precision
        return "bf16"

    def supports(self, precision: str) -> bool:
        """Whether an engine can hold weights of this precision on it.

        fp8 and fp4 formats need the units (weight-only fp8 exists from Ampere on but is slower
        than bf16 compute and is not proposed); int8 and int4 run anywhere as weight-only.
        """
        if precision in ("fp8", "fp4"):
            return precision in self.precisions and self.tflops(precision) > 0
        return bool(self.bf16_tflops)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A slice of a GPU: memory in GB as marketed, share of the compute."""

    accelerator: str
    profile: str
    memory_gb: float
    compute_fraction: Fraction
    max_instances: int
    source: str
    as_of: str


@cache
def accelerators() -> dict[str, Accelerator]:
    """Return all accelerators by name; raises CatalogError on a bad row."""
    columns: dict[str, Any] = {
        "accelerator": table.nonempty_text,
        "vendor": table.nonempty_text,
        "name": table.nonempty_text,
        "architecture": table.nonempty_text,
        "compute_capability": table.any_text,
        "year": table.integer_between(2016, 2100),
        "memory_gib": table.real_between(1, 2000),
        "memory_type": table.one_of(*MEMORY_TYPES),
        "bandwidth_gb_s": table.optional(table.real_between(50, 100_000)),
        "bf16_tflops": table.optional(table.real_between(1, 100_000)),
        "fp8_tflops": table.optional(table.real_between(1, 100_000)),
        "int8_tops": table.optional(table.real_between(1, 100_000)),
        "fp4_tflops": table.optional(table.real_between(1, 100_000)),
        "link": table.one_of(*LINK_KINDS),
        "link_gb_s": lambda cell: table.real_between(0, 10_000)(cell or "0"),
        "link_domain": table.integer_between(1, 10_000),
        "pcie_gen": lambda cell: table.integer_between(0, 8)(cell or "0"),
        "tdp_w": table.optional(table.real_between(10, 5000)),
        "mig": table.yes_or_no,
        "precisions": table.subset_of(*PRECISIONS),
        "confidence": table.CONFIDENCE_LEVEL,
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.read_rows(
        _data_text("accelerators.csv"), "accelerators.csv", columns
    )
    return {
        accelerator: Accelerator(**table_row.cells)
        for (accelerator,), table_row in table.rows_by_key(
            table_rows, "accelerator"
        ).items()
    }


@cache
def mig_profiles() -> tuple[MigProfile, ...]:
    """Return all MIG profiles; raises CatalogError on a bad row."""
    columns: dict[str, Any] = {
        "accelerator": table.one_of(*accelerators()),
        "profile": table.nonempty_text,
        "memory_gb": table.real_between(1, 1000),
        "compute_fraction": Fraction,
        "max_instances": table.integer_between(1, 7),
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.read_rows(
        _data_text("mig_profiles.csv"), "mig_profiles.csv", columns
    )
    return tuple(MigProfile(**table_row.cells) for table_row in table_rows)


def mig_slice(accelerator: Accelerator, profile: str) -> Accelerator | None:
    """Return a MIG slice as an accelerator of its own, or nothing when there is no such profile.

    It has its share of the compute, and of the bandwidth as much as of the memory; no link.
    """
    chip_profiles = {
        mig_profile.profile: mig_profile
        for mig_profile in mig_profiles()
        if mig_profile.accelerator == accelerator.accelerator
    }
    if profile not in chip_profiles:
        return None
    memory_share = chip_profiles[profile].memory_gb / max(
        mig_profile.memory_gb for mig_profile in chip_profiles.values()
    )
    compute_share = float(chip_profiles[profile].compute_fraction)
    peak_columns = ("bf16_tflops", "fp8_tflops", "int8_tops", "fp4_tflops")
    peaks = {
        column: getattr(accelerator, column)
        and getattr(accelerator, column) * compute_share
        for column in peak_columns
    }
    return replace(
        accelerator,
        accelerator=f"{accelerator.accelerator}/{profile}",
        name=f"{accelerator.name} MIG {profile}",
        memory_gib=accelerator.memory_gib * memory_share,
        bandwidth_gb_s=(accelerator.bandwidth_gb_s or 0.0) * memory_share,
        link="none",
        link_gb_s=0.0,
        link_domain=1,
        mig=False,
        **peaks,
    )


def _data_text(file_name: str) -> str:
    return (
        files("planner.facts")
        .joinpath("data", file_name)
        .read_text(encoding="utf-8")
    )
