"""Reads what benchmark tools write: vLLM, GuideLLM, genai-perf, AIPerf, InferenceX, llm-optimizer.

Each reader knows its format by keys that only it has, and yields one point for each load. Times
are seconds; a time per token is that between tokens after the first, however the tool names it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from planner.errors import Place, Problem, UsageError
from planner.perf.constant import constant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MS: Final = 1000.0
WIDEST: Final = 64
MOST: Final = {
    "input tokens": 1e7,
    "output tokens": 1e7,
    "TTFT": 1e5,
    "TPOT": 1e3,
    "concurrency or rate": 1e6,
    "tensor parallelism": 0.0,
}
UNITS: Final = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "ns": 1e-9, "us": 1e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured load. `users` is a closed loop, else `rate` requests a second arrive."""

    place: str
    model: str
    prompt: float
    answer: float
    ttft: float
    tpot: float
    users: float = 0.0
    rate: float = 0.0
    gpu: str = ""
    tp: int = 0
    precision: str = ""
    framework: str = ""


def read(text: str, path: str) -> list[Point]:
    """Return the points of a benchmark file; raises UsageError with what was tried.

    A point without a load, lengths or latencies is an error: it would teach something wrong.
    """
    documents = _documents(text, path)
    try:
        reader = next(
            (
                r
                for _, m, r in READERS
                if isinstance(documents[0], dict) and m(documents[0])
            )
        )
    except (StopIteration, LookupError, TypeError, AttributeError):
        raise _unreadable(path, "matches none of them") from None
    try:
        points = [
            p
            for i, d in enumerate(documents, 1)
            for p in reader(d, f"{path}:{i}")
        ]
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
    ) as error:
        raise _unreadable(
            path, "lacks loads, lengths or latencies of the kind it seems to be"
        ) from error
    if not points:
        raise _unreadable(path, "has no load with a concurrency or a rate")
    return [_checked(point) for point in points]


def _documents(text: str, path: str) -> list[Any]:
    """Return the JSON documents of a text, one or several; a CSV table is one list of rows."""
    if text.lstrip()[:1] not in ("{", "["):
        try:
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
        except csv.Error as error:
            raise _unreadable(path, f"is no table: {error}") from error
        return [{"csv": rows}] if rows else []
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(text.rstrip()):
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            message = (
                f"is not complete JSON at line {error.lineno}: {error.msg}"
            )
            raise _unreadable(path, message) from error
        except RecursionError as error:
            raise _unreadable(path, "is nested too deeply") from error
        found += document if isinstance(document, list) else [document]
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def _unreadable(path: str, what: str) -> UsageError:
    tried = ", ".join(name for name, _, _ in READERS)
    problem = Problem(
        code="benchmark",
        message=f"is no benchmark that can be read: it {what}",
        place=Place(path),
        next_step=f"give the result file of one of: {tried}",
    )
    return UsageError(problem)


def _checked(point: Point) -> Point:
    """Refuse a point whose numbers nothing real has."""
    numbers = {
        "input tokens": point.prompt,
        "output tokens": point.answer,
        "TTFT": point.ttft,
        "TPOT": point.tpot,
        "concurrency or rate": point.users or point.rate,
    }
    if not 0 <= point.tp <= WIDEST:
        numbers["tensor parallelism"] = -1.0
    for name, value in numbers.items():
        if not 0 < value < MOST[name]:
            problem = Problem(
                code="benchmark",
                message=f"{name} {value:g} cannot be",
                place=Place(point.place),
                next_step="run the benchmark again, or remove this point",
            )
            raise UsageError(problem)
    return point


def _rate(value: Any) -> float:
    """A finite rate, or 0 for none or without limit."""
    try:
        found = float(value or 0)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def _vllm(d: dict[str, Any], place: str) -> Iterator[Point]:
    done = d["completed"]
    yield Point(
        place=place,
        model=str(d["model_id"]),
        prompt=d["total_input_tokens"] / done,
        answer=d["total_output_tokens"] / done,
        ttft=d["mean_ttft_ms"] / MS,
        tpot=d["mean_tpot_ms"] / MS,
        users=float(d.get("max_concurrency") or 0),
        rate=_rate(d.get("request_rate")),
        gpu=str(d.get("gpu", "")),
        tp=int(d.get("tp") or 0),
        precision=str(d.get("dtype", "")),
        framework="vllm",
    )


def _guidellm(d: dict[str, Any], place: str) -> Iterator[Point]:
    """One point for each benchmark of a report; only loads with a concurrency or a rate."""
    for number, b in enumerate(d["benchmarks"], 1):
        old = "args" in b
        strategy = (b["args"] if old else b["config"])["strategy"]
        model = (
            b["worker"]["backend_model"]
            if old
            else b["config"]["backend"]["model"]
        )
        kind = strategy["type_"]
        users = {"concurrent": strategy.get("streams"), "synchronous": 1}.get(
            kind
        )
        rate = strategy.get("rate") if kind in ("poisson", "constant") else 0
        if not users and not rate:
            continue  # a saturation run has neither

        def mean(name: str, b: dict[str, Any] = b) -> float:
            return float(b["metrics"][name]["successful"]["mean"])

        yield Point(
            place=f"{place}.{number}",
            model=str(model or ""),
            prompt=mean("prompt_token_count"),
            answer=mean("output_token_count"),
            ttft=mean("time_to_first_token_ms") / MS,
            tpot=mean("inter_token_latency_ms") / MS,
            users=float(users or 0),
            rate=_rate(rate),
        )


def _genai(d: dict[str, Any], place: str) -> Iterator[Point]:
    def mean(*names: str) -> float:
        name = next((n for n in names if n in d), names[0])
        return float(d[name]["avg"]) * UNITS.get(d[name].get("unit", ""), 1.0)

    config = d["input_config"]
    phases = [
        p for p in config.get("phases", []) if p.get("kind") == "profiling"
    ]
    stimulus = config.get("perf_analyzer", {}).get("stimulus", {})
    loads = (stimulus, config, config.get("loadgen", {}), *phases)
    users = next((x["concurrency"] for x in loads if x.get("concurrency")), 0)
    rate = next(
        (x[k] for x in loads for k in ("request_rate", "rate") if x.get(k)), 0
    )
    if not users and not rate:
        users = mean("request_throughput") * mean("request_latency")
    yield Point(
        place=place,
        model=_genai_model(config),
        users=float(users or 0),
        rate=_rate(rate),
        prompt=mean("input_sequence_length", "num_input_token"),
        answer=mean("output_sequence_length", "num_output_token"),
        ttft=mean("time_to_first_token"),
        tpot=mean("inter_token_latency"),
    )


def _genai_model(config: dict[str, Any]) -> str:
    if "models" in config:
        return str(config["models"]["items"][0]["name"])
    endpoint = config.get(
        "endpoint"
    )  # a table, or the name of an API in early files
    nested = endpoint.get("model_names") if isinstance(endpoint, dict) else None
    found = config.get("model_names") or nested or config.get("model") or ""
    return str(found[0] if isinstance(found, list) else found)


def _inferencex(d: dict[str, Any], place: str) -> Iterator[Point]:
    drawn = constant("drawn_share")
    yield Point(
        place=place,
        model=str(d["model"]),
        prompt=d["isl"] * drawn,
        answer=d["osl"] * drawn,
        ttft=d["mean_ttft"],
        tpot=d["mean_tpot"],
        users=float(d["conc"]),
        gpu=str(d["hw"]).split(":")[-1].split("-")[0],
        tp=int(d["tp"]),
        precision=str(d.get("precision", "")),
        framework=str(d.get("framework", "")),
    )


def _optimizer(d: dict[str, Any], place: str) -> Iterator[Point]:
    """One point for each record, alone or in a list of test results."""
    for number, record in enumerate(d.get("test_results", [d]), 1):
        found, about = record["results"], record.get("metadata", {})
        done = found["completed"]
        arguments = record["config"].get("server_args") or {}
        wide = (
            arguments.get("tensor_parallel_size", 0)
            if isinstance(arguments, dict)
            else 0
        )
        yield Point(
            place=f"{place}.{number}",
            model=str(about.get("model_tag", "")),
            prompt=found["total_input_tokens"] / done,
            answer=found["total_output_tokens"] / done,
            ttft=found["mean_ttft_ms"] / MS,
            tpot=found["mean_tpot_ms"] / MS,
            users=float(found.get("max_concurrency") or 0),
            rate=_rate(found.get("request_rate")),
            gpu=str(about.get("gpu_type", "")),
            tp=int(wide or 0),
        )


def _table(d: dict[str, Any], place: str) -> Iterator[Point]:
    for number, row in enumerate(d["csv"], 2):
        yield Point(
            place=f"{place.rsplit(':', 1)[0]}:{number}",
            model=row["model"],
            prompt=float(row["input_len"]),
            answer=float(row["output_len"]),
            ttft=float(row["ttft_ms_mean"]) / MS,
            tpot=float(row["tpot_ms_mean"]) / MS,
            users=float(row.get("concurrency") or 0),
            rate=_rate(row.get("request_rate_rps")),
            gpu=row.get("gpu", ""),
            tp=int(row.get("tp") or 0),
            precision=row.get("weight_precision", ""),
            framework=row.get("framework", ""),
        )


def _is_guidellm(d: Any) -> bool:
    runs = d.get("benchmarks")
    return bool(runs) and "generative" in str(runs[0].get("type_", ""))


READERS: Final[
    tuple[
        tuple[str, Callable[[Any], bool], Callable[..., Iterator[Point]]], ...
    ]
] = (
    (
        "llm-optimizer",
        lambda d: "test_results" in d or {"config", "results", "cmd"} <= set(d),
        _optimizer,
    ),
    ("GuideLLM", _is_guidellm, _guidellm),
    (
        "genai-perf or AIPerf",
        lambda d: isinstance(d.get("input_config"), dict),
        _genai,
    ),
    (
        "InferenceX",
        lambda d: {"hw", "conc", "tput_per_gpu"} <= set(d),
        _inferencex,
    ),
    (
        "vLLM bench serve",
        lambda d: {"model_id", "total_input_tokens", "completed"} <= set(d),
        _vllm,
    ),
    (
        "CSV of our columns",
        lambda d: "csv" in d and "ttft_ms_mean" in d["csv"][0],
        _table,
    ),
)
