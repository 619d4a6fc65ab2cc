"""What serving engines say of themselves, for machines in memory.

Written from what the engines publish: vLLM 0.19 v1/metrics/loggers.py; SGLang 0.5.7
python/sglang/srt: metrics/collector.py, managers/scheduler_metrics_mixin.py,
managers/scheduler_runtime_checker_mixin.py and managers/tokenizer_manager.py.
"""

from __future__ import annotations

from collections.abc import Callable

# SGLang tells an idle scheduler's gauges only so long after its last step.
STALE_S = 30.0
# And looks every so many seconds whether what it has begun is done, when it is told to end.
DRAIN_LOOK_S = 5.0
SGLANG = "sglang.launch_server"


def is_sglang(words: list[str]) -> bool:
    """Whether a container was started with the server of SGLang."""
    return SGLANG in words


def told_metrics(
    words: list[str],
    running_at: Callable[[float], float],
    tokens_at: Callable[[float], int],
    now_s: float,
) -> str:
    """What /metrics of an engine says at a time; SGLang says nothing unless it is told to."""
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
