"""Speed, memory and size against what is promised: `make bench`. No test: machines differ."""

from __future__ import annotations

import contextlib
import csv
import gc
import importlib
import multiprocessing
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.accuracy import adapter

ROOT = Path(__file__).resolve().parents[1]
TRUTH = str(ROOT / "tests" / "data" / "truth" / "inference.csv")
TONNAGE = (sys.executable, "-m", "planner.cli.main")
# What no command can beat: the interpreter with the library that every command needs.
FLOOR = (sys.executable, "-c", "import click")
RUNS = 7
# An installation has its bytecode: it is kept here too, whatever the shell says.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name != "PYTHONDONTWRITEBYTECODE"
}


def timed(*argv: str, runs: int = RUNS) -> tuple[float, float, float]:
    """Minimum and median seconds of a command of tonnage, and its peak memory in MB."""
    return timed_process((*TONNAGE, *argv), runs)


def timed_process(
    command: tuple[str, ...], runs: int, **variables: str
) -> tuple[float, float, float]:
    """Minimum and median seconds of a process, and its peak memory in MB.

    `variables` are added to its environment.

    The first run is not counted: it compiles the bytecode that an installation has.
    """
    seconds = []
    memory = 0.0
    for run in range(runs + 1):
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=ENVIRONMENT | variables,
        )
        _, _, usage = os.wait4(process.pid, 0)
        if run:
            seconds.append(time.perf_counter() - start)
        memory = max(memory, usage.ru_maxrss / 1024)
    return min(seconds), statistics.median(seconds), memory


def first_screen(*argv: str) -> tuple[float, float, float]:
    """Seconds until a plan shows its fleet; what its wishes cost comes later."""
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        with subprocess.Popen(
            (*TONNAGE, "plan", *argv),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=ENVIRONMENT,
        ) as process:
            assert process.stdout is not None
            process.stdout.read(1)
            seconds.append(time.perf_counter() - start)
            process.stdout.read()
    # The first run compiles the bytecode.
    return min(seconds[1:]), statistics.median(seconds[1:]), 0.0


def completed() -> tuple[float, float, float]:
    """Seconds until a shell has what may follow `tonnage offers --region`, and megabytes."""
    with tempfile.TemporaryDirectory() as name:
        # A shell asks the program by its name, which names the variable.
        program = Path(name) / "tonnage"
        program.write_text("from planner.cli.main import main\nmain()\n")
        return timed_process(
            (sys.executable, str(program)),
            RUNS,
            _TONNAGE_COMPLETE="bash_complete",
            COMP_WORDS="tonnage offers --region",
            COMP_CWORD="3",
            PYTHONPATH=str(ROOT),
        )


def reported() -> float:
    """CPU seconds of the report of a plan, beyond those of the plan."""
    from planner.render.html.report import PlanView, plan_report
    from planner.workload.outlook import outlook
    from providers.catalog.load import load_catalog
    from tests.conftest import find, spec_of
    from tests.planner.render.html.conftest import blueprint_view

    text = (ROOT / "blueprints" / "chat-70b.yaml").read_text()
    solution = find(load_catalog(), text, keep=0)
    plan = blueprint_view("chat-70b").plan
    start = time.process_time()
    plan_report(PlanView(plan, outlook(spec_of(text), solution)))
    return time.process_time() - start


def hazards() -> float:
    """Seconds until the slowest of the texts that are made to harm is refused."""
    from planner.errors import SpecError
    from planner.spec.source import parse_yaml
    from tests.planner.test_spec import HAZARDS

    def refuse(text: str | bytes) -> None:
        raw = text if isinstance(text, bytes) else text.encode()
        with contextlib.suppress(SpecError):
            parse_yaml(raw, "bad.yaml")

    return max(_took(partial(refuse, text)) for text, _ in HAZARDS.values())


def installed_size() -> float:
    """MB of a fresh environment with the base installation, its interpreter links included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "env"
        venv.create(folder, with_pip=True, symlinks=True)
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            str(ROOT),
        ]
        if subprocess.run(pip, check=False, capture_output=True).returncode:
            return float("nan")
        return (
            sum(
                p.lstat().st_size
                for p in folder.rglob("*")
                if not p.is_symlink()
            )
            / 1e6
        )


def estimated() -> tuple[float, float, float]:
    """Seconds and megabytes of the published deployments as one table."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.csv"
        path.write_text(
            adapter.written(adapter.typed_rows("inference.csv")),
            encoding="utf-8",
        )
        return timed("estimate", "--table", str(path), runs=3)


def traced() -> tuple[float, float, float]:
    """Seconds and megabytes of the plan of a trace of a million requests."""
    draw = random.Random(1)
    arrival_s = 0.0
    head, _ = (
        (ROOT / "blueprints" / "chat-8b.yaml").read_text().split("traffic:")
    )
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "spec.yaml"
        path.write_text(head + "traffic:\n  trace: trace.csv\n")
        with (Path(name) / "trace.csv").open("w") as out:
            out.write("timestamp,input_tokens,output_tokens\n")
            for _ in range(1_000_000):
                arrival_s += draw.expovariate(12.0)
                prompt = draw.lognormvariate(6.5, 0.9)
                answer = draw.lognormvariate(5.0, 0.8)
                out.write(f"{arrival_s:.3f},{prompt:.0f},{answer:.0f}\n")
        return timed("plan", str(path), runs=3)


def estimates() -> tuple[float, float]:
    """Microseconds of one prediction after loading, as the smallest and the median of its runs."""
    from planner.estimate.inference import predict_inference
    from planner.estimate.inference_row import row_deployment

    rows = list(
        csv.DictReader(Path(TRUTH).read_text(encoding="utf-8").splitlines())
    )
    setups = [
        row_deployment(adapter.serving_row(row))
        for row in rows
        if row["quality"] == "A"
    ]
    spent = []
    for _ in range(RUNS):
        start = time.perf_counter()
        for made in setups:
            predict_inference(made)
        spent.append((time.perf_counter() - start) / len(setups) * 1e6)
    return min(spent), statistics.median(spent)


def simulated() -> tuple[float, float]:
    """Thousands of requests a second in the simulation: the largest and the median of its runs."""
    from planner.perf.serving import monte_carlo, replica_table
    from tests.planner.perf.serving.test_simulation import LOAD, replica

    one = replica_table.tabulate_replica(replica())
    reached = []
    for seed in range(RUNS):
        requests = monte_carlo.draw_requests(LOAD, 10_000, seed, 1.0, 10.0)
        start = time.perf_counter()
        monte_carlo.route_requests(one, requests, 4, "random")
        reached.append(len(requests) / (time.perf_counter() - start) / 1000)
    return max(reached), statistics.median(reached)


def layouts() -> float:
    """Seconds of the layout search of 405B on 16,384 accelerators."""
    from planner.facts.accelerator import accelerators
    from planner.facts.llm import find_model
    from planner.perf.training.job import Job, ParallelLayout, Software
    from planner.perf.training.layout_search import LayoutSearch

    job = Job(
        llm=find_model("llama-3.1-405b"),
        chip=accelerators()["h100-sxm"],
        layout=ParallelLayout(),
        software=Software(),
        sequence_tokens=8192,
        global_batch=2048.0,
        network_bytes_s=50e9,
    )
    return _took(LayoutSearch(job, 16_384, 8).fastest)


def runs() -> float:
    """Seconds of a thousand simulated runs of a month on 256 machines."""
    from planner.perf.reliability import interruption, simulated_run

    risk = interruption.run_hazard(256, "aws", "p5")
    return _took(
        lambda: simulated_run.simulate_runs(
            30 * 86_400.0, 10.0, interruption.best_interval(10.0, risk), risk
        )
    )


def shared_quotas() -> float:
    """Processor seconds of 50 services, where a region has machines for three fifths of them."""
    from planner.cli.live import facts_text
    from planner.market.live import LiveFacts
    from providers.live.place import LivePlace
    from tests.conftest import chat
    from tests.planner.cli.test_shared_quota import REGIONS, place

    draw = random.Random(5)
    zones = ("Europe/Berlin", "America/Los_Angeles", "Asia/Tokyo", "UTC")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(50):
            rps = draw.choice((4, 6, 9, 12, 15, 18, 22, 25, 31))
            text = chat(
                traffic=f"peak_rps: {rps}\n  profile: business-hours",
                extra="shutdown: {schedule: "
                f'"weekdays 07:00-20:00 {draw.choice(zones)}"}}\n'
                "buy: {commit: [none, 1y]}\n"
                f"where: {{clouds: [aws], regions: [{', '.join(REGIONS)}]}}",
            )
            (folder / f"s{number}.yaml").write_text(
                text.replace("name: chat", f"name: s{number}")
            )
        types = ("g6e.xlarge", "g6e.2xlarge", "g6e.4xlarge", "g6e.12xlarge")
        limits = zip(REGIONS, (197.0, 100_000.0), strict=True)
        facts = LiveFacts(
            places=tuple(
                place(LivePlace("aws", region, types), limit)
                for region, limit in limits
            )
        )
        record = folder / "facts.json"
        record.write_text(facts_text(facts))
        specs = sorted(str(path) for path in folder.glob("*.yaml"))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        timed("plan", "--share", "--replay", str(record), *specs, runs=1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime
    # A run is before the one that counts.
    return (spent_s - before.ru_utime - before.ru_stime) / 2


def graphs() -> tuple[float, float]:
    """Seconds of the graphs of all blueprints, and of one of 1,024 machines with their fabric."""
    from msgspec.structs import replace

    from providers.catalog.load import load_catalog
    from stacks.build import build_stack
    from tests.conftest import find, spec_of

    texts = [p.read_text() for p in (ROOT / "blueprints").glob("*.yaml")]
    catalog = load_catalog()
    solved = [(spec_of(text), find(catalog, text, keep=0)) for text in texts]
    all_s = _took(
        lambda: [build_stack(spec, found, spec.name) for spec, found in solved]
    )
    spec, found = max(
        solved, key=lambda pair: sum(pool.nodes for pool in pair[1].pools)
    )
    [pool] = found.pools
    wide = replace(
        found,
        pools=(
            replace(pool, purchases=(replace(pool.purchases[0], nodes=1024),)),
        ),
    )
    return all_s, _took(lambda: build_stack(spec, wide, spec.name))


def questions() -> list[float]:
    """CPU seconds of what-ifs of experts at 16 loads: what a slider waits for, but the server."""
    from planner.cli.compose import PlanningOptions
    from planner.cli.served.worker import FolderPlanner, FolderTask
    from planner.spec.override import parse_override

    planner = FolderPlanner(ROOT / "blueprints", PlanningOptions())
    path = "moe-deepseek-r1.yaml"
    file_bytes = (ROOT / "blueprints" / path).read_bytes()
    spent = []
    for quarter in range(17):
        override = parse_override(f"traffic.peak_rps={quarter / 4 or 1}")
        task = FolderTask(
            path=path,
            file_bytes=file_bytes,
            key="",
            confidence=90,
            overrides=(override,),
        )
        start = time.process_time()
        planner.plan(task)
        spent.append(time.process_time() - start)
    # The first one reads the catalog.
    return spent[1:]


def searched_experts() -> float:
    """CPU seconds of the search and the curve of 235B of experts, in a process of its own.

    A search leaves much behind that the next one of the same process would find.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_search_experts)


def _search_experts() -> float:
    from providers.catalog.load import load_catalog
    from tests.conftest import find

    # Its import is no part of the search.
    importlib.import_module("planner.workload.training")
    # As commands do: see `planner/cli/main.py`.
    gc.disable()
    catalog = load_catalog()
    text = (ROOT / "blueprints" / "pretrain-moe.yaml").read_text()
    text = text.replace("qwen3-30b-a3b", "qwen3-235b-a22b")
    text = text.replace("sequence: 4k", "sequence: 8k")
    start = time.process_time()
    found = find(catalog, text)
    spent_s = time.process_time() - start
    assert found.training_run is not None
    assert found.training_run.curve
    return spent_s


def _took(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    blueprints = sorted(str(p) for p in (ROOT / "blueprints").glob("*.yaml"))
    served = [
        path
        for path in blueprints
        if "kind: Training" not in Path(path).read_text()
    ]
    many = (served * 8)[:100]
    rows = [
        ("tonnage --help", 0.12, timed("--help")),
        ("a key pressed in a shell", 0.15, completed()),
        (
            "check of one spec",
            0.30,
            timed("check", "blueprints/chat-70b.yaml"),
        ),
        (
            "plan of one spec, its fleet shown",
            0.80,
            first_screen("blueprints/chat-70b.yaml"),
        ),
        (
            "the same, of two machine types",
            0.80,
            first_screen(
                "blueprints/code-assistant.yaml", "--set", "buy.machine_types=2"
            ),
        ),
        (
            "the first, with all relaxations",
            2.0,
            timed("plan", "blueprints/chat-70b.yaml"),
        ),
        (
            "what its limits cost, 16 plans",
            4.0,
            timed("explain", "blueprints/chat-70b.yaml", "--pareto", runs=3),
        ),
        (
            "plan of 100 specs that serve",
            8.0,
            timed("plan", *many, runs=2),
        ),
        (
            "plan of a training job, 7B",
            1.0,
            timed("plan", "blueprints/pretrain-7b.yaml", runs=5),
        ),
        (
            "plan of a training job, 70B",
            1.0,
            timed("plan", "blueprints/pretrain-70b.yaml", runs=3),
        ),
        (
            "plan of a training job, MoE",
            1.0,
            timed("plan", "blueprints/pretrain-moe.yaml", runs=3),
        ),
        (
            "plan of a trace of 1,000,000 rows",
            3.0,
            traced(),
        ),
        (
            "estimate of all measured rows",
            5.0,
            estimated(),
        ),
    ]
    inside = [
        ("one estimate, us", 50.0, *estimates()),
        ("requests simulated, 1,000/s", 1000.0, *simulated()),
    ]
    cores = os.cpu_count()
    sys.stdout.write(
        f"{cores} cores, Python {sys.version.split()[0]}, {RUNS} runs each\n\n"
    )
    head = ("what", "promise s", "min s", "median s", "MB", "x floor")
    sys.stdout.write("{:<34}{:>10}{:>9}{:>10}{:>8}{:>9}\n".format(*head))
    floor, floor_median, floor_memory = timed_process(FLOOR, RUNS)
    sys.stdout.write(
        f"{'the interpreter importing click':<34}{'':>10}{floor:>9.2f}"
        f"{floor_median:>10.2f}{floor_memory:>8.0f}{1:>9.1f}\n"
    )
    for what, promise, (least, median, memory) in rows:
        sys.stdout.write(
            f"{what:<34}{promise:>10.2f}{least:>9.2f}{median:>10.2f}{memory:>8.0f}"
            f"{least / floor:>9.1f}\n"
        )
    graph_s = [graphs() for _ in range(3)]
    taken = [
        ("graphs of all blueprints, s", 1.0, [each[0] for each in graph_s]),
        ("graph of 1,024 machines, s", 0.05, [each[1] for each in graph_s]),
        ("layouts of 405B on 16,384, s", 1.0, [layouts() for _ in range(3)]),
        (
            "50 services, one tight quota, CPU s",
            6.0,
            [shared_quotas() for _ in range(3)],
        ),
        (
            "what-if of experts, worst, CPU s",
            1.0,
            [max(questions()) for _ in range(3)],
        ),
        (
            "search of 235B of experts, CPU s",
            1.0,
            [searched_experts() for _ in range(5)],
        ),
        ("1,000 runs of a month, s", 1.0, [runs() for _ in range(3)]),
        ("report of a plan, CPU s", 1.0, [reported() for _ in range(3)]),
        ("worst hazard in YAML, s", 0.05, [hazards() for _ in range(3)]),
    ]
    for what, promise, seconds in taken:
        least = min(seconds)
        median = statistics.median(seconds)
        sys.stdout.write(
            f"{what:<34}{promise:>10.2f}{least:>9.2f}{median:>10.2f}\n"
        )
    for what, promise, least, median in inside:
        sys.stdout.write(
            f"{what:<34}{promise:>10.0f}{least:>9.1f}{median:>10.1f}\n"
        )
    sys.stdout.write(
        f"{'base installation, MB':<34}{160:>10}{installed_size():>9.0f}\n"
    )
    peak = max(memory for *_, (_, _, memory) in rows)
    sys.stdout.write(f"{'largest process, MB':<34}{150:>10}{peak:>9.0f}\n")


if __name__ == "__main__":
    main()
