"""tonnage offers: what can be bought."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_catalog, open_world

SORTS = ("gpu", "tflop", "bandwidth", "hour", "memory")


@click.command("offers")
@click.argument("accelerator", required=False, default="*")
@click.option(
    "--cloud",
    multiple=True,
    type=click.Choice(["aws", "gcp", "azure"]),
    help="Only it.",
)
@click.option(
    "--region", multiple=True, metavar="PATTERN", help="Only these regions."
)
@click.option(
    "--type",
    "kind",
    multiple=True,
    metavar="PATTERN",
    help="Only these machine types.",
)
@click.option(
    "--purchase",
    multiple=True,
    help="Only on_demand, spot, reserved_1y, reserved_3y.",
    type=click.Choice(["on_demand", "spot", "reserved_1y", "reserved_3y"]),
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="gpu",
    help="By price per GPU, TFLOP/s, GB/s, hour or GiB (gpu).",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    metavar="N",
    help="Show N (20).",
)
@option.simulate
@option.catalog
@option.formats("text", "json", "csv", "markdown")
@option.color
def command(accelerator: str, **values: Any) -> int:
    """List offers of an ACCELERATOR (a name or a pattern), the cheapest first.

    Example: tonnage offers 'h100*' --region 'us-*' --sort bandwidth
    """
    from planner.render.listing import show
    from planner.solve.listing import offer_rows, ranked

    catalog = open_catalog(values["catalog"], open_world(values["simulate"]))
    found = ranked(
        catalog.offers,
        accelerator.lower(),
        values["sort"],
        {k: values[k] for k in ("cloud", "region", "kind", "purchase")},
    )
    shown = show(
        offer_rows(found[: values["limit"]]),
        values["format"],
        color=option.colored(values["color"]),
    )
    option.write(shown)
    if len(found) > values["limit"] and values["format"] == "text":
        click.echo(
            f"{len(found) - values['limit']:,} more: use --limit", err=True
        )
    return 0
