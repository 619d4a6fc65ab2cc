"""What serving engines say of themselves, for machines in memory.

Written from what the engines publish: vLLM 0.19 v1/metrics/loggers.py; SGLang 0.5.7
python/sglang/srt: metrics/collector.py, managers/scheduler_metrics_mixin.py,
managers/scheduler_runtime_checker_mixin.py and managers/tokenizer_manager.py; TensorRT-LLM 1.1.0
commands/trtllm-serve of its documentation, tensorrt_llm/serve/openai_server.py,
tensorrt_llm/executor/result.py and tensorrt_llm/metrics/collector.py.
"""

from __future__ import annotations

from collections.abc import Callable

# SGLang tells an idle scheduler's gauges only so long after its last step.
STALE_S = 30.0
# And looks every so many seconds whether what it has begun is done, when it is told to end.
DRAIN_LOOK_S = 5.0
SGLANG = "sglang.launch_server"
TRTLLM = "trtllm-serve"
# Requests end so often here, where there are some.
REQUEST_S = 60.0
WORKING_UTILIZATION = 93.0


def is_sglang(words: list[str]) -> bool:
    """Whether a container was started with the server of SGLang."""
    return SGLANG in words


def is_trtllm(words: list[str]) -> bool:
    """Whether a container was started with the server of TensorRT-LLM."""
    return TRTLLM in words


def drains(words: list[str]) -> bool:
    """Whether the server answers what it has begun when it is told to end.

    Those of SGLang and TensorRT-LLM end as uvicorn does: once connections are done.
    """
    return is_sglang(words) or is_trtllm(words)


def never_answers(words: list[str], url: str, running: float) -> bool:
    """Whether a question waits for as long as there is work.

    TensorRT-LLM gives away the records of its steps until none has come for two seconds.
    """
    is_of_steps = url.endswith("/metrics") and "/prometheus/" not in url
    return is_trtllm(words) and is_of_steps and running > 0


def told_metrics(
    words: list[str],
    url: str,
    running_at: Callable[[float], float],
    tokens_at: Callable[[float], int],
    now_s: float,
) -> str | None:
    """What an engine says of itself at a time, None where it has no such page.

    SGLang and TensorRT-LLM count nothing unless they are told to.
    """
    if is_trtllm(words):
        return _trtllm(words, url, running_at, now_s)
    if url.endswith("/prometheus/metrics"):
        return None
    if not is_sglang(words):
        return _vllm(running_at(now_s), tokens_at(now_s))
    if "--enable-metrics" not in words:
        return ""
    stages = next(
        int(word.partition("=")[2])
        for word in words
        if word.startswith("--pp-size=")
    )
    running = running_at(now_s) or max(0.0, running_at(now_s - STALE_S))
    return "".join(
        _sglang(running, tokens_at(now_s), stage) for stage in range(stages)
    )


def _vllm(running: float, tokens: int) -> str:
    return (
        f'vllm:num_requests_running{{model="m"}} {running}\n'
        f'vllm:num_requests_waiting{{model="m"}} 0.0\n'
        f'vllm:num_requests_waiting_by_reason{{model="m"}} 7.0\n'
        f'vllm:generation_tokens_total{{model="m"}} {float(tokens)}\n'
    )


def _trtllm(
    words: list[str],
    url: str,
    running_at: Callable[[float], float],
    now_s: float,
) -> str | None:
    if not url.endswith("/prometheus/metrics"):
        return "[]"
    if not any("return_perf_metrics: true" in word for word in words):
        return None
    ended = sum(
        1
        for number in range(1, int(now_s / REQUEST_S) + 1)
        if running_at(number * REQUEST_S)
    )
    labels = 'engine_type="undefined",model_name="undefined"'
    return (
        "# TYPE request_success_total counter\n"
        f'request_success_total{{{labels},finished_reason="stop"}} {ended}.0\n'
        f"e2e_request_latency_seconds_count{{{labels}}} {ended}.0\n"
        f"e2e_request_latency_seconds_sum{{{labels}}} {now_s}\n"
    )


def _sglang(running: float, tokens: int, stage: int) -> str:
    labels = (
        'engine_type="unified",model_name="m",moe_ep_rank="0",'
        f'pp_rank="{stage}",tp_rank="0"'
    )
    return (
        f"sglang:num_running_reqs{{{labels}}} {running}\n"
        f"sglang:num_queue_reqs{{{labels}}} 0.0\n"
        f"sglang:num_grammar_queue_reqs{{{labels}}} 3.0\n"
        # Counted when a request ends: those that run long have none yet.
        'sglang:generation_tokens_total{model_name="m"} 0.0\n'
        f'sglang:realtime_tokens_total{{{labels},mode="prefill_compute"}} 0.0\n'
        f'sglang:realtime_tokens_total{{{labels},mode="decode"}} '
        f"{float(tokens)}\n"
    )
