"""The parts of a plan's page that only training jobs have."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.render import words
from planner.render.page import Table

if TYPE_CHECKING:
    from planner.render.page import Block

RECOMPUTED: Final = {
    "none": "",
    "layer": ", half recomputed",
    "full": ", recomputed",
}
SHARDED: Final = {
    "none": "",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "FSDP",
}


def asked(spec: dict[str, Any]) -> list[str]:
    """What a training spec asks, in words for the first lines."""
    data, train = spec["data"], spec["train"]
    found = [train["method"]]
    if "tokens" in data:
        found.append(f"{words.short(data['tokens'])} tokens")
    elif "samples" in data:
        what = "pairs" if train["method"].startswith("dpo") else "sequences"
        found.append(f"{words.short(data['samples'])} {what}")
    if "deadline" in train:
        found.append(f"within {words.span(train['deadline'])}")
    return found


def layout(run: dict[str, Any]) -> list[str]:
    """The layout and the run, a line each."""
    laid = run["layouts"][0]
    batch = f"{run['steps']:,} steps of {run['global_batch']:,} x {run['sequence']:,} tokens"
    saves = (
        f"a checkpoint of {words.quantity(str(run['checkpoint_gb']))} GB every "
    )
    saves += f"{run['checkpoint_interval_s'] / 60:,.0f} min, {run['stops']:,.1f} stops expected"
    if run["spares"]:
        saves += (
            f", {run['spares']} spare machine{'s' if run['spares'] > 1 else ''}"
        )
    end = (
        f"ends within {days(run['hours_p50'])} in half of 1,000 simulated runs "
    )
    end += f"({words.dollars(run['usd_p50'])}), {days(run['hours_p90'])} in 90 % of them "
    end += f"({words.dollars(run['usd_p90'])})"
    first = f"{shape(laid)} in {laid['precision']}; {batch}"
    return [first, saves, stored(run["storage"]), end]


def stored(found: dict[str, Any]) -> str:
    """Where data and checkpoints lie, and whether they come fast enough, in a line."""
    what = "object storage"
    if found["kind"] == "parallel":
        what = f"a parallel file system of {found['gib']:,} GiB"
    written = f"a checkpoint is written in {found['checkpoint_write_s']:,.0f} s"
    reads = f"the job reads {_rate(found['wanted_mb_s'])} of {_rate(found['given_mb_s'])}"
    return f"data on {what}, {reads}; {written}"


def _rate(mb_s: float) -> str:
    return (
        f"{mb_s / 1000:,.1f} GB/s"
        if mb_s >= 1000
        else f"{max(1, mb_s):,.0f} MB/s"
    )


def shape(laid: dict[str, Any]) -> str:
    """A layout in short: TP2 PP4x5 CP2 DP16, ZeRO-1, micro-batch 1, recomputed."""
    parts = []
    for key in ("tp", "pp", "cp", "ep", "dp"):
        if laid[key] > 1 or key == "dp":
            chunks = (
                f"x{laid['vpp']}" if key == "pp" and laid["vpp"] > 1 else ""
            )
            parts.append(f"{key.upper()}{laid[key]}{chunks}")
    text = " ".join(parts)
    kind = SHARDED[laid["sharding"]] + (
        f" of {laid['shard']}" if laid["shard"] else ""
    )
    text += f", {kind}" if kind and laid["dp"] * laid["cp"] > 1 else ""
    text += f", micro-batch {laid['micro_batch']:g}"
    return text + RECOMPUTED[laid["recompute"]]


def layouts(found: list[dict[str, Any]]) -> Table:
    """The best layouts with what limits them."""
    rows = tuple(
        (
            shape(x),
            f"{x['step_time_s']:,.2f} s",
            f"{x['peak_gib']:,.0f} GiB",
            x["limit"],
        )
        for x in found
    )
    return Table(("best layouts", ">step", ">peak", "costs most time"), rows)


def blocks(run: dict[str, Any]) -> list[Block]:
    """The best layouts, and other ways to run the same job."""
    found: list[Block] = [layouts(run["layouts"])]
    if len(run["ways"]) > 1:
        base = Decimal(run["ways"][0]["usd"])
        found.append(
            Table(
                (
                    "the same machines",
                    ">USD",
                    ">difference",
                    ">ends within (90 %)",
                    "",
                ),
                tuple(_way(x, base) for x in run["ways"]),
            )
        )
    return found


def _way(way: dict[str, Any], base: Decimal) -> tuple[str, ...]:
    if way["usd"] is None:
        return (way["way"].replace("_", " "), "", "", "", way["remark"])
    difference = Decimal(way["usd"]) - base
    sign = "" if not difference else words.change(difference)
    name = way["way"].replace("_", " ")
    return (
        name,
        words.dollars(way["usd"]),
        sign,
        days(way["hours_p90"]),
        way["remark"],
    )


def days(hours: float) -> str:
    """A time in hours, or in days when it is long."""
    return f"{hours:,.1f} h" if hours < 48 else f"{hours / 24:,.1f} days"
