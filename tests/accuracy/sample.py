"""Measured rows as arrays: what each deployment has to do, and what was measured of it."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.estimate.inference import predict_inference
from planner.estimate.inference_row import row_deployment
from planner.estimate.names import RefusedError
from planner.perf.serving.coefficients import SERVING, Coefficients
from planner.perf.serving.engine import PoolRule
from planner.perf.serving.served_rate import LatencyLimits
from planner.perf.serving.step import Draft
from planner.perf.serving.work import ReplicaProfile
from tests.accuracy.adapter import serving_row
from tests.accuracy.least import Array, coefficients, design

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.perf.serving.deployment import Deployment

CELL: Final = (
    "source_group",
    "model",
    "gpu",
    "weight_precision",
    "tp",
    "pp",
    "ep",
    "n_gpus",
)
MEASURED: Final = ("output_tok_s", "ttft_ms_mean", "tpot_ms_mean")
NEWER_SOURCES: Final = (
    "gpustack_lab",
    "inferencex_app",
    "mlperf_inference_v6.0",
)
NEWER_NOTE: Final = "was B until the recipe was read"
SCORED: Final = ("A", "B")
MS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One published row and its configuration; measurements in tokens a second and seconds."""

    row: dict[str, str]
    setup: Deployment
    throughput: float
    ttft: float
    tpot: float

    @property
    def cell(self) -> tuple[str, ...]:
        """Rows that are not independent of each other share a cell."""
        return tuple(self.row[name] for name in CELL)

    @property
    def group(self) -> str:
        """What the row measures: its kind of load, and whether it was a tuned server."""
        kind = self.setup.demand.load_kind
        return (
            "server"
            if kind == "open" and self.setup.engine.latency_tuned
            else kind
        )


def read(text: str) -> tuple[list[Sample], list[tuple[dict[str, str], str]]]:
    """Return the samples of quality A and B of a table, and the refused rows with the reason."""
    found = []
    refused = []
    for row in csv.DictReader(text.splitlines()):
        if row["quality"] not in SCORED:
            continue
        try:
            made = row_deployment(serving_row(row))
            predict_inference(made)
        except RefusedError as error:
            refused.append((row, str(error)))
            continue
        throughput, ttft, tpot = (float(row[name] or 0) for name in MEASURED)
        found.append(Sample(row, made, throughput, ttft / MS, tpot / MS))
    return found, refused


class Batch:
    """Samples as arrays, and the design that turns parameters into coefficients for each row.

    A parameter is the logarithm of one row of the coefficient table.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = list(samples)
        setups = [sample.setup for sample in samples]
        self.terms = _stack([x.profile for x in setups])
        self.ahead = _stack([x.prefill_profile for x in setups])
        self.group = np.array([sample.group for sample in samples])
        self.earlier = np.array([is_earlier(sample) for sample in samples])
        self.quality = np.array([sample.row["quality"] for sample in samples])
        self.split = self._of(lambda x: float(x.prefill_workers is not None))
        self.workers = self._of(
            lambda x: float(x.prefill_workers[0] if x.prefill_workers else 1)
        )
        self.limit = self._of(lambda x: x.max_sequences)
        self.kept = self._of(
            lambda x: math.nan if x.overhead_gib is None else x.overhead_gib
        )
        self.pool_rule = PoolRule(
            *(
                self._of(attrgetter("engine.pool_rule." + name))
                for name in PoolRule.__struct_fields__
            )
        )
        self.limits = LatencyLimits(
            *(
                self._of(partial(_limit, name=name))
                for name in LatencyLimits.__struct_fields__
            )
        )
        self.of_trtllm = np.array([x.engine.kind == "trtllm" for x in setups])
        self.of_fp8_cache = np.array(
            [
                x.engine.kind == "vllm" and x.layout.kv_precision == "fp8"
                for x in setups
            ]
        )
        self.message = self._of(lambda x: x.demand.message_tokens)
        self.budget = self._of(lambda x: x.budget_tokens)
        self.requests = self._of(lambda x: x.demand.request_count)
        self.replicas = self._of(lambda x: float(x.replica_count))
        self.prompt = self._of(lambda x: x.demand.prompt_tokens)
        self.answer = self._of(lambda x: x.demand.answer_tokens)
        self.users = (
            self._of(lambda x: max(1.0, x.demand.user_count)) / self.replicas
        )
        self.rate = self._of(lambda x: x.demand.rate_per_s) / self.replicas
        self.speculative = self._of(lambda x: float(x.speculative)) > 0
        self.draft = Draft(
            *(
                self._of(attrgetter("draft." + name))
                for name in Draft.__struct_fields__
            )
        )
        self.throughput = np.array([sample.throughput for sample in samples])
        self.ttft = np.array([sample.ttft for sample in samples])
        self.tpot = np.array([sample.tpot for sample in samples])
        self._design = design(
            SERVING,
            [x.coefficient_keys for x in setups],
            [x.engine.software_year for x in setups],
        )

    def _of(self, value: Callable[[Deployment], float]) -> Array:
        return np.array([value(sample.setup) for sample in self.samples])

    def coefficients(self, parameters: Array) -> Coefficients:
        """Return the coefficients of every row, for one vector of parameters or a stack."""
        found: Coefficients = coefficients(SERVING, self._design, parameters)
        return found


def is_earlier(sample: Sample) -> bool:
    """Whether a row was of quality A before 2026-11-22, when the table grew.

    Since then sources were added, and rows of unstated drafting whose recipe was read.
    """
    return (
        sample.row["source_group"] not in NEWER_SOURCES
        and NEWER_NOTE not in sample.row["notes"]
    )


def _limit(setup: Deployment, name: str) -> float:
    """A limit of a deployment, NaN without limits."""
    limits = setup.demand.limits
    return math.nan if limits is None else float(getattr(limits, name))


def _stack(found: Sequence[ReplicaProfile]) -> ReplicaProfile:
    columns: dict[str, Array] = {
        name: np.array([getattr(x, name) for x in found], float)
        for name in ReplicaProfile.__struct_fields__
    }
    return ReplicaProfile(**columns)
