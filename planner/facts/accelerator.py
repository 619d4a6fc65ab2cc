"""Accelerators and MIG profiles: data sheet peaks, memory, links and sources."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Sequence

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
# Both take 2 bytes, and run at the same rate where there are units for them.
SIXTEEN_BIT: Final = ("bf16", "fp16")
# Formats of weights that no quantization has made.
UNQUANTIZED: Final = ("fp32", *SIXTEEN_BIT)
PRECISIONS: Final = ("bf16", "fp16", "fp8", "int8", "int4", "fp4")


class Accelerator(Struct, frozen=True, kw_only=True):
    """An accelerator, or a slice of one.

    memory_gib      memory that the driver reports, GiB
    bandwidth_gb_s  memory bandwidth, GB/s
    fp32_tflops     peak in 32 bit without matrix units, TFLOP/s
    bf16_tflops     dense peak in 16 bit, bf16 or fp16, TFLOP/s; fp8 and fp4 alike
    int8_tops       dense peak in int8, TOP/s
    link_gb_s       bidirectional scale-up bandwidth of an accelerator, GB/s; 0 without a link
    link_domain     accelerators that the scale-up link joins
    torus           dimensions of the torus that they form; none where a switch joins them
    tdp_w           board power, W
    precisions      precisions with hardware support
    confidence      confidence in the row: high, medium or low
    source          where the row is from, and `as_of` when it was read
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
    fp32_tflops: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    int8_tops: float | None
    fp4_tflops: float | None
    link: str
    link_gb_s: float
    link_domain: int
    torus: int | None
    pcie_gen: int
    tdp_w: float | None
    mig: bool
    precisions: tuple[str, ...]
    confidence: str
    source: str
    as_of: str

    def tflops(self, precision: str) -> float:
        """Dense peak of a compute precision, TFLOP/s or TOP/s.

        0 without units for it. Weight-only formats have no peak: their products run in 16 bit.
        """
        if precision in SIXTEEN_BIT:
            return self.bf16_tflops or 0.0
        if precision == "fp32":
            return self.fp32_tflops or 0.0
        if precision == "fp8":
            return self.fp8_tflops or 0.0
        if precision == "int8":
            return self.int8_tops or 0.0
        return (self.fp4_tflops or 0.0) if precision == "fp4" else 0.0

    def compute_precision(self, precision: str) -> str:
        """Return the precision of the products with weights in `precision`.

        Formats without matrix units of their own run as weight-only formats in 16 bit, which is
        called bf16 here though it may be fp16; mxfp4 uses fp4 units.
        """
        if precision == "fp32":
            return precision
        # mxfp4 is fp4 with block scales, so fp4 units compute it.
        unit_precision = "fp4" if precision == "mxfp4" else precision
        if (
            unit_precision not in SIXTEEN_BIT
            and unit_precision in self.precisions
            and self.tflops(unit_precision) > 0
        ):
            return unit_precision
        return "bf16"

    def supports(self, precision: str) -> bool:
        """Whether weights of this precision can be served on the accelerator.

        bf16, fp16, fp8 and fp4 need matrix units: weight-only fp8 is slower than bf16, and Volta
        and Turing have units for fp16 and none for bf16. int8 and int4 run on every accelerator
        with 16-bit units as weight-only formats. fp32 needs no matrix units.
        """
        if precision == "fp32":
            return bool(self.fp32_tflops)
        # Without units these formats would run slower than another one.
        if precision in ("fp8", "fp4", *SIXTEEN_BIT):
            return precision in self.precisions and self.tflops(precision) > 0
        return bool(self.bf16_tflops)

    def all_to_all_share(self, ranks: float) -> float:
        """Return the share of its link that an accelerator has when all send to all of a group.

            min(1, 4 / (d * ranks^(1/d))), and 1 where a switch joins them

        Half of what n^d accelerators send crosses the middle of a torus, which 2 * n^(d-1) links
        pass each way; each of them sends on 2 * d links.
        """
        if self.torus is None:
            return 1.0
        side = math.pow(ranks, 1 / self.torus)
        return min(1.0, 4 / (self.torus * side))

    def has_capability(self, first: float, last: float) -> bool:
        """Whether its compute capability is from `first` to `last`; of AMD none is a number."""
        if not self.compute_capability.replace(".", "", 1).isdigit():
            return False
        return first <= float(self.compute_capability) <= last

    def served_precisions(self, precisions: Sequence[str]) -> tuple[str, ...]:
        """Return those of the precisions that can be served, in their order.

        Of bf16 and fp16 only the first: they take as many bytes at the same rate.
        """
        supported = [
            precision for precision in precisions if self.supports(precision)
        ]
        first_16bit = next(
            (name for name in supported if name in SIXTEEN_BIT), None
        )
        return tuple(
            precision
            for precision in supported
            if precision not in SIXTEEN_BIT or precision == first_16bit
        )


class MigProfile(Struct, frozen=True, kw_only=True):
    """A MIG profile of an accelerator.

    memory_gb         memory in its name, GB
    compute_fraction  share of the compute units
    max_instances     slices of this profile on one accelerator
    """

    accelerator: str
    profile: str
    memory_gb: float
    compute_fraction: Fraction
    max_instances: int
    source: str
    as_of: str


def is_named(accelerator: str, word: str) -> bool:
    """Whether a word of a spec means an accelerator: by its name, its family, or a pattern.

    `h100` is every H100: h100-sxm, h100-pcie and h100-nvl. Case does not matter.
    """
    lowered_word = word.lower()
    return fnmatchcase(accelerator, lowered_word) or accelerator.startswith(
        f"{lowered_word}-"
    )


@cache
def accelerators() -> dict[str, Accelerator]:
    """Return all accelerators by name. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "accelerator": table.nonempty_text,
        "vendor": table.nonempty_text,
        "name": table.nonempty_text,
        "architecture": table.nonempty_text,
        "compute_capability": table.any_text,
        "year": table.integer_between(2016, 2100),
        "memory_gib": table.real_between(1, 2000),
        "memory_type": table.one_of(*MEMORY_TYPES),
        "bandwidth_gb_s": table.optional(table.real_between(50, 100_000)),
        "fp32_tflops": table.optional(table.real_between(1, 100_000)),
        "bf16_tflops": table.optional(table.real_between(1, 100_000)),
        "fp8_tflops": table.optional(table.real_between(1, 100_000)),
        "int8_tops": table.optional(table.real_between(1, 100_000)),
        "fp4_tflops": table.optional(table.real_between(1, 100_000)),
        "link": table.one_of(*LINK_KINDS),
        # An empty cell means that there is no link.
        "link_gb_s": lambda cell: table.real_between(0, 10_000)(cell or "0"),
        "link_domain": table.integer_between(1, 10_000),
        "torus": table.optional(table.integer_between(2, 3)),
        "pcie_gen": lambda cell: table.integer_between(0, 8)(cell or "0"),
        "tdp_w": table.optional(table.real_between(10, 5000)),
        "mig": table.yes_or_no,
        "precisions": table.subset_of(*PRECISIONS),
        "confidence": table.CONFIDENCE_LEVEL,
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.load_rows("planner.facts", "accelerators.csv", columns)
    return {
        accelerator: Accelerator(**table_row.cells)
        for (accelerator,), table_row in table.rows_by_key(
            table_rows, "accelerator"
        ).items()
    }


@cache
def _core_table() -> dict[str, int]:
    columns: table.Columns = {
        "accelerator": table.one_of(*accelerators()),
        "cores": table.integer_between(2, 64),
        **table.SOURCE_COLUMNS,
    }
    return {
        core_row["accelerator"]: core_row["cores"]
        for core_row in table.load_rows(
            "planner.facts", "accelerator_cores.csv", columns
        )
    }


def chip_cores(accelerator: Accelerator) -> int:
    """Return the cores of a chip over which its engines cut a model; 1 of most accelerators."""
    return _core_table().get(accelerator.accelerator, 1)


@cache
def mig_profiles() -> tuple[MigProfile, ...]:
    """Return all MIG profiles. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "accelerator": table.one_of(*accelerators()),
        "profile": table.nonempty_text,
        "memory_gb": table.real_between(1, 1000),
        "compute_fraction": Fraction,
        "max_instances": table.integer_between(1, 7),
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.load_rows("planner.facts", "mig_profiles.csv", columns)
    return tuple(MigProfile(**table_row.cells) for table_row in table_rows)


def mig_slice(accelerator: Accelerator, profile: str) -> Accelerator | None:
    """Return a MIG slice as an accelerator, or `None` without such a profile.

    Peaks scale with `compute_fraction`; memory and bandwidth scale with `memory_gb` over the
    largest profile. A slice has no link.
    """
    chip_profiles = {
        mig_profile.profile: mig_profile
        for mig_profile in mig_profiles()
        if mig_profile.accelerator == accelerator.accelerator
    }
    if profile not in chip_profiles:
        return None
    # The largest profile stands for the whole accelerator.
    memory_share = chip_profiles[profile].memory_gb / max(
        mig_profile.memory_gb for mig_profile in chip_profiles.values()
    )
    compute_share = float(chip_profiles[profile].compute_fraction)
    peak_columns = (
        "fp32_tflops",
        "bf16_tflops",
        "fp8_tflops",
        "int8_tops",
        "fp4_tflops",
    )
    peaks = {
        column: getattr(accelerator, column)
        # An absent peak stays absent.
        and getattr(accelerator, column) * compute_share
        for column in peak_columns
    }
    return replace(
        accelerator,
        accelerator=f"{accelerator.accelerator}/{profile}",
        name=f"{accelerator.name} MIG {profile}",
        memory_gib=accelerator.memory_gib * memory_share,
        # Memory slices carry their own share of the bandwidth.
        bandwidth_gb_s=(accelerator.bandwidth_gb_s or 0.0) * memory_share,
        link="none",
        link_gb_s=0.0,
        link_domain=1,
        torus=None,
        mig=False,
        **peaks,
    )
