"""The page of a plan: what was asked, what was chosen and why, what it costs, what is created."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any, Final

from planner.render import train, words
from planner.render.page import (
    Block,
    Heading,
    Page,
    Paragraph,
    Table,
    Tone,
    total_last,
)

GOOD: Final[Tone] = "good"
WIDE: Final = 100
UNLIMITED: Final = frozenset({"ttft_p95_ms", "tpot_p95_ms"})
ROUTED: Final = {
    "random": "at random",
    "round-robin": "in turn",
    "least-loaded": "to the least loaded",
}


def page(plan: dict[str, Any], *, full: bool = False, saved: str = "") -> Page:
    """Return the page; `full` lists every resource, `saved` names the file for the next step."""
    blocks: list[Block] = [*_asked(plan)]
    if plan["solution"]["status"] == "infeasible":
        return (*blocks, *_infeasible(plan))
    blocks += chosen(plan)
    blocks += others(plan)
    if plan["solution"].get("run"):
        blocks += train.blocks(plan["solution"]["run"])
    else:
        blocks += binding(plan)
    blocks += _cost(plan)
    blocks += _energy(plan)
    blocks += _resources(plan, full=full)
    blocks += _ending(plan, saved)
    return tuple(blocks)


def _asked(plan: dict[str, Any]) -> list[Block]:
    spec, workload = plan["spec"], plan["workload"]
    words_ = [spec["path"], workload["kind"]]
    if "model" in workload:
        words_.append(workload["model"]["name"])
    words_ += _traffic(spec["normalized"])
    limits = (spec["normalized"].get("sla") or {}).get("limits", [])
    words_ += [
        f"{x['metric'].upper()} p{x['percentile']} <= {_seconds(x['seconds'])}"
        for x in limits
    ]
    catalog = plan["catalog"]
    second = (
        f"catalog of {catalog['as_of']} ({catalog['sha256'][:8]}), "
        f"{plan['solution']['considered']:,} offers considered"
    )
    first = "  ·  ".join(words_[:4]), "  ·  ".join(words_[4:])
    return [
        *(Paragraph(line, "strong") for line in first if line),
        Paragraph(second, "dim"),
    ]


def _seconds(text: str) -> str:
    return words.milliseconds(float(text) * 1000)


def _traffic(spec: dict[str, Any]) -> list[str]:
    if "train" in spec:
        return train.asked(spec)
    traffic = spec.get("traffic", {})
    if "peak_rps" in traffic:
        return [f"peak {words.quantity(traffic['peak_rps'])} req/s"]
    if "requests_per_day" in traffic:
        return [f"{traffic['requests_per_day']:,} requests a day"]
    if "total_requests" in traffic:
        return [f"{traffic['total_requests']:,} requests"]
    if "concurrency" in traffic:
        return [f"{traffic['concurrency']:,} in flight"]
    return [f"{spec['users']} users"] if "users" in spec else []


def chosen(plan: dict[str, Any]) -> list[Block]:
    """What was chosen, its layout and what it is expected to do."""
    rows = []
    for pool in plan["solution"]["pools"]:
        gpus = f"{pool['accelerators_per_node']} x {pool['accelerator']}"
        rows.append(
            (
                "CHOSEN",
                f"{pool['provider']} {pool['region']}",
                f"{pool['nodes']} x {pool['instance_type']}",
                gpus,
                pool["purchase"],
                _total(plan),
            )
        )
    blocks: list[Block] = [
        Table(
            ("", "", "", "", "", ">"), tuple(rows), tuple(GOOD for _ in rows)
        ),
        *(Paragraph("  " + line) for line in _layout(plan)),
    ]
    numbers = predicted(_limited(plan, plan["solution"]["predicted"]))
    if numbers:
        columns = ("predicted at peak", ">value", ">90 % band", "basis")
        blocks.append(Table(columns, tuple(numbers)))
    return [*blocks, *_verified(plan)]


def _limited(plan: dict[str, Any], numbers: dict[str, Any]) -> dict[str, Any]:
    """Leave out the percentiles that nobody limits; without limits, show the 95th of tokens."""
    limits = (plan["spec"]["normalized"].get("sla") or {}).get("limits", [])
    kept = {f"{x['metric']}_p{x['percentile']}_ms" for x in limits} or UNLIMITED
    return {
        key: x
        for key, x in numbers.items()
        if key in kept or not key.endswith("_ms")
    }


def _verified(plan: dict[str, Any]) -> list[Block]:
    """How the fleet did when its requests were simulated one by one."""
    found = plan["solution"].get("verified")
    if not found:
        return []
    shown = [
        f"{_title(key)} {_shown(key, x['value'])} ({_shown(key, x['low'])} to "
        f"{_shown(key, x['high'])})"
        for key, x in sorted(_limited(plan, found["found"]).items())
    ]
    taken = "of the trace, " if found["requests_of"] == "trace" else ""
    text = f"  verified with {found['requests']:,} simulated requests {taken}routed "
    text += f"{ROUTED[found['routing']]}: {', '.join(shown)}"
    if found["added_groups"]:
        text += f"; that took {found['added_groups']} more than the formulas"
    return [Paragraph(text)]


def _total(plan: dict[str, Any]) -> str:
    mark = (
        ">= "
        if any(not x["price_found"] for x in plan["cost"]["lines"])
        else ""
    )
    period = "" if plan["solution"].get("run") else "/mo"
    return f"{mark}{words.dollars(plan['cost']['usd_month'])}{period}"


def _layout(plan: dict[str, Any]) -> list[str]:
    if plan["solution"].get("run"):
        return train.layout(plan["solution"]["run"])
    lines = []
    for pool in plan["solution"]["pools"]:
        layout = pool["layout"]
        if layout is None:
            lines.append(f"one machine for each of {pool['nodes']} users")
            continue
        shape = f"TP{layout['tp']}" + (
            f" PP{layout['pp']}" if layout["pp"] > 1 else ""
        )
        shape += f" EP{layout['ep']}" if layout["ep"] > 1 else ""
        copies = "replica" if pool["replicas"] == 1 else "replicas"
        text = (
            f"{pool['replicas']} {copies} of {shape} in {layout['precision']}, "
        )
        text += f"up to {layout['max_batch']} requests each"
        if pool["nodes_least"] < pool["nodes"]:
            text += f"; {pool['nodes_least']} to {pool['nodes']} nodes over the week"
        lines.append(text)
    return lines


def predicted(numbers: dict[str, Any]) -> list[tuple[str, ...]]:
    """Rows of predicted numbers: name, value, band, basis."""
    rows: list[tuple[str, ...]] = []
    for key, found in sorted(numbers.items()):
        value, low, high = (
            _shown(key, found[part]) for part in ("value", "low", "high")
        )
        rows.append((_title(key), value, f"{low} to {high}", found["basis"]))
    return rows


def _title(key: str) -> str:
    if key.endswith("_ms"):
        metric, percentile = key.removesuffix("_ms").rsplit("_", 1)
        return f"{metric.upper()} {percentile}"
    names = {
        "memory_fraction": "memory used",
        "memory_gib_per_accelerator": "GiB per accelerator",
        "output_tokens_per_s": "output tokens/s",
        "requests_per_s": "requests/s",
        "duration_days": "hours of a run",
        "mfu": "MFU, 16-bit peak",
        "step_time_s": "seconds of a step",
        "tokens_per_s_per_accelerator": "tokens/s each",
    }
    return names.get(key, key)


def _shown(key: str, value: float) -> str:
    if key.endswith("_ms"):
        return words.milliseconds(value)
    if key in ("memory_fraction", "mfu", "goodput"):
        return words.share(value)
    if key == "duration_days":
        return f"{value * 24:,.1f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def others(plan: dict[str, Any]) -> list[Block]:
    """What was not chosen, and what stopped it."""
    rows = []
    for other in plan["alternatives"]:
        for pool in other["pools"]:
            place = f"{pool['provider']} {pool['region']}"
            kind = f"{pool['nodes']} x {pool['instance_type']}"
            amount = words.dollars(other["usd_month"])
            rows.append(
                (place, kind, pool["purchase"], amount, other["rejected_by"])
            )
    if not rows:
        return []
    money = ">USD" if plan["solution"].get("run") else ">$/mo"
    columns = ("not chosen", "", "", money, "what stops it")
    return [Table(columns, tuple(rows))]


def binding(plan: dict[str, Any]) -> list[Block]:
    """The wishes that cost money, and what relaxing each would save."""
    rows = []
    for found in plan["solution"]["binding"]:
        slack = "" if found["slack"] is None else words.share(found["slack"])
        amount = words.dollars(found["saves_usd_month"])
        rows.append(
            (
                found["constraint"],
                slack,
                found["relax_to"],
                amount,
                found["fleet"],
            )
        )
    safety = plan["solution"].get("safety")
    if safety and safety["fleet"]:
        wish = f"confidence {words.share(safety['confidence'])}"
        rows.append(
            (
                wish,
                "",
                "50 %",
                words.dollars(safety["usd_month"]),
                safety["fleet"],
            )
        )
    if not rows:
        return [
            Paragraph(
                "no wish of the spec costs money: nothing binds but the price",
                "dim",
            )
        ]
    columns = ("binding", ">slack", "relaxed to", ">saves $/mo", "with")
    return [Table(columns, tuple(rows))]


def _cost(plan: dict[str, Any]) -> list[Block]:
    rows = []
    for line in plan["cost"]["lines"]:
        price = words.quantity_price(line["unit_price"])
        quantity = f"{words.quantity(line['quantity'])} {line['unit']}"
        age = line["price_as_of"] or "no price known"
        rows.append(
            (
                line["name"],
                quantity,
                price,
                words.dollars(line["usd_month"], cents=True),
                age,
            )
        )
    rows.append(("total", "", "", _total(plan), ""))
    period = (
        "cost of the run" if plan["solution"].get("run") else "cost of a month"
    )
    columns = (period, ">quantity", ">unit price", ">USD", "price of")
    return [Table(columns, tuple(rows), total_last(len(rows)))]


def _energy(plan: dict[str, Any]) -> list[Block]:
    """Power and energy, when the board power of the accelerators is known."""
    found = plan["solution"].get("energy")
    if not found:
        return []
    period = "the run" if plan["solution"].get("run") else "a month"
    text = f"energy  {found['kw']:,.1f} kW at work, {found['kwh']:,.0f} kWh in {period}"
    if found["kg_co2e"] is not None:
        text += f", {found['kg_co2e']:,.0f} kg CO2e"
    return [Paragraph(text)]


def _resources(plan: dict[str, Any], *, full: bool) -> list[Block]:
    resources = plan["graph"]["resources"]
    if full:
        rows = tuple((r["name"], r["type"]) for r in resources)
        return [
            Heading(f"{len(resources)} resources to create"),
            Table(("", ""), rows),
        ]
    counts = Counter(r["type"].split(":")[-1] for r in resources)
    listed = ", ".join(
        f"{n} {kind}" if n > 1 else kind for kind, n in sorted(counts.items())
    )
    lines = textwrap.wrap(listed, WIDE - 4)
    return [
        Heading(f"{len(resources)} resources to create"),
        *(Paragraph(f"  {x}") for x in lines),
    ]


def _ending(plan: dict[str, Any], saved: str) -> list[Block]:
    shutdown = plan["shutdown"]
    wishes = (
        [f"idle {words.span(shutdown['idle'])}"] if shutdown["idle"] else []
    )
    wishes += [f"ttl {words.span(shutdown['ttl'])}"] if shutdown["ttl"] else []
    wishes += [shutdown["schedule"]] if shutdown["schedule"] else []
    line = "shutdown  " + (
        ", ".join(wishes) or "never: it runs until it is destroyed"
    )
    blocks: list[Block] = [
        Paragraph(""),
        Paragraph(line, "" if wishes else "warn"),
    ]
    if shutdown["backstop"]:
        blocks.append(
            Paragraph(f"  enforced from outside: {shutdown['backstop']}")
        )
    blocks += [Paragraph(f"! {w['message']}", "warn") for w in plan["warnings"]]
    excludes = ", ".join(plan["cost"]["excludes"])
    blocks.append(Paragraph(f"not in the total: {excludes}", "dim"))
    if saved:
        blocks.append(
            Paragraph(f"saved to {saved}     next: tonnage apply {saved}")
        )
    return blocks


def _infeasible(plan: dict[str, Any]) -> list[Block]:
    funnel = "  >  ".join(
        f"{f['rule']} {f['offers']:,}" for f in plan["solution"]["funnel"]
    )
    blocks: list[Block] = [
        Paragraph(
            "INFEASIBLE: no offer meets every constraint, and that is proved",
            "bad",
        ),
        Paragraph(f"  offers left after each rule: {funnel}"),
    ]
    rows = [
        (
            b["constraint"],
            b["relax_to"],
            words.dollars(b["usd_month"]),
            b["fleet"],
        )
        for b in plan["solution"]["binding"]
    ]
    if rows:
        money = ">USD" if plan["workload"]["kind"] == "training" else ">$/mo"
        columns = ("nearest, changing one thing", "to", money, "with")
        blocks.append(Table(columns, tuple(rows)))
    else:
        blocks.append(
            Paragraph("  no single change makes it feasible: relax two", "warn")
        )
    return blocks
