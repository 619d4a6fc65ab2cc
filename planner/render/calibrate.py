"""The pages of calibrate: what was learned point by point, and the benchmark to run."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from planner.render import words
from planner.render.page import Heading, Page, Paragraph, Table

if TYPE_CHECKING:
    from planner.estimate.calibrate import Compared, Learned
    from planner.solve.recipe import Sweep

MS = 1000.0


def page(found: Learned, written: str) -> Page:
    """Return the points before and after, their errors, and what to look at."""
    c = found.correction
    head = f"{c.points} points of {c.model} on {c.accelerator}, TP{c.tp} in {c.precision}"
    columns = (
        "point",
        ">load",
        ">TPOT",
        ">before",
        ">after",
        ">TTFT",
        ">before",
        ">after",
    )
    errors = tuple(_errors(found, metric) for metric in ("tpot", "ttft"))
    step = "keep it: add -o FILE"
    if written:
        step = f"use it: tonnage plan SPEC --calibration {written}"
    return (
        Paragraph(head, "strong"),
        Table(columns, tuple(_point(x) for x in found.compared)),
        Paragraph("each point is predicted by the others alone", "dim"),
        Table(("mean error", ">before", ">after"), errors),
        *(Paragraph(f"! {warning}", "warn") for warning in found.warnings),
        Paragraph(step, "dim"),
    )


def _point(found: Compared) -> tuple[str, ...]:
    point = found.point
    load = f"{point.users:g} users" if point.users else f"{point.rate:g}/s"
    cells = [point.place.rsplit("/", 1)[-1] + (" !" if found.odd else ""), load]
    for metric in ("tpot", "ttft"):
        measured = found.measured[metric]
        cells.append(words.milliseconds(measured * MS))
        cells += [
            words.percent_off(x[metric] / measured - 1)
            for x in (found.before, found.after)
        ]
    return tuple(cells)


def _errors(found: Learned, metric: str) -> tuple[str, str, str]:
    def mean(side: str) -> str:
        errors = [
            abs(getattr(x, side)[metric] / x.measured[metric] - 1)
            for x in found.compared
        ]
        return words.share(statistics.fmean(errors))

    return (metric.upper(), mean("before"), mean("after"))


def recipe(plan: dict[str, Any], found: Sweep) -> Page:
    """Return the commands of a sweep, with its time and cost."""
    pool = plan["solution"]["pools"][0]
    layout, model = pool["layout"], plan["workload"]["model"]["name"]
    gpu = f"--metadata gpu={pool['accelerator']} tp={layout['tp']} dtype={layout['precision']}"
    rows = tuple(
        (f"{s.users}", f"{s.requests}", f"{s.minutes:.1f}") for s in found.steps
    )
    guide = ",".join(str(s.users) for s in found.steps)
    cost = words.dollars(str(round(found.usd, 2)), cents=True)
    flags = f"--model {model} --gpu {pool['accelerator']} --tp {layout['tp']}"
    return (
        Paragraph(
            f"one {pool['instance_type']} for {found.minutes:.0f} minutes: about {cost}",
            "strong",
        ),
        Table((">users", ">requests", ">minutes"), rows),
        Heading("with vLLM"),
        *(Paragraph(line) for line in _vllm(found, gpu)),
        Heading("or with GuideLLM"),
        Paragraph(
            "guidellm benchmark --target http://localhost:8000 --model $MODEL --rate-type "
            f"concurrent --rate {guide} --data prompt_tokens={found.prompt},"
            f"output_tokens={found.answer} --output-path bench.json"
        ),
        Heading("then"),
        Paragraph(
            f"tonnage calibrate bench*.json {flags} --precision {layout['precision']} -o mine.json"
        ),
    )


def _vllm(found: Sweep, metadata: str) -> list[str]:
    """One command for each load; the seed differs, or the prefix cache would answer."""
    return [
        f"vllm bench serve --model $MODEL --dataset-name random --random-input-len {found.prompt} "
        f"--random-output-len {found.answer} --ignore-eos --max-concurrency {s.users} "
        f"--num-prompts {s.requests} --seed {s.users} --percentile-metrics ttft,tpot,itl,e2el "
        f"{metadata} --save-result --result-filename bench-{s.users}.json"
        for s in found.steps
    ]
