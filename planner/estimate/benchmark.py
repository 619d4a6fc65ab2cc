"""Readers of the result files of benchmark tools.

The tools are vLLM, GuideLLM, genai-perf, AIPerf, InferenceX and llm-optimizer. Each reader
recognizes its format by keys that no other format has. It yields one point
for each load.

Times are seconds. The time per output token excludes the first token, whatever name the tool
gives it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from planner.errors import Place, Problem, UsageError
from planner.perf.common.constant import constant
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_TP: Final = 64
# Exclusive: tokens, seconds, requests in flight or per second.
UPPER_LIMITS: Final = {
    "input tokens": 1e7,
    "output tokens": 1e7,
    "TTFT": 1e5,
    "TPOT": 1e3,
    "concurrency or rate": 1e6,
    "tensor parallelism": 0.0,
}
SECONDS_PER_UNIT: Final = {
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "ns": 1e-9,
    "us": 1e-6,
}


Report: TypeAlias = dict[str, Any]  # as a benchmark tool wrote it


class BenchmarkPoint(Struct, frozen=True, kw_only=True):
    """One measured load of a deployment.

    place          file and position, for messages
    prompt_tokens  mean prompt length, tokens
    answer_tokens  mean answer length, tokens
    ttft_s         mean time to first token, s
    tpot_s         mean time per output token after the first, s
    user_count     requests in flight in a closed loop; 0 for an open load
    rate_per_s     arrivals of an open load, requests per second
    tp             tensor-parallel size; 0 when the file does not state it

    A text field is empty when the file does not state it.
    """

    place: str
    model: str
    prompt_tokens: float
    answer_tokens: float
    ttft_s: float
    tpot_s: float
    user_count: float = 0.0
    rate_per_s: float = 0.0
    gpu: str = ""
    tp: int = 0
    precision: str = ""
    kv_precision: str = ""
    framework: str = ""


def read_benchmark(text: str, source_path: str) -> list[BenchmarkPoint]:
    """Return the points of a benchmark file.

    Raises UsageError when no reader knows the format, or when a point has no load, no lengths
    or no latencies. Such a point would bias the correction.
    """
    documents = parse_documents(text, source_path)
    try:
        # The first document decides the format of the whole file.
        document_reader = next(
            (
                point_reader
                for _, is_format, point_reader in READERS
                if isinstance(documents[0], dict) and is_format(documents[0])
            )
        )
    except (StopIteration, LookupError, TypeError, AttributeError):
        raise _format_error(source_path, "matches none of them") from None
    try:
        bench_points = [
            bench_point
            for document_number, document in enumerate(documents, 1)
            for bench_point in document_reader(
                document, f"{source_path}:{document_number}"
            )
        ]
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
    ) as read_error:
        raise _format_error(
            source_path,
            "lacks loads, lengths or latencies of the kind it seems to be",
        ) from read_error
    if not bench_points:
        raise _format_error(
            source_path, "has no load with a concurrency or a rate"
        )
    return [check_point(measured_point) for measured_point in bench_points]


def parse_documents(text: str, source_path: str) -> list[Any]:
    """Return the JSON documents of a text; a CSV file is one document, `csv`."""
    # JSON results are objects or lists; any other text is read as CSV.
    if text.lstrip()[:1] not in ("{", "["):
        try:
            table_rows = list(csv.DictReader(io.StringIO(text, newline="")))
        except csv.Error as parse_error:
            raise _format_error(
                source_path, f"is no table: {parse_error}"
            ) from parse_error
        return [{"csv": table_rows}] if table_rows else []
    decoder = json.JSONDecoder()
    text_offset = 0
    text_end = len(text.rstrip())
    json_documents = []
    # A file may contain several JSON documents one after another.
    while text_offset < text_end:
        try:
            document, text_offset = decoder.raw_decode(text, text_offset)
        except json.JSONDecodeError as parse_error:
            message = f"is not complete JSON at line {parse_error.lineno}: {parse_error.msg}"
            raise _format_error(source_path, message) from parse_error
        except RecursionError as parse_error:
            raise _format_error(
                source_path, "is nested too deeply"
            ) from parse_error
        except ValueError as parse_error:
            # Python turns no text of thousands of digits into a number.
            raise _format_error(
                source_path, f"holds no number: {parse_error}"
            ) from parse_error
        json_documents += document if isinstance(document, list) else [document]
        while text_offset < len(text) and text[text_offset].isspace():
            text_offset += 1
    return json_documents


def _format_error(source_path: str, reason: str) -> UsageError:
    format_names = ", ".join(format_name for format_name, _, _ in READERS)
    problem = Problem(
        code="benchmark",
        message=f"is no benchmark that can be read: it {reason}",
        place=Place(source_path),
        next_step=f"give the result file of one of: {format_names}",
    )
    return UsageError(problem)


def check_point(point: BenchmarkPoint) -> BenchmarkPoint:
    """Return the point; raises UsageError when one of its numbers is impossible."""
    value_by_name = {
        "input tokens": point.prompt_tokens,
        "output tokens": point.answer_tokens,
        "TTFT": point.ttft_s,
        "TPOT": point.tpot_s,
        "concurrency or rate": point.user_count or point.rate_per_s,
    }
    # 0 means that the file does not state it; options then supply it.
    if not 0 <= point.tp <= MAX_TP:
        value_by_name["tensor parallelism"] = -1.0
    for quantity_name, quantity in value_by_name.items():
        if not 0 < quantity < UPPER_LIMITS[quantity_name]:
            problem = Problem(
                code="benchmark",
                message=f"{quantity_name} {quantity:g} cannot be",
                place=Place(point.place),
                next_step="run the benchmark again, or remove this point",
            )
            raise UsageError(problem)
    return point


def _finite_rate(raw_rate: Any) -> float:
    """Return the rate in requests per second, or 0 when it is absent or infinite."""
    try:
        rate_per_s = float(raw_rate or 0)
    except ValueError:
        return 0.0
    # vLLM writes inf when it sends all requests at once.
    return rate_per_s if math.isfinite(rate_per_s) else 0.0


def _vllm_points(report: Report, place: str) -> Iterator[BenchmarkPoint]:
    completed_count = report["completed"]
    yield BenchmarkPoint(
        place=place,
        model=str(report["model_id"]),
        # Totals count completed requests only, so the quotients are means.
        prompt_tokens=report["total_input_tokens"] / completed_count,
        answer_tokens=report["total_output_tokens"] / completed_count,
        ttft_s=report["mean_ttft_ms"] / MS_PER_S,
        tpot_s=report["mean_tpot_ms"] / MS_PER_S,
        user_count=float(report.get("max_concurrency") or 0),
        rate_per_s=_finite_rate(report.get("request_rate")),
        # vLLM does not write what follows: it comes from --metadata.
        gpu=str(report.get("gpu", "")),
        tp=int(report.get("tp") or 0),
        precision=str(report.get("dtype", "")),
        kv_precision=str(report.get("kv_cache_dtype", "")),
        # Its client measures other engines too.
        framework=str(report.get("framework", "vllm")),
    )


def _guidellm_points(report: Report, place: str) -> Iterator[BenchmarkPoint]:
    """Yield a point for each benchmark of a report that has a concurrency or a rate."""
    for load_number, load_report in enumerate(report["benchmarks"], 1):
        # Older releases call the settings `args`, newer ones `config`.
        is_old_format = "args" in load_report
        load_strategy = (
            load_report["args"] if is_old_format else load_report["config"]
        )["strategy"]
        model_name = (
            load_report["worker"]["backend_model"]
            if is_old_format
            else load_report["config"]["backend"]["model"]
        )
        strategy_type = load_strategy["type_"]
        # Only these strategies fix the number of requests in flight.
        user_count = {
            "concurrent": load_strategy.get("streams"),
            "synchronous": 1,
        }.get(strategy_type)
        rate_per_s = (
            load_strategy.get("rate")
            if strategy_type in ("poisson", "constant")
            else 0
        )
        if not user_count and not rate_per_s:
            continue  # a saturation run has neither

        def mean(metric_name: str, mean_source: Report = load_report) -> float:
            return float(
                mean_source["metrics"][metric_name]["successful"]["mean"]
            )

        yield BenchmarkPoint(
            place=f"{place}.{load_number}",
            model=str(model_name or ""),
            prompt_tokens=mean("prompt_token_count"),
            answer_tokens=mean("output_token_count"),
            ttft_s=mean("time_to_first_token_ms") / MS_PER_S,
            # Its time per output token would include the first token.
            tpot_s=mean("inter_token_latency_ms") / MS_PER_S,
            user_count=float(user_count or 0),
            rate_per_s=_finite_rate(rate_per_s),
        )


def _genai_points(report: Report, place: str) -> Iterator[BenchmarkPoint]:
    def mean(*metric_names: str) -> float:
        metric_name = next(
            (
                candidate_name
                for candidate_name in metric_names
                if candidate_name in report
            ),
            metric_names[0],
        )
        # Each metric states its own unit.
        return float(report[metric_name]["avg"]) * SECONDS_PER_UNIT.get(
            report[metric_name].get("unit", ""), 1.0
        )

    input_config = report["input_config"]
    profiling_phases = [
        run_phase
        for run_phase in input_config.get("phases", [])
        if run_phase.get("kind") == "profiling"
    ]
    stimulus_config = input_config.get("perf_analyzer", {}).get("stimulus", {})
    # The place of the load in the file depends on tool and release.
    load_configs = (
        stimulus_config,
        input_config,
        input_config.get("loadgen", {}),
        *profiling_phases,
    )
    user_count = next(
        (
            load_config["concurrency"]
            for load_config in load_configs
            if load_config.get("concurrency")
        ),
        0,
    )
    rate_per_s = next(
        (
            load_config[rate_key]
            for load_config in load_configs
            for rate_key in ("request_rate", "rate")
            if load_config.get(rate_key)
        ),
        0,
    )
    if not user_count and not rate_per_s:
        # Little's law: requests in flight = throughput * latency.
        user_count = mean("request_throughput") * mean("request_latency")
    yield BenchmarkPoint(
        place=place,
        model=_genai_model(input_config),
        user_count=float(user_count or 0),
        rate_per_s=_finite_rate(rate_per_s),
        prompt_tokens=mean("input_sequence_length", "num_input_token"),
        answer_tokens=mean("output_sequence_length", "num_output_token"),
        ttft_s=mean("time_to_first_token"),
        tpot_s=mean("inter_token_latency"),
    )


def _genai_model(input_config: Report) -> str:
    if "models" in input_config:
        return str(input_config["models"]["items"][0]["name"])
    endpoint_config = input_config.get(
        "endpoint"
    )  # a table, or the name of an API in early files
    endpoint_models = (
        endpoint_config.get("model_names")
        if isinstance(endpoint_config, dict)
        else None
    )
    model_names = (
        input_config.get("model_names")
        or endpoint_models
        or input_config.get("model")
        or ""
    )
    return str(model_names[0] if isinstance(model_names, list) else model_names)


def _inferencex_points(report: Report, place: str) -> Iterator[BenchmarkPoint]:
    drawn_share = constant("drawn_share")
    yield BenchmarkPoint(
        place=place,
        model=str(report["model"]),
        # Lengths are drawn from 0.8 to 1.0 of the nominal one.
        prompt_tokens=report["isl"] * drawn_share,
        answer_tokens=report["osl"] * drawn_share,
        # This format has seconds, not milliseconds.
        ttft_s=report["mean_ttft"],
        tpot_s=report["mean_tpot"],
        user_count=float(report["conc"]),
        gpu=str(report["hw"]).split(":")[-1].split("-")[0],
        tp=int(report["tp"]),
        precision=str(report.get("precision", "")),
        framework=str(report.get("framework", "")),
    )


def _llm_optimizer_points(
    report: Report, place: str
) -> Iterator[BenchmarkPoint]:
    """Yield a point for each record of a single result or of a list of results."""
    for record_number, test_record in enumerate(
        report.get("test_results", [report]), 1
    ):
        bench_results = test_record["results"]
        metadata = test_record.get("metadata", {})
        completed_count = bench_results["completed"]
        server_args = test_record["config"].get("server_args") or {}
        tensor_parallel = (
            server_args.get("tensor_parallel_size", 0)
            if isinstance(server_args, dict)
            else 0
        )
        yield BenchmarkPoint(
            place=f"{place}.{record_number}",
            model=str(metadata.get("model_tag", "")),
            prompt_tokens=bench_results["total_input_tokens"] / completed_count,
            answer_tokens=bench_results["total_output_tokens"]
            / completed_count,
            ttft_s=bench_results["mean_ttft_ms"] / MS_PER_S,
            tpot_s=bench_results["mean_tpot_ms"] / MS_PER_S,
            user_count=float(bench_results.get("max_concurrency") or 0),
            rate_per_s=_finite_rate(bench_results.get("request_rate")),
            gpu=str(metadata.get("gpu_type", "")),
            tp=int(tensor_parallel or 0),
        )


def _csv_points(table: Report, place: str) -> Iterator[BenchmarkPoint]:
    # Line 1 is the header.
    for line_number, table_row in enumerate(table["csv"], 2):
        yield BenchmarkPoint(
            place=f"{place.rsplit(':', 1)[0]}:{line_number}",
            model=table_row["model"],
            prompt_tokens=float(table_row["input_len"]),
            answer_tokens=float(table_row["output_len"]),
            ttft_s=float(table_row["ttft_ms_mean"]) / MS_PER_S,
            tpot_s=float(table_row["tpot_ms_mean"]) / MS_PER_S,
            user_count=float(table_row.get("concurrency") or 0),
            rate_per_s=_finite_rate(table_row.get("request_rate_rps")),
            gpu=table_row.get("gpu", ""),
            tp=int(table_row.get("tp") or 0),
            precision=table_row.get("weight_precision", ""),
            framework=table_row.get("framework", ""),
        )


def _is_guidellm(report: Any) -> bool:
    load_reports = report.get("benchmarks")
    return bool(load_reports) and "generative" in str(
        load_reports[0].get("type_", "")
    )


# Name, test of a document, reader. The first test that passes decides.
READERS: Final[
    tuple[
        tuple[
            str, Callable[[Any], bool], Callable[..., Iterator[BenchmarkPoint]]
        ],
        ...,
    ]
] = (
    (
        "llm-optimizer",
        lambda document: (
            "test_results" in document
            or {"config", "results", "cmd"} <= set(document)
        ),
        _llm_optimizer_points,
    ),
    ("GuideLLM", _is_guidellm, _guidellm_points),
    (
        "genai-perf or AIPerf",
        lambda document: isinstance(document.get("input_config"), dict),
        _genai_points,
    ),
    (
        "InferenceX",
        lambda document: {"hw", "conc", "tput_per_gpu"} <= set(document),
        _inferencex_points,
    ),
    (
        "vLLM bench serve",
        lambda document: (
            {"model_id", "total_input_tokens", "completed"} <= set(document)
        ),
        _vllm_points,
    ),
    (
        "CSV of our columns",
        lambda document: (
            "csv" in document and "ttft_ms_mean" in document["csv"][0]
        ),
        _csv_points,
    ),
)
