"""tonnage estimate: prediction of given configurations."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from planner.cli import complete, option
from planner.cli.compose import (
    SpecFile,
    open_catalog,
    open_world,
    read_file,
    read_spec,
    spec_folder_reader,
)
from planner.errors import MissingError, Problem, UsageError
from planner.spec.model import Training
from planner.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.cli.option import OptionValues
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Catalog, Instance, Offer
    from planner.render.page import Page
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.training.requirement import TrainingRequirement

# Allowed words of each key; an empty tuple stands for a whole number.
SERVING_LAYOUT_KEYS: Final = {
    "tp": (),
    "pp": (),
    "ep": (),
    "precision": (
        "bf16",
        "fp16",
        "fp32",
        "fp8",
        "int8",
        "int4",
        "fp4",
        "mxfp4",
    ),
    "kv_precision": ("bf16", "fp8"),
}
TRAINING_LAYOUT_KEYS: Final = {
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
@click.argument(
    "spec", required=False, metavar="SPEC", shell_complete=complete.file_names
)
@click.option(
    "--on",
    shell_complete=complete.machine_types,
    metavar="TYPE[xN]",
    help="Machine type, and how many of them.",
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
    "--table",
    shell_complete=complete.file_names,
    metavar="ROWS.csv",
    help="Predict every row of a table.",
)
@option.simulate
@option.catalog
@option.format_option("text", "json", "markdown")
@option.output
@option.color
def command(spec: str | None, table: str | None, **option_values: Any) -> int:
    """Predict one exactly given configuration of SPEC, or every row of a table.

    Numbers come with their 90 % band and what they rest on. A row that cannot be answered is
    refused with the reason; the others are answered.

    Example: tonnage estimate chat.yaml --on p5.48xlarge --layout tp=4,precision=fp8 --rps 3
    """
    # Exactly one of the two must be given.
    if (spec is None) == (table is None):
        raise click.UsageError("give a SPEC with --on, or --table ROWS.csv")
    if table is not None:
        from planner.estimate.table import predict_table

        table_text = read_file(table).decode("utf-8-sig", "replace")
        option.write_output(
            predict_table(table_text, table, spec_folder_reader(table)),
            option_values["output"],
        )
        return 0
    if not option_values["on"]:
        raise click.UsageError(
            "say on which machine type: --on p5.48xlarge, or --on g6.xlarge x2"
        )
    _write_estimate(read_spec(spec or ""), option_values)
    return 0


def _write_estimate(spec_file: SpecFile, option_values: OptionValues) -> None:
    catalog = open_catalog(
        option_values["catalog"], open_world(option_values["simulate"])
    )
    type_offers, node_count = _parse_machines(option_values["on"], catalog)
    if isinstance(spec_file.spec, Training):
        from planner.solve.training.cluster import P90_SHARE
        from planner.solve.training.requirement import training_requirement

        job_requirement = training_requirement(
            spec_file.spec, spec_folder_reader(spec_file.path), P90_SHARE
        )
        shown_page, json_text = _training_estimate(
            job_requirement,
            option_values,
            type_offers,
            node_count,
            catalog.price_book,
        )
    else:
        shown_page, json_text = _serving_estimate(
            _load_requirement(spec_file, option_values),
            option_values,
            type_offers[0].instance,
            node_count,
        )
    if option_values["format"] == "json":
        option.write_output(json_text, option_values["output"])
    else:
        option.print_page(
            shown_page,
            option_values["format"],
            option_values["color"],
            option_values["output"],
        )


def _serving_estimate(
    load_requirement: ServingRequirement,
    option_values: OptionValues,
    instance: Instance,
    node_count: int,
) -> tuple[Page, str]:
    from planner.render.estimate import estimate_json, estimate_page
    from planner.solve.serving.fixed import predict_fixed

    estimate = predict_fixed(
        load_requirement,
        instance,
        node_count,
        _parse_layout(option_values["layout"] or "", SERVING_LAYOUT_KEYS),
    )
    return estimate_page(estimate), estimate_json(estimate)


def _training_estimate(
    job_requirement: TrainingRequirement,
    option_values: OptionValues,
    type_offers: Sequence[Offer],
    node_count: int,
    price_book: PriceBook,
) -> tuple[Page, str]:
    """Predict a training job on the cheapest offer of a machine type.

    On-demand offers come first; other purchases count only when there is none.
    """
    from planner.render.cluster import cluster_json, cluster_page
    from planner.solve.training.fixed import estimate_training

    if option_values["rps"] or option_values["concurrency"]:
        raise click.UsageError(
            "a training job has no --rps and no --concurrency"
        )
    layout_values = _parse_layout(
        option_values["layout"] or "", TRAINING_LAYOUT_KEYS
    )
    chosen_offer = min(
        type_offers,
        key=lambda type_offer: (
            # False sorts before True: on demand first, then price and key.
            type_offer.purchase != "on_demand",
            type_offer.usd_hour,
            type_offer.key,
        ),
    )
    estimate = estimate_training(
        job_requirement, chosen_offer, node_count, layout_values, price_book
    )
    return cluster_page(estimate), cluster_json(estimate)


def _parse_machines(
    machines_text: str, catalog: Catalog
) -> tuple[Sequence[Offer], int]:
    """Return the offers of a machine type and the number of machines, from TYPExN."""
    offers_by_type: dict[str, list[Offer]] = {}
    for type_offers in catalog.offer_groups:
        offers_by_type.setdefault(
            type_offers[0].instance.instance_type, []
        ).extend(type_offers)
    count_match = re.fullmatch(
        r"(.+?)\s*x\s*(\d{1,5})", machines_text, re.ASCII
    )
    type_name, count_text = (
        (count_match[1], count_match[2])
        # A type whose own name ends in x and digits has no count.
        if count_match and machines_text not in offers_by_type
        else (machines_text, "1")
    )
    if type_name not in offers_by_type:
        close_name = closest(type_name, offers_by_type)
        next_step = (
            f"did you mean '{close_name}'?"
            if close_name
            else "run: tonnage offers"
        )
        message = f"no machine type is named '{type_name}'"
        raise MissingError(
            Problem(code="offer", message=message, next_step=next_step)
        )
    if not 1 <= int(count_text) <= 10_000:
        raise click.BadParameter("use 1 to 10,000 machines", param_hint="--on")
    return offers_by_type[type_name], int(count_text)


def _load_requirement(
    spec_file: SpecFile, option_values: OptionValues
) -> ServingRequirement:
    """Return the requirement of a spec; --rps or --concurrency replaces its load."""
    from planner.solve.serving.requirement import serving_requirement
    from planner.spec.model import Workspace

    if isinstance(spec_file.spec, Training | Workspace):
        message = f"{spec_file.path} is no service: it has no load to predict"
        next_step = "estimate an Inference, Batch or Training spec"
        raise UsageError(
            Problem(code="kind", message=message, next_step=next_step)
        )
    load_requirement = serving_requirement(
        spec_file.spec, spec_folder_reader(spec_file.path)
    )
    # click accepts inf as a number.
    if option_values["rps"] and not math.isfinite(option_values["rps"]):
        raise click.BadParameter("give a finite rate", param_hint="--rps")
    if option_values["rps"] and option_values["concurrency"]:
        raise click.UsageError("give --rps or --concurrency, not both")
    if option_values["rps"]:
        return replace(
            load_requirement,
            # Arrivals at a given rate do not depend on latency.
            mode="open",
            load=replace(
                load_requirement.load, rate_per_s=option_values["rps"]
            ),
        )
    if option_values["concurrency"]:
        # A given number of requests in flight is a closed loop.
        closed_load = replace(
            load_requirement.load,
            rate_per_s=0.0,
            concurrency=option_values["concurrency"],
        )
        return replace(load_requirement, mode="closed", load=closed_load)
    return load_requirement


def _parse_layout(
    layout_text: str, allowed_words: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Return the layout keys of text such as tp=8,pp=1,precision=fp8.

    A key without allowed words takes a whole number. Raises BadParameter.
    """
    layout_values: dict[str, str] = {}
    for assignment in filter(None, layout_text.split(",")):
        layout_key, _, value_text = assignment.strip().partition("=")
        key_words = allowed_words.get(layout_key)
        # None is an unknown key, so it is refused below.
        is_whole_number = key_words == () and re.fullmatch(
            r"[1-9]\d{0,3}", value_text, re.ASCII
        )
        if not is_whole_number and value_text not in (key_words or ()):
            message = f"'{assignment.strip()}' is no layout: use {', '.join(allowed_words)}"
            if key_words:
                message = f"{layout_key} is one of {', '.join(key_words)}, not '{value_text}'"
            raise click.BadParameter(message, param_hint="--layout")
        layout_values[layout_key] = value_text
    return layout_values
