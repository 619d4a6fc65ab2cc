"""Reads one row of a table of configurations; columns that hold measurements are never read."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.estimate import names
from planner.estimate.draft import drafted
from planner.estimate.names import RefusedError
from planner.perf.book import REFERENCE
from planner.perf.constant import constant
from planner.perf.engine import VARIED, Engine, engines, kv_precision
from planner.perf.layout import Layout, Node, valid
from planner.perf.physics import NONE
from planner.perf.setup import Demand, Kind, Setup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

AMPLE: Final = 2  # contexts are stretched by up to this in published runs
HOST: Final = 8  # accelerators of a machine without a larger link
LONGEST: Final = 10_000_000
KINDS: Final[dict[str, Kind]] = {
    "offline_max": "offline",
    "static_batch": "static",
    "concurrency": "closed",
    "rate": "open",
    "all_at_once": "static",
}
POOL: Final = r"{} N workers? x N GPU \(tpN adpN epN\)".replace(
    "N", r"([1-9]\d{{0,4}})"
)
POOLS: Final = re.compile(POOL.format("prefill") + "; " + POOL.format("decode"))
TUNED: Final = ("Server", "Interactive")


def setup(row: Mapping[str, str]) -> Setup:
    """Return the configuration of a row; raises RefusedError with what is wrong."""
    llm = names.model(row["model"])
    chip = names.gpu(row["gpu"])
    precision = _precision(row, llm, chip)
    known = names.framework(row["framework"])
    layout, replicas, prefill = _layout(row, precision, llm)
    kept = names.kv_precision(row.get("kv_precision") or "") or kv_precision(
        known, llm, precision
    )
    layouts = [layout] if prefill is None else [layout, prefill[1]]
    laid = [replace(x, kv_precision=kept) for x in layouts]
    for each in laid:
        _possible(llm, each)
    demand, guess = _demand(row), drafted(row.get("spec_decode") or "")
    if demand.prompt + demand.answer > AMPLE * llm.max_context > 0:
        raise RefusedError(
            f"{llm.model} takes {llm.max_context:,} tokens of context at most"
        )
    return Setup(
        llm=llm,
        layout=laid[0],
        node=_node(chip, row),
        engine=_engine(row, known),
        demand=demand,
        replicas=replicas,
        prefill=None if prefill is None else (prefill[0], laid[1]),
        speculative=guess is not None,
        draft=guess or NONE,
    )


def _precision(row: Mapping[str, str], llm: Llm, chip: Accelerator) -> str:
    given = names.precision(
        row.get("weight_precision") or row.get("precision") or "bf16"
    )
    # A model released in mxfp4 is served so, whatever its activations are called.
    if llm.precision == "mxfp4" and given in ("fp4", "fp8"):
        given = "mxfp4"
    if not (chip.bandwidth_gb_s and chip.bf16_tflops):
        raise RefusedError(f"the data sheet of {chip.accelerator} is not known")
    native = chip.runs(given) or (
        chip.vendor == "nvidia" and float(chip.compute_capability) >= 8
    )
    if not native:
        raise RefusedError(f"{chip.accelerator} does not compute {given}")
    return given


def _possible(llm: Llm, layout: Layout) -> None:
    """Refuse what no engine can lay out."""
    if not valid(llm, layout.tensor):
        raise RefusedError(
            f"{llm.model} cannot be cut over {layout.tensor} accelerators"
        )
    if layout.pp > llm.layers:
        raise RefusedError(
            f"pp {layout.pp} is more than the {llm.layers} layers of {llm.model}"
        )


def _layout(
    row: Mapping[str, str], precision: str, llm: Llm
) -> tuple[Layout, int, tuple[int, Layout] | None]:
    """Return the layout of a replica, how many there are, and the prefill workers."""
    told = (row.get("disagg_layout") or "").strip()
    pools = POOLS.fullmatch(told)
    if told and not pools:
        raise RefusedError(f"disagg_layout '{told}' is not understood")
    if pools:
        x = [int(part) for part in pools.groups()]
        ahead = _group(precision, x[1], 1, x[4], x[3])
        return _group(precision, x[6], 1, x[9], x[8]), x[5], (x[0], ahead)
    if (row.get("serving_mode") or "").startswith("disagg"):
        raise RefusedError(
            "the layout of the prefill and decode workers is not given"
        )
    pp = count(row, "pp", 1)
    total = count(
        row, "n_gpus", count(row, "tp", 1) * pp * count(row, "replicas", 1)
    )
    replicas = count(row, "replicas", 0) or max(
        1, total // (count(row, "tp", total) * pp)
    )
    if total % (pp * replicas):
        raise RefusedError(
            f"n_gpus {total} is not a multiple of pp {pp} x replicas {replicas}"
        )
    tp = count(row, "tp", total // (pp * replicas))
    adp, ep = count(row, "attn_dp", 1), count(row, "ep", 1)
    tp = max(tp, total // (pp * replicas)) if adp > 1 or ep > 1 else tp
    # Load-generator runs of latent-attention models with spread experts repeat attention.
    if llm.kv_lora_rank and ep > 1 and not row.get("attn_dp") and _tested(row):
        adp = ep
    if tp * pp * replicas != total:
        raise RefusedError(
            f"tp {tp} x pp {pp} x replicas {replicas} is not n_gpus {total}"
        )
    return _group(precision, tp, pp, ep, adp), replicas, None


def _group(precision: str, tp: int, pp: int, ep: int, adp: int) -> Layout:
    adp = adp if tp % adp == 0 else tp
    ep = ep if tp % ep == 0 else tp
    return Layout(
        precision=precision, kv_precision="bf16", tp=tp, pp=pp, ep=ep, adp=adp
    )


def _node(chip: Accelerator, row: Mapping[str, str]) -> Node:
    """The accelerators that talk without a network: a link's domain, or those of a host."""
    scaleup = "nvlink_pairs" if chip.link == "nvlink_pairs" else "nvlink"
    count = max(HOST, chip.link_domain)
    return Node(
        accelerator=chip,
        count=count,
        memory_gib=chip.memory_gib,
        fraction=1.0,
        scaleup="pcie" if chip.link == "none" or _plugged(row) else scaleup,
        network_gb_s=count * constant("network_each"),
    )


def _plugged(row: Mapping[str, str]) -> bool:
    return "interconnect: PCIe" in (row.get("notes") or "")


def _engine(row: Mapping[str, str], known: str) -> Engine:
    kind = engines()[known]
    year = _released(known, row.get("framework_version") or "") or year_of(
        row.get("source_date") or "", kind["year"]
    )
    modern = year >= REFERENCE and not _tested(row)
    if known == "trtllm" and not modern and "PyTorch" not in row["framework"]:
        kind = engines()["trtllm-cpp"]
    most = re.search(r"max batch per engine=(\d+)", row.get("notes") or "")
    return Engine(
        kind=kind["kind"],
        year=year,
        sequences=int(most[1]) if most else kind["sequences"],
        tuned=(row.get("scenario") or "") in TUNED,
    )


@cache
def _releases() -> tuple[tuple[str, str, float], ...]:
    text = (
        files("planner.estimate")
        .joinpath("data", "releases.csv")
        .read_text(encoding="utf-8")
    )
    rows = csv.DictReader(text.splitlines())
    return tuple(
        (row["engine"], row["version"], float(row["year"])) for row in rows
    )


def _released(known: str, version: str) -> float | None:
    """Return the year of the newest release whose number a version starts with."""
    for engine, number, year in _releases():
        if engine == known and re.match(
            rf"{re.escape(number)}(\D|$)", version.strip(" v~")
        ):
            return year
    return None


def year_of(date: str, otherwise: float) -> float:
    """Return a date such as 2025-06-30 as a year with its month as a fraction."""
    found = re.search(r"(20\d\d)(?:-(\d\d))?", date)
    if not found or date.startswith("<"):
        return otherwise
    return int(found[1]) + (int(found[2] or 6) - 1) / 12


def _tested(row: Mapping[str, str]) -> bool:
    return (row.get("source_group") or "").startswith("mlperf") or (
        row.get("scenario") or ""
    ) in (
        *TUNED,
        "Offline",
    )


def _demand(row: Mapping[str, str]) -> Demand:
    kind = KINDS[names.load_kind(row["load_kind"])]
    lengths = row.get("len_kind") or ""
    mean = (
        constant("drawn_share")
        if lengths.startswith("uniform in [0.8,1.0]")
        else 1.0
    )
    prompt = number(row, "input_len") or _dataset(row)
    answer = number(row, "output_len") or 1.0
    users = number(row, "concurrency")
    if names.load_kind(row["load_kind"]) == "all_at_once":
        users = float(re.sub(r"\D", "", row["load_kind"]) or users or 1)
    if kind in ("static", "closed") and not users:
        raise RefusedError("concurrency is missing")
    rate = number(row, "request_rate_rps") if kind == "open" else 0.0
    if kind == "open" and not rate:
        raise RefusedError("request_rate_rps is missing")
    run = re.search(r"(\d+) requests", row.get("scenario") or "")
    return Demand(
        requests=float(run[1]) if run else math.inf,
        kind=kind,
        prompt=prompt * mean,
        answer=max(1.0, answer * mean),
        users=users,
        rate=rate,
        lengths=VARIED
        if lengths.startswith("dataset")
        else VARIED[:1]
        if mean < 1
        else (),
    )


@cache
def _datasets() -> dict[str, float]:
    text = (
        files("planner.estimate")
        .joinpath("data", "datasets.csv")
        .read_text(encoding="utf-8")
    )
    return {
        r["model"]: float(r["input_tokens"])
        for r in csv.DictReader(text.splitlines())
    }


def _dataset(row: Mapping[str, str]) -> float:
    """Return the mean prompt of a benchmark's dataset, which its rows leave out."""
    found = _datasets().get(names.model(row["model"]).model)
    if found is None or not _tested(row):
        raise RefusedError("input_len is missing")
    return found


def number(row: Mapping[str, str], column: str) -> float:
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


def count(row: Mapping[str, str], column: str, otherwise: int) -> int:
    """Return a whole number of 1 or more; of several alternatives, the first."""
    cell = (row.get(column) or "").split("|")[0].strip()
    if not cell:
        return otherwise
    try:
        found = float(cell)
    except ValueError:
        found = math.nan
    if not found.is_integer():
        raise RefusedError(f"{column} '{cell}' is not a whole number")
    if not 1 <= found <= 100_000:
        raise RefusedError(f"{column} {cell} is not between 1 and 100,000")
    return int(found)
