"""Serving engines: kind, age, limits and KV-cache precision."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.facts.accelerator import SIXTEEN_BIT
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.common.layout import Node, ReplicaLayout

# Engines of before this date had other attention kernels.
EARLY_YEAR: Final = 2024.5
VARIED_LENGTHS: Final = ("spread", "varied")
QUANTIZED_FORMATS: Final = ("fp8", "fp4", "mxfp4")


class PoolRule(Struct, frozen=True):
    """How an engine sizes its KV pool, as numbers, so that arrays of both kinds can be mixed.

    of_free        1: the pool is a share of what is free after loading; 0: the engine fills a
                   share of the memory, weights included
    whole_windows  1: sliding layers keep all tokens; 0: their window
    """

    of_free: float
    whole_windows: float


class ServingEngine(Struct, frozen=True, kw_only=True):
    """A serving engine in one version.

    kind           engine name used as a coefficient key
    software_year  release date of the version, in years with fraction
    max_sequences  most sequences that one attention group runs at once
    latency_tuned  whether the server is tuned for one latency limit and measured by a load
                   generator (MLPerf Server)
    token_budget   most tokens of one step; 0 where it is the engine's default
    plans_ahead    whether the scheduler prepares the next step while one runs
    """

    kind: str
    software_year: float
    max_sequences: int = 1024
    latency_tuned: bool = False
    token_budget: int = 0
    plans_ahead: bool = False

    @property
    def has_startup_rules(self) -> bool:
        """Whether what it reports at start-up is known: see `serving.memory`."""
        return self.kind == DEFAULT_ENGINE

    def stored(self, llm: Llm) -> Llm:
        """Return a model as its cache is stored, where sequences are counted.

        SGLang keeps all tokens of windowed layers of some models, and of others 80 %: all of them
        count (server_args.py of 0.5.7: disable_hybrid_swa_memory, swa_full_tokens_ratio). So does
        TensorRT-LLM as far as its measurements show (`windows` of engines.csv).
        """
        # Windows beside entries of several tokens are what those engines keep as such.
        if self.has_startup_rules or llm.has_entries:
            return llm
        return replace(llm, window_layers=0)

    @property
    def pool_rule(self) -> PoolRule:
        """How the engine sizes its KV pool."""
        return _pool_rules()[self.kind]


@cache
def engine_rows() -> dict[str, dict[str, Any]]:
    """Return the rows of the engines by name: kind, limit, KV precision and years.

    `ahead_year` is that of the first release that prepares the next step while one runs, of
    engines whose releases differ in it.
    """
    columns: table.Columns = {
        "engine": table.nonempty_text,
        "kind": table.nonempty_text,
        "sequences": table.integer_between(1, 100_000),
        "kv_quantized": table.yes_or_no,
        "pool": table.one_of("total", "free"),
        "windows": table.one_of("window", "whole"),
        "year": table.real_between(2022, 2100),
        "ahead_year": table.optional(table.real_between(2022, 2100)),
        **table.SOURCE_COLUMNS,
    }
    return {
        engine_row["engine"]: engine_row.cells
        for engine_row in table.load_rows(
            "planner.perf", "engines.csv", columns
        )
    }


@cache
def _pool_rules() -> dict[str, PoolRule]:
    """Return the rule of the KV pool of each kind of engine."""
    return {
        cells["kind"]: PoolRule(
            of_free=float(cells["pool"] == "free"),
            whole_windows=float(cells["windows"] == "whole"),
        )
        for cells in engine_rows().values()
    }


def find_engine(
    engine_name: str, requested_year: float | None = None
) -> ServingEngine:
    """Return an engine by name; its newest known version unless a year is given."""
    engine_row = engine_rows()[engine_name]
    software_year = (
        engine_row["year"] if requested_year is None else requested_year
    )
    return ServingEngine(
        kind=engine_row["kind"],
        software_year=software_year,
        max_sequences=engine_row["sequences"],
        plans_ahead=plans_ahead(engine_name, software_year),
    )


def plans_ahead(engine_name: str, software_year: float) -> bool:
    """Return whether a release prepares the next step while one runs, unless told otherwise."""
    first_year = engine_rows()[engine_name]["ahead_year"]
    return first_year is not None and software_year >= first_year


def kv_precision(engine_name: str, llm: Llm, precision: str) -> str:
    """Return the default KV-cache precision of an engine.

    Some engines quantize the KV cache together with the weights. SGLang does so only with
    scales of the checkpoint, so its latent attention (MLA) has a 16-bit cache.
    """
    # The engine default applies only to quantized weights.
    quantizes_kv = (
        engine_rows()[engine_name]["kv_quantized"]
        and precision in QUANTIZED_FORMATS
    )
    return (
        "fp8"
        if quantizes_kv and not (llm.kv_lora_rank and engine_name == "sglang")
        else "bf16"
    )


def coefficient_keys(
    layout: ReplicaLayout,
    node: Node,
    serving_engine: ServingEngine,
    length_keys: tuple[str, ...] = VARIED_LENGTHS,
) -> frozenset[str]:
    """Return the keys that select coefficients.

    They name hardware, precision, engine, links and lengths.

    `length_keys` has `spread` when request lengths differ a little, and `varied` as well when
    they differ widely.
    """
    accelerator = node.accelerator
    # Format of the matrix products: older GPUs multiply 4 bit in 16 bit.
    compute_format = accelerator.compute_precision(layout.precision)
    key_names = {
        # A board with less power than others of its chip sustains lower clocks.
        accelerator.accelerator,
        accelerator.architecture,
        f"capability {accelerator.compute_capability.split('.')[0]}",
        accelerator.memory_type,
        accelerator.vendor,
        compute_format,
        serving_engine.kind,
        # Kernels of an engine for one architecture.
        f"{serving_engine.kind} {accelerator.architecture}",
    }
    # Quantized weights that are converted to 16 bit before the product.
    if compute_format == "bf16" and layout.precision not in (
        *SIXTEEN_BIT,
        "auto",
    ):
        key_names.add("unpacked")
    # Kernels that convert a quantized cache reach less of the bandwidth.
    if layout.kv_precision == "fp8":
        key_names.add(f"{serving_engine.kind} fp8 cache")
    # Attention kernels of early versions reach another KV bandwidth.
    if serving_engine.software_year < EARLY_YEAR:
        key_names.add("early")
    if serving_engine.latency_tuned:
        key_names.add("tuned")
    # vLLM ran on TPUs by PyTorch/XLA before it had programs of its own for them.
    if (
        accelerator.vendor == "google"
        and serving_engine.kind == DEFAULT_ENGINE
        and serving_engine.software_year < constant("tpu_engine_year")
    ):
        key_names.add(f"{serving_engine.kind} torch-xla")
    if accelerator.vendor == "amd":
        key_names |= _kernel_keys(accelerator, serving_engine)
    # Only the first step of a busy engine waits for a scheduler that works ahead.
    if serving_engine.plans_ahead:
        key_names.add(f"{serving_engine.kind} ahead")
    # Whole experts on single accelerators make the load unequal.
    if layout.ep > 1:
        key_names.add("ep")
    # PCIe has a higher latency and a lower share of its bandwidth.
    if not node.has_link(layout.tp):
        key_names.add("pcie")
    # A group wider than a machine reduces over the network.
    if layout.tp > node.accelerator_count:
        key_names.add("network")
    return frozenset(key_names.union(length_keys))


def _kernel_keys(
    accelerator: Accelerator, serving_engine: ServingEngine
) -> set[str]:
    """Return the keys of releases from before kernels that AMD's accelerators have now."""
    # Experts and latent attention were multiplied by general ones.
    if serving_engine.software_year < constant("amd_kernel_year"):
        return {"amd early"}
    # Latent attention had fused ones on the next generation alone.
    if (
        accelerator.architecture == "CDNA3"
        and serving_engine.kind == "sglang"
        and serving_engine.software_year < constant("amd_fused_year", "sglang")
    ):
        return {"sglang amd unfused"}
    return set()
