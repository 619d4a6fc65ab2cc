"""Reads one row of a table of configurations; columns that hold measurements are never read."""

from __future__ import annotations

import csv
import math
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.estimate import names
from planner.estimate.names import RefusedError
from planner.perf.coefficient import REFERENCE
from planner.perf.engine import VARIED, Engine, engines, kv_precision
from planner.perf.layout import Layout, Node
from planner.perf.setup import Demand, Kind, Setup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

DOMAIN: Final = 16  # accelerators of a node with a rack-scale link count as one domain of this
PLAIN: Final = 8
NETWORK_GB_S: Final = 400.0
LONGEST: Final = 10_000_000
KINDS: Final[dict[str, Kind]] = {
    "offline_max": "offline", "static_batch": "static", "concurrency": "closed", "rate": "open",
    "all_at_once": "static",
}  # fmt: skip
POOLS: Final = re.compile(
    r"prefill (\d+) workers? x (\d+) GPU \(tp(\d+) adp(\d+) ep(\d+)\); "
    r"decode (\d+) workers? x (\d+) GPU \(tp(\d+) adp(\d+) ep(\d+)\)"
)
TUNED: Final = ("Server", "Interactive")


def setup(row: Mapping[str, str]) -> Setup:
    """Return the configuration of a row; raises RefusedError with what is wrong."""
    llm = names.model(row["model"])
    chip = names.gpu(row["gpu"])
    precision = _precision(row, llm, chip)
    known = names.framework(row["framework"])
    layout, replicas, prefill = _layout(row, precision, llm)
    kept = names.kv_precision(row.get("kv_precision") or "") or kv_precision(known, llm, precision)
    layouts = [layout] if prefill is None else [layout, prefill[1]]
    laid = [_kept(x, kept) for x in layouts]
    width = max(x.tp * x.pp for x in laid)
    return Setup(
        llm=llm, layout=laid[0], node=_node(chip, width, row), engine=_engine(row, known),
        demand=_demand(row), replicas=replicas,
        prefill=None if prefill is None else (prefill[0], laid[1]),
        speculative=_speculative(row),
    )  # fmt: skip


def _precision(row: Mapping[str, str], llm: Llm, chip: Accelerator) -> str:
    given = names.precision(row.get("weight_precision") or row.get("precision") or "bf16")
    # A model released in mxfp4 is served so, whatever its activations are called.
    if llm.precision == "mxfp4" and given in ("fp4", "fp8"):
        given = "mxfp4"
    native = chip.runs(given) or (chip.vendor == "nvidia" and float(chip.compute_capability) >= 8)
    if not native:
        raise RefusedError(f"{chip.accelerator} does not compute {given}")
    return given


def _kept(layout: Layout, kept: str) -> Layout:
    return Layout(
        precision=layout.precision, kv_precision=kept, tp=layout.tp, pp=layout.pp, ep=layout.ep,
        adp=layout.adp,
    )  # fmt: skip


def _layout(
    row: Mapping[str, str], precision: str, llm: Llm
) -> tuple[Layout, int, tuple[int, Layout] | None]:
    """Return the layout of a replica, how many there are, and the prefill workers."""
    pools = POOLS.match(row.get("disagg_layout") or "")
    if pools:
        x = [int(part) for part in pools.groups()]
        ahead = _group(precision, x[1], 1, x[4], x[3])
        return _group(precision, x[6], 1, x[9], x[8]), x[5], (x[0], ahead)
    if (row.get("serving_mode") or "").startswith("disagg"):
        raise RefusedError("the layout of the prefill and decode workers is not given")
    pp = _count(row, "pp", 1)
    total = _count(row, "n_gpus", _count(row, "tp", 1) * pp)
    replicas = _count(row, "replicas", 0) or max(1, total // (_count(row, "tp", total) * pp))
    if total % (pp * replicas):
        raise RefusedError(f"n_gpus {total} is not a multiple of pp {pp} x replicas {replicas}")
    tp = _count(row, "tp", total // (pp * replicas))
    adp, ep = _count(row, "attn_dp", 1), _count(row, "ep", 1)
    tp = max(tp, total // (pp * replicas)) if adp > 1 or ep > 1 else tp
    # Load-generator runs of latent-attention models with spread experts repeat attention.
    if llm.kv_lora_rank and ep > 1 and not row.get("attn_dp") and _tested(row):
        adp = ep
    return _group(precision, tp, pp, ep, adp), replicas, None


def _group(precision: str, tp: int, pp: int, ep: int, adp: int) -> Layout:
    adp = adp if tp % adp == 0 else tp
    ep = ep if tp % ep == 0 else tp
    return Layout(precision=precision, kv_precision="bf16", tp=tp, pp=pp, ep=ep, adp=adp)


def _node(chip: Accelerator, width: int, row: Mapping[str, str]) -> Node:
    rack = chip.link in ("nvlink", "ici", "neuronlink") and chip.accelerator.startswith("g")
    scaleup = "nvlink_pairs" if chip.link == "nvlink_pairs" else "nvlink"
    return Node(
        accelerator=chip, count=max(PLAIN, width if rack else min(width, DOMAIN)),
        memory_gib=chip.memory_gib, fraction=1.0,
        scaleup="pcie" if chip.link == "none" or _plugged(row) else scaleup,
        network_gb_s=NETWORK_GB_S,
    )  # fmt: skip


def _plugged(row: Mapping[str, str]) -> bool:
    return "interconnect: PCIe" in (row.get("notes") or "")


def _engine(row: Mapping[str, str], known: str) -> Engine:
    kind = engines()[known]
    year = _released(known, row.get("framework_version") or "") or _year(
        row.get("source_date") or "", kind["year"]
    )
    modern = year >= REFERENCE and not _tested(row)
    if known == "trtllm" and not modern and "PyTorch" not in row["framework"]:
        kind = engines()["trtllm-cpp"]
    most = re.search(r"max batch per engine=(\d+)", row.get("notes") or "")
    return Engine(
        kind=kind["kind"], year=year, sequences=int(most[1]) if most else kind["sequences"],
        tuned=(row.get("scenario") or "") in TUNED,
    )  # fmt: skip


@cache
def _releases() -> tuple[tuple[str, str, float], ...]:
    text = files("planner.estimate").joinpath("data", "releases.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple((row["engine"], row["version"], float(row["year"])) for row in rows)


def _released(known: str, version: str) -> float | None:
    """Return the year of the newest release whose number a version starts with."""
    for engine, number, year in _releases():
        if engine == known and re.match(rf"{re.escape(number)}(\D|$)", version.strip(" v~")):
            return year
    return None


def _year(date: str, otherwise: float) -> float:
    found = re.search(r"(20\d\d)(?:-(\d\d))?", date)
    if not found or date.startswith("<"):
        return otherwise
    return int(found[1]) + (int(found[2] or 6) - 1) / 12


def _tested(row: Mapping[str, str]) -> bool:
    return (row.get("source_group") or "").startswith("mlperf") or (row.get("scenario") or "") in (
        *TUNED,
        "Offline",
    )


def _demand(row: Mapping[str, str]) -> Demand:
    kind = KINDS[names.load_kind(row["load_kind"])]
    lengths = row.get("len_kind") or ""
    # Lengths that are uniform in 0.8 to 1.0 of the nominal ones have 0.9 of it as their mean.
    mean = 0.9 if lengths.startswith("uniform in [0.8,1.0]") else 1.0
    prompt = _number(row, "input_len") or _dataset(row)
    answer = _number(row, "output_len") or 1.0
    users = _number(row, "concurrency")
    if names.load_kind(row["load_kind"]) == "all_at_once":
        users = float(re.sub(r"\D", "", row["load_kind"]) or users or 1)
    if kind in ("static", "closed") and not users:
        raise RefusedError("concurrency is missing")
    rate = _number(row, "request_rate_rps") if kind == "open" else 0.0
    if kind == "open" and not rate:
        raise RefusedError("request_rate_rps is missing")
    return Demand(
        kind=kind, prompt=prompt * mean, answer=max(1.0, answer * mean), users=users, rate=rate,
        lengths=VARIED if lengths.startswith("dataset") else VARIED[:1] if mean < 1 else (),
    )  # fmt: skip


@cache
def _datasets() -> dict[str, float]:
    text = files("planner.estimate").joinpath("data", "datasets.csv").read_text(encoding="utf-8")
    return {r["model"]: float(r["input_tokens"]) for r in csv.DictReader(text.splitlines())}


def _dataset(row: Mapping[str, str]) -> float:
    """Return the mean prompt of a benchmark's dataset, which its rows leave out."""
    found = _datasets().get(names.model(row["model"]).model)
    if found is None or not _tested(row):
        raise RefusedError("input_len is missing")
    return found


def _speculative(row: Mapping[str, str]) -> bool:
    return not (row.get("spec_decode") or "none").startswith("none")


def _number(row: Mapping[str, str], column: str) -> float:
    """Return a number above 0, or 0 when the cell is empty."""
    cell = (row.get(column) or "").strip()
    if not cell:
        return 0.0
    try:
        found = float(cell)
    except ValueError:
        raise RefusedError(f"{column} '{cell}' is not a number") from None
    if not 0 < found < LONGEST or math.isnan(found):
        raise RefusedError(f"{column} {cell} is not between 0 and {LONGEST:,}")
    return found


def _count(row: Mapping[str, str], column: str, otherwise: int) -> int:
    """Return a whole number of 1 or more; of several alternatives, the first."""
    cell = (row.get(column) or "").split("|")[0].strip()
    if not cell:
        return otherwise
    try:
        found = int(float(cell))
    except (ValueError, OverflowError):
        raise RefusedError(f"{column} '{cell}' is not a whole number") from None
    if not 1 <= found <= 100_000:
        raise RefusedError(f"{column} {cell} is not between 1 and 100,000")
    return found
