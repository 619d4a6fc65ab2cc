"""What host cores do so that a training job is fed: tokenize, decode, and read.

A loader prepares every sample once, on the cores of all machines, while accelerators train.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

from msgspec import Struct

from planner.facts import table
from planner.perf.common.constant import constant
from planner.units import BYTES_PER_GB

MILLION: Final = 1e6


class Loader(Struct, frozen=True, kw_only=True):
    """How data of a form become tokens.

    form           tokens, text or images
    unit_rate      units that one core prepares in a second; None when no core has to
    unit_bytes     bytes of a unit in storage
    half_width_ln  half width of the 90 % band of the rate

    A unit is a token of text, or a pixel of an image.
    """

    form: str
    unit_rate: float | None
    unit_bytes: float
    half_width_ln: float


class LoaderWork(Struct, frozen=True, kw_only=True):
    """What all cores of a job prepare in a run.

    loader      how the data become tokens
    units       units that are prepared, all passes together
    samples     of these in what people count: tokens, or images
    read_bytes  bytes that are read
    """

    loader: Loader
    units: float
    samples: float
    read_bytes: float

    @property
    def core_s(self) -> float:
        """Work of the whole run, core-seconds.

        units / rate of a core + bytes / what a core reads
        """
        read_core_s = self.read_bytes / (
            constant("train_read_gb_s") * BYTES_PER_GB
        )
        if self.loader.unit_rate is None:
            return read_core_s
        return self.units / self.loader.unit_rate + read_core_s


@cache
def loaders() -> dict[str, Loader]:
    """Return the loaders of planner/perf/data/loaders.csv by form."""
    column_types: table.Columns = {
        "form": table.one_of("tokens", "text", "images"),
        "loader": table.nonempty_text,
        "rate": table.optional(table.real_between(1e-3, 1e4)),
        "unit": table.nonempty_text,
        "stored_bytes": table.real_between(1, 1e9),
        "half_width_ln": table.optional(table.real_between(0, 2)),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.perf", "loaders.csv", column_types), "form"
    )
    return {
        form: Loader(
            form=row["form"],
            # Rates and sizes are of a million units.
            unit_rate=None if row["rate"] is None else row["rate"] * MILLION,
            unit_bytes=row["stored_bytes"] / MILLION,
            half_width_ln=row["half_width_ln"] or 0.0,
        )
        for (form,), row in keyed_rows.items()
    }


def loader_cores(cores: float, accelerators: int) -> float:
    """Return the cores of a machine that loaders have.

    max(cores - accelerators * `train_host_cores`, cores * `train_loader_share`)
    """
    # A process of each accelerator launches its kernels.
    launching_cores = constant("train_host_cores") * accelerators
    return max(cores - launching_cores, constant("train_loader_share") * cores)


def rank_workers(cores: float, loading_ranks: int, needed_share: float) -> int:
    """Return the worker processes of each rank of a machine that loads data; at least 1.

    min(1, `train_worker_slack` * needed share) * cores for loaders / ranks that load

    `needed_share` is what the job takes of what these cores prepare; above 1 it starves.
    """
    rank_cores = cores / loading_ranks
    # Samples take unequal times: some workers are ahead while others are late.
    wanted_workers = math.ceil(
        constant("train_worker_slack") * needed_share * rank_cores
    )
    return max(1, min(wanted_workers, int(rank_cores)))
