"""Reads one row of a table of training runs; columns that hold measurements are never read."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.estimate import names
from planner.estimate.names import RefusedError
from planner.estimate.row import HOST, count, number
from planner.estimate.software import software
from planner.perf.train.job import Job, Spread
from planner.perf.train.states import frozen_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.train.job import Recompute, Sharding, Software

Row: TypeAlias = "Mapping[str, str]"
UNSTATED: Final = 1024  # accelerators of a run that does not say how many
ELEMENTS: Final = 80e6  # of one activation at the micro-batch that is taken when none is stated
BUBBLE: Final = 0.1  # share of a step that idles, above which a pipeline is interleaved more
CHUNK: Final = 4  # layers of an interleaved chunk where none is stated
RANK: Final = 8  # of adapters
LARGE_GIB: Final = (
    100.0  # memory from which tensor parallelism is not assumed for adapters
)
EIGHT: Final = 1.1  # with scales and what stays in 16 bit
WIDE: Final = 4


@dataclass(frozen=True, slots=True)
class Read:
    """The job of a row, and whether its layout or size had to be assumed."""

    job: Job
    assumed: bool


def job(row: Row) -> Read:
    """Return the job of a row; raises RefusedError with what is wrong."""
    llm, chip = names.model(row["model"]), names.gpu(row["gpu"])
    if not (chip.bandwidth_gb_s and chip.bf16_tflops):
        raise RefusedError(f"the data sheet of {chip.accelerator} is not known")
    if chip.link == "none":
        chip = replace(chip, link_domain=HOST)
    soft = software(row, llm, chip)
    total = count(row, "n_gpus", 0) or _product(row)
    sequence = int(number(row, "seq_len"))
    assumed = not total or not sequence
    sequence = sequence or (
        2048 if soft.kernels == "xla" or llm.family == "gpt" else 8192
    )
    spread, batch, guessed = _spread(
        row, llm, chip, (soft, total or UNSTATED, sequence)
    )
    frozen, host = _frozen(row, soft), _host(row)
    return Read(
        Job(
            llm=llm,
            chip=chip,
            spread=spread,
            software=soft,
            sequence=sequence,
            batch=batch,
            network=_network(row, chip) * 1e9,
            optimizer=_optimizer(row, soft, total),
            frozen=frozen,
            rank=RANK if frozen else 0,
            offload=host["offload"],
            backward_step=host["backward_step"],
        ),
        assumed or guessed,
    )


def _product(row: Row) -> int:
    parts = [count(row, name, 0) for name in ("tp", "pp", "cp", "dp")]
    return math.prod(max(1, part) for part in parts) if parts[0] else 0


def _spread(
    row: Row, llm: Llm, chip: Accelerator, rest: tuple[Software, int, int]
) -> tuple[Spread, float, bool]:
    """Return the layout, the global batch in sequences, and whether the layout was assumed."""
    soft, total, sequence = rest
    tp, pp, cp = (count(row, name, 0) for name in ("tp", "pp", "cp"))
    batch, micro = (
        float(count(row, name, 0)) for name in ("global_batch", "micro_batch")
    )
    turns = count(row, "grad_accum", 0)
    sharding = _sharding(row, soft)
    tp = (
        max(1, tp // 2) if chip.vendor == "aws" and tp else tp
    )  # cores, two to a chip
    guessed = not tp
    if guessed:
        tp, pp, cp, sharding = _guessed(
            row, soft, chip, (total, batch, micro or 1.0, turns)
        )
        micro = micro or (1.0 if chip.vendor == "google" or batch else 0.0)
        batch = batch or (float(total) if chip.vendor == "google" else 0.0)
    pp, cp = max(1, pp), max(1, cp)
    if total % (tp * pp * cp) and not guessed:
        raise RefusedError(
            f"n_gpus {total} is not a multiple of tp {tp} x pp {pp} x cp {cp}"
        )
    stated = count(row, "dp", 0)
    dp = stated if stated and not guessed else max(1, total // (tp * pp * cp))
    if (
        soft.torch and pp > 1 and micro >= pp
    ):  # the local batch is cut into pp micro-batches
        batch, micro = batch or micro * dp, micro / pp
    if not micro:
        share = batch / dp if batch else 64.0
        micro = (
            max(1.0, share / turns)
            if turns
            else min(_micro(llm, sequence), max(1.0, share))
        )
    batch = batch or micro * dp
    micro = max(batch / dp, 1e-3) if batch < dp * micro else micro
    return (
        Spread(
            tp=tp,
            pp=pp,
            vpp=_chunks(row, llm, soft, (pp, batch / dp / micro)),
            cp=cp,
            dp=dp,
            ep=max(1, count(row, "ep", 1)) if llm.experts else 1,
            sharding=sharding,
            micro=micro,
            shard=_group(row),
            recompute=_recompute(row, soft),
        ),
        batch,
        guessed,
    )


def _guessed(
    row: Row,
    soft: Software,
    chip: Accelerator,
    sizes: tuple[int, float, float, int],
) -> tuple[int, int, int, Sharding]:
    """Take a layout for a run that states none: from its batch, else sharded over everything."""
    total, batch, micro, turns = sizes
    if chip.vendor == "google" or not batch:
        return 1, 1, 1, "zero3"
    dp = max(1, round(batch / micro / turns)) if turns else total
    group = max(1, total // dp)
    if _frozen(row, soft):
        tp = min(group, WIDE if chip.memory_gib < LARGE_GIB else 1)
        return tp, 1, group // tp, "zero1"
    tp = min(group, WIDE)
    return tp, max(1, group // tp), 1, "zero1"


def _micro(llm: Llm, sequence: int) -> float:
    """The micro-batch at which one activation reaches 80 million elements, a power of two."""
    return float(
        2
        ** max(
            0,
            math.floor(math.log2(max(1.0, ELEMENTS / (sequence * llm.hidden)))),
        )
    )


def _chunks(
    row: Row, llm: Llm, soft: Software, turned: tuple[int, float]
) -> int:
    """Interleaved chunks of a stage; where none are stated, four layers each in Megatron.

    Since chunks may be of any size, they are taken finer where the bubble would be large.
    """
    stated, (pp, micros) = count(row, "vpp", 0), turned
    if stated:
        return stated
    if pp == 1 or llm.experts:
        return 1
    if soft.torch:
        return 2 if "interleaved" in (row.get("notes") or "").lower() else 1
    if (
        "kind" in row
    ):  # tables of memory state no chunks: three, where they divide
        return 3 if llm.layers % (3 * pp) == 0 else 1
    usual = (
        llm.layers // pp // CHUNK if soft.kernels in ("te", "megatron21") else 1
    )
    enough = (
        math.ceil((pp - 1) / micros / BUBBLE) if soft.kernels == "te" else 1
    )
    return max(1, usual, min(math.ceil(llm.layers / pp), enough))


def _sharding(row: Row, soft: Software) -> Sharding:
    said = (row.get("sharding") or "").lower()
    if "shard_grad" in said or "zero-2" in said:
        return "zero2"
    if "fsdp" in said or "zero-3" in said:
        return "zero3"
    if (
        "zero-1" in said
        or "distributed" in said
        or (not said and soft.kernels == "te")
    ):
        return "zero1"
    return "none"


def _group(row: Row) -> int:
    found = re.search(
        r"megatron-fsdp (\d+)", (row.get("sharding") or "").lower()
    )
    return int(found[1]) if found else 0


def _recompute(row: Row, soft: Software) -> Recompute:
    said = (row.get("act_ckpt") or "").lower()
    if said.startswith(("true", "full")):
        return "full"
    if "layer" in said:
        return "layer"
    if "selective" in said:
        return "ops" if soft.torch else "attention"
    if said in ("false", "none") or "sequence" in said:
        return "none"
    return "forced"


def _frozen(row: Row, soft: Software) -> float:
    """Bytes of a parameter that is not trained; fused kernels keep it in 8 bit when they can."""
    word = " ".join(
        row.get(name) or "" for name in ("task", "notes", "row_id")
    ).lower()
    if "qlora" in word or "nf4" in (row.get("precision") or "").lower():
        return frozen_bytes("qlora")
    low = soft.kernels == "te" and soft.precision != "bf16"
    return (EIGHT if low else frozen_bytes("lora")) if "lora" in word else 0.0


def _optimizer(row: Row, soft: Software, total: int) -> str:
    """The optimizer that a framework takes by itself, or that a remark names."""
    name, notes = (
        (row.get("framework") or "").lower(),
        (row.get("notes") or "").lower(),
    )
    if "torchtune" in name:
        if "paged" in notes or total == 1:
            return "paged"
        return "adam8bit" if "8bit" in notes else "adamw-bf16"
    return "adamw-fp32" if soft.torch else "adamw"


def _host(row: Row) -> dict[str, bool]:
    notes = (row.get("notes") or "").lower()
    tuned = "torchtune" in (row.get("framework") or "").lower()
    return {
        "offload": tuned and "cpu offload" in notes,
        "backward_step": tuned and "optimizer-in-backward" in notes,
    }


@cache
def _networks() -> dict[str, float]:
    text = (
        files("planner.estimate")
        .joinpath("data", "networks.csv")
        .read_text(encoding="utf-8")
    )
    return {
        r["architecture"]: float(r["gb_s"])
        for r in csv.DictReader(text.splitlines())
    }


def _network(row: Row, chip: Accelerator) -> float:
    """GB/s one way of each accelerator beyond its link: as stated, else usual for the chip."""
    said = (row.get("fabric") or "").lower()
    node = re.search(r"(\d+) ?gbps/node", said)
    if node:
        return float(node[1]) / 8 / 8
    for words, rate in (
        ("hdr", 25.0),
        ("xdr 800", 100.0),
        ("400 ?gb/s rdma|ndr ?400", 50.0),
    ):
        if re.search(words, said):
            return rate
    return _networks().get(chip.architecture, 25.0)
