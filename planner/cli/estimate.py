"""tonnage estimate: what exactly given configurations would do."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli import option
from planner.cli.compose import (
    Source,
    beside,
    open_catalog,
    open_world,
    read_file,
    read_spec,
)
from planner.errors import MissingError, Problem, UsageError
from planner.spec.model import Training

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.cost.price import PriceBook
    from planner.render.page import Page
    from planner.solve.need import Need
    from planner.solve.offer import Catalog, Instance, Offer
    from planner.solve.train.need import TrainNeed

SERVED: Final = {
    "tp": (),
    "pp": (),
    "ep": (),
    "precision": ("bf16", "fp8", "int8", "int4", "fp4", "mxfp4"),
    "kv_precision": ("bf16", "fp8"),
}
TRAINED: Final = {
    "tp": (),
    "pp": (),
    "vpp": (),
    "cp": (),
    "ep": (),
    "dp": (),
    "micro": (),
    "precision": ("bf16", "fp16", "fp8", "mxfp8", "nvfp4"),
    "sharding": ("zero1", "zero2", "zero3"),
    "recompute": ("none", "layer", "full"),
}


@click.command("estimate")
@click.argument("spec", required=False, metavar="SPEC")
@click.option(
    "--on", metavar="TYPE[xN]", help="Machine type, and how many of them."
)
@click.option(
    "--layout",
    metavar="KEY=N,...",
    help="tp, pp, ep and precision of a replica, or any of a training job.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="N",
    help="Requests under way.",
)
@click.option(
    "--rps",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Requests a second.",
)
@click.option(
    "--table", metavar="ROWS.csv", help="Predict every row of a table."
)
@option.simulate
@option.catalog
@option.formats("text", "json", "markdown")
@option.output
@option.color
def command(spec: str | None, table: str | None, **values: Any) -> int:
    """Predict one exactly given configuration of SPEC, or every row of a table.

    Numbers come with their 90 % band and what they rest on. A row that cannot be answered is
    refused with the reason; the others are answered.

    Example: tonnage estimate chat.yaml --on p5.48xlarge --layout tp=4,precision=fp8 --rps 3
    """
    if (spec is None) == (table is None):
        raise click.UsageError("give a SPEC with --on, or --table ROWS.csv")
    if table is not None:
        from planner.estimate.table import predict

        text = read_file(table).decode("utf-8-sig", "replace")
        option.write(predict(text, table), values["output"])
        return 0
    if not values["on"]:
        raise click.UsageError(
            "say on which machine type: --on p5.48xlarge, or --on g6.xlarge x2"
        )
    _one(read_spec(spec or ""), values)
    return 0


def _one(source: Source, values: dict[str, Any]) -> None:
    catalog = open_catalog(values["catalog"], open_world(values["simulate"]))
    offers, nodes = _machines(values["on"], catalog)
    if isinstance(source.spec, Training):
        from planner.solve.train.cluster import SURE
        from planner.solve.train.need import train_need

        job = train_need(source.spec, beside(source.path), SURE)
        text, content = _trained(job, values, offers, nodes, catalog.book)
    else:
        text, content = _served(
            _need(source, values), values, offers[0].instance, nodes
        )
    if values["format"] == "json":
        option.write(content, values["output"])
    else:
        option.show(text, values["format"], values["color"])


def _served(
    wanted: Need, values: dict[str, Any], kind: Instance, nodes: int
) -> tuple[Page, str]:
    from planner.render.estimate import document, page
    from planner.solve.exact import exactly

    found = exactly(
        wanted, kind, nodes, _layout(values["layout"] or "", SERVED)
    )
    return page(found), document(found)


def _trained(
    job: TrainNeed,
    values: dict[str, Any],
    offers: Sequence[Offer],
    nodes: int,
    book: PriceBook,
) -> tuple[Page, str]:
    """A job on machines on demand, where they are cheapest, or as they are sold."""
    from planner.render.trained import document, page
    from planner.solve.train.exact import exactly

    if values["rps"] or values["concurrency"]:
        raise click.UsageError(
            "a training job has no --rps and no --concurrency"
        )
    given = _layout(values["layout"] or "", TRAINED)
    offer = min(
        offers, key=lambda o: (o.purchase != "on_demand", o.usd_hour, o.key)
    )
    found = exactly(job, offer, nodes, given, book)
    return page(found), document(found)


def _machines(on: str, catalog: Catalog) -> tuple[Sequence[Offer], int]:
    """Return the offers of the machine type, and the number of machines, of TYPExN."""
    import difflib

    kinds: dict[str, list[Offer]] = {}
    for kind in catalog.kinds:
        kinds.setdefault(kind[0].instance.instance_type, []).extend(kind)
    found = re.fullmatch(r"(.+?)\s*x\s*(\d{1,5})", on, re.ASCII)
    name, count = (
        (found[1], found[2]) if found and on not in kinds else (on, "1")
    )
    if name not in kinds:
        close = difflib.get_close_matches(name, kinds, 1)
        step = f"did you mean '{close[0]}'?" if close else "run: tonnage offers"
        message = f"no machine type is named '{name}'"
        raise MissingError(
            Problem(code="offer", message=message, next_step=step)
        )
    if not 1 <= int(count) <= 10_000:
        raise click.BadParameter("use 1 to 10,000 machines", param_hint="--on")
    return kinds[name], int(count)


def _need(source: Source, values: dict[str, Any]) -> Need:
    """The need of the spec, under the load of the options when they give one."""
    from planner.solve.need import need
    from planner.spec.model import Workspace

    if isinstance(source.spec, Training | Workspace):
        message = f"{source.path} is no service: it has no load to predict"
        step = "estimate an Inference, Batch or Training spec"
        raise UsageError(Problem(code="kind", message=message, next_step=step))
    wanted = need(source.spec, beside(source.path))
    if values["rps"] and not math.isfinite(values["rps"]):
        raise click.BadParameter("give a finite rate", param_hint="--rps")
    if values["rps"] and values["concurrency"]:
        raise click.UsageError("give --rps or --concurrency, not both")
    if values["rps"]:
        return replace(
            wanted, mode="open", load=replace(wanted.load, rate=values["rps"])
        )
    if values["concurrency"]:
        load = replace(wanted.load, rate=0.0, concurrency=values["concurrency"])
        return replace(wanted, mode="closed", load=load)
    return wanted


def _layout(text: str, known: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Read tp=8,pp=1,precision=fp8: keys with their words, or with whole numbers."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.strip().partition("=")
        words = known.get(key)
        whole = words == () and re.fullmatch(r"[1-9]\d{0,3}", value, re.ASCII)
        if not whole and value not in (words or ()):
            message = f"'{part.strip()}' is no layout: use {', '.join(known)}"
            if words:
                message = f"{key} is one of {', '.join(words)}, not '{value}'"
            raise click.BadParameter(message, param_hint="--layout")
        found[key] = value
    return found
