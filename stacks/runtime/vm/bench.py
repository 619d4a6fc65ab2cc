"""What a node measures: the benchmark client of vLLM, once for each load of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.facts.serving_engine import DEFAULT_ENGINE
from stacks.runtime.vm.container import container_settings
from stacks.spec.stack import SERVING_PORT

if TYPE_CHECKING:
    from planner.estimate.benchmark_sweep import BenchmarkSweep, SweepStep
    from planner.perf.common.layout import ReplicaLayout
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

# Its client asks any server that answers as OpenAI does.
CLIENT_IMAGE: Final = "vllm"
# On the machine, and at the same place in its containers.
RESULT_FOLDER: Final = "/models/bench"


def bench_settings(
    stack: StackSpec, fleet: FleetSpec, layout: ReplicaLayout, weights: str
) -> dict[str, Any]:
    """Return the settings of `node.bench.BenchNode`; nothing for a stack that measures nothing.

    `weights` is the folder of the model on the machine, which has its tokenizer.
    """
    sweep = stack.benchmark
    if sweep is None:
        return {}
    return {
        "bench": {
            "container": container_settings(
                fleet, CLIENT_IMAGE, ["vllm", "bench", "serve"]
            ),
            "folder": RESULT_FOLDER,
            "runs": [
                {
                    "name": result_name(load),
                    "words": _client_words(stack, sweep, load, layout, weights),
                }
                for load in sweep.steps
            ],
        }
    }


def result_name(load: SweepStep) -> str:
    """Return the name of the result of a load: in the order of names, loads grow."""
    return f"{load.user_count:05d}-users.json"


def _client_words(
    stack: StackSpec,
    sweep: BenchmarkSweep,
    load: SweepStep,
    layout: ReplicaLayout,
    weights: str,
) -> list[str]:
    """Return the arguments of the client for a load.

    Each load has a seed of its own: equal seeds repeat prompts, which the prefix cache would
    answer. The client does not record the accelerator, the layout and the engine, so they are told
    as metadata.
    """
    options = {
        "--host": "127.0.0.1",
        "--port": SERVING_PORT,
        "--model": stack.model_name,
        "--tokenizer": weights,
        "--dataset-name": "random",
        "--random-input-len": sweep.prompt_tokens,
        "--random-output-len": sweep.answer_tokens,
        "--max-concurrency": load.user_count,
        "--num-prompts": load.request_count,
        "--seed": load.user_count,
        "--percentile-metrics": "ttft,tpot,itl,e2el",
        "--result-dir": RESULT_FOLDER,
        "--result-filename": result_name(load),
    }
    return [
        *(f"{option}={value}" for option, value in options.items()),
        "--ignore-eos",
        "--disable-tqdm",
        "--save-result",
        "--metadata",
        f"gpu={sweep.accelerator}",
        f"tp={layout.tp}",
        f"dtype={layout.precision}",
        f"kv_cache_dtype={layout.kv_precision}",
        *(
            []
            if sweep.engine == DEFAULT_ENGINE
            else [f"framework={sweep.engine}"]
        ),
    ]
