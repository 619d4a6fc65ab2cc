"""Files that nobody meant well with: damaged, enormous, nested without end, full of odd values.

Each is read as tonnage reads it. It is taken, or refused as a problem of the user, within a time
and a memory that no file of a person comes near.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from planner.errors import TonnageError
from planner.estimate.benchmark import read_benchmark
from planner.estimate.calibration_file import dump_correction, parse_correction
from planner.facts.huggingface import parse_config
from planner.facts.table import any_text, integer_between, read_rows
from planner.perf.serving.correction import (
    BiasModel,
    Correction,
    feature_vector,
)
from planner.plan.canonical import digest, dump_plan, parse_plan
from planner.solve.serving.traffic_trace import read_trace
from planner.spec.load import load_spec
from providers.simulated.world_file import read_world
from stacks.engine.state import (
    ResourceRecord,
    StackState,
    decode_state,
    encode_state,
)
from tests.conftest import chat

if TYPE_CHECKING:
    from planner.plan.types import Plan

MOST_S: Final = 0.050
MOST_BYTES: Final = 64 * 2**20
# Slower than that may be the machine; it is read again before it counts.
READINGS: Final = 3
ODD_SCALARS: Final = (
    "",
    "~",
    "-0",
    "1e999",
    "-1e400",
    "9" * 5000,
    "0x1F",
    "٣",
    ".inf",
    ".nan",
    "2026-02-30",
    "!!python/object/apply:os.system [ls]",
    "&a [*a, *a]",
    "*nobody",
    "{? [a]: b}",
    "\u202etxt",
    "\x1b]0;x\x07",
    "\x00",
    "::error::x",
    "../../../etc/passwd",
    "${HOME}",
    "{{ 7 * 7 }}",
    "'" * 77,
    "[" * 300,
    "{a: " * 300,
    "x" * 20_000,
    "true",
    "[]",
    "{}",
    "\ud7ff\ue000",
    "1_000",
    "- -\n- -",
)
EXTRA: Final = """\
where: {clouds: [aws, gcp]}
buy: {fallback: 20%}
shutdown: {idle: 30m, ttl: 3d}"""
WORLD: Final = """\
clock: 2026-11-21T08:00:00Z
project: mine
capacity: [{provider: aws, region: us-east-1, nodes: 2}]
quota: [{provider: aws, instance_type: "p*", vcpus: 192}]
prices: [{provider: gcp, instance_type: a3-*, purchase: spot, usd_hour: 30}]
losses: [{purchase: spot, per_day: 0.5}]
faults: [{on: create, type: "*:Group", code: Busy, times: 1}]
"""
CONFIG: Final = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "quantization_config": {"quant_method": "fp8"},
    },
    indent=1,
)
TRACE: Final = "timestamp,input_tokens,output_tokens\n" + "".join(
    f"{second},{100 + second},{second % 90 + 1}\n" for second in range(150)
)
TABLE: Final = "name,size\n" + "".join(
    f"n{row},{row}\n" for row in range(1, 80)
)
BENCHMARK: Final = json.dumps(
    {
        "model_id": "meta-llama/Llama-3.1-8B",
        "max_concurrency": 8,
        "completed": 100,
        "total_input_tokens": 90_000,
        "total_output_tokens": 20_000,
        "mean_ttft_ms": 120.0,
        "mean_tpot_ms": 14.0,
        "request_throughput": 2.0,
    },
    indent=1,
)


@cache
def correction_text() -> str:
    size = len(feature_vector(1, 1))
    bias = BiasModel(
        weights=(0.1,) * size,
        covariance=tuple(
            tuple(0.01 * (row == column) for column in range(size))
            for row in range(size)
        ),
        noise_sigma=0.1,
    )
    correction = Correction(
        tpot=bias,
        ttft=bias,
        model="llama-3.1-8b",
        accelerator="h100-sxm",
        precision="fp8",
        tp=1,
        points=4,
    )
    return dump_correction(correction, {"bench.json": "0" * 64})


@cache
def state_text() -> str:
    record = ResourceRecord(
        type="aws:s3/bucket:Bucket",
        id="i",
        inputs={"bucket": "b", "tags": {"a": "b"}},
        outputs={"arn": "x"},
        needs=("net",),
        place=("aws", "us-east-1"),
    )
    return encode_state(
        StackState(stack="chat", resources={"models": record})
    ).decode()


def readers(plan: Plan) -> dict[str, tuple[str, Callable[[bytes], Any]]]:
    """Return what is read: a valid file, and how it is read."""
    return {
        "spec": (chat(extra=EXTRA), lambda found: load_spec(found, "s.yaml")),
        "world": (WORLD, lambda found: read_world(found, "w.yaml")),
        "plan": (dump_plan(plan), lambda found: parse_plan(found, "p.json")),
        "resealed plan": (dump_plan(plan), _read_resealed),
        "state": (state_text(), lambda found: decode_state(found, "s.json")),
        "config": (CONFIG, lambda found: parse_config(found, "config.json")),
        "trace": (TRACE, lambda found: read_trace("t.csv", lambda _: found)),
        "table": (TABLE, _read_table),
        "benchmark": (
            BENCHMARK,
            lambda found: read_benchmark(
                found.decode("utf-8", "replace"), "b.json"
            ),
        ),
        "calibration": (
            correction_text(),
            lambda found: parse_correction(found, "c.json"),
        ),
    }


def _read_resealed(found: bytes) -> Plan:
    """Read a plan whose digest somebody has made right."""
    try:
        document = json.loads(found)
        document["digest"] = digest(document)
        found = json.dumps(document).encode()
    except (ValueError, TypeError, RecursionError):
        pass
    return parse_plan(found, "p.json")


def _read_table(found: bytes) -> list[Any]:
    columns = {"name": any_text, "size": integer_between(1, 100)}
    return list(read_rows(found.decode("utf-8", "replace"), "t.csv", columns))


def hostile_files(text: str, count: int, seed: int) -> Iterator[bytes]:
    """Yield so many damaged forms of a text."""
    generator = random.Random(seed)
    damages = (
        _cut,
        _flipped,
        _with_odd_value,
        _with_odd_value,
        _with_doubled_line,
        _with_noise,
        _nested,
    )
    for number in range(count):
        yield damages[number % len(damages)](text, generator)


def _cut(text: str, generator: random.Random) -> bytes:
    content = text.encode()
    return content[: generator.randrange(len(content))]


def _flipped(text: str, generator: random.Random) -> bytes:
    content = bytearray(text.encode())
    for _ in range(generator.choice((1, 3, 40))):
        content[generator.randrange(len(content))] = generator.randrange(256)
    return bytes(content)


def _with_odd_value(text: str, generator: random.Random) -> bytes:
    """Replace what stands behind a colon or a comma."""
    odd = generator.choice(ODD_SCALARS)
    places = [
        place for place, letter in enumerate(text) if letter in ":,[{"
    ] or [0]
    place = generator.choice(places) + 1
    end = place
    while end < len(text) and text[end] not in ",}\n]":
        end += 1
    if text.startswith("{") and generator.random() < 0.5:
        odd = json.dumps(odd)
    return (text[:place] + " " + odd + text[end:]).encode(
        "utf-8", "surrogatepass"
    )


def _with_doubled_line(text: str, generator: random.Random) -> bytes:
    lines = text.splitlines(keepends=True)
    place = generator.randrange(len(lines))
    return "".join(
        [*lines[:place], *lines[place:] * 1, *lines[: place + 1]]
    ).encode()


def _with_noise(text: str, generator: random.Random) -> bytes:
    content = text.encode()
    place = generator.randrange(len(content))
    noise = generator.randbytes(generator.choice((1, 100, 50_000)))
    return content[:place] + noise + content[place:]


def _nested(text: str, generator: random.Random) -> bytes:
    depth = generator.choice((50, 1_000, 100_000))
    opening, closing = generator.choice(
        (("[", "]"), ('{"a":', "}"), ("- ", ""))
    )
    place = generator.randrange(len(text))
    tail = text[place:] if generator.random() < 0.5 else ""
    return (text[:place] + opening * depth + closing * depth + tail).encode()


def hostile_problem(content: bytes, read: Callable[[bytes], Any]) -> str | None:
    """Say what is wrong with how a file is read; nothing when it is read well."""
    seconds = []
    for _ in range(READINGS):
        began = time.perf_counter()
        try:
            read(content)
        except TonnageError as error:
            if any(p.code == "bug" for p in error.problems):
                return "a bug"
        except Exception as error:  # noqa: BLE001 - whatever comes is what is looked for
            return f"{type(error).__name__}: {str(error)[:80]}"
        seconds.append(time.perf_counter() - began)
        if seconds[-1] <= MOST_S:
            break
    if min(seconds) > MOST_S:
        return f"took {min(seconds) * 1000:.0f} ms"
    most_bytes = _peak_bytes(content, read)
    if most_bytes > MOST_BYTES:
        return f"took {most_bytes / 2**20:.0f} MiB"
    return None


def _peak_bytes(content: bytes, read: Callable[[bytes], Any]) -> int:
    tracemalloc.start()
    try:
        read(content)
    except TonnageError:
        pass
    finally:
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most_bytes
