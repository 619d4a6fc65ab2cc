"""tonnage offers: offers of the catalog by price."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import complete, option
from planner.cli.compose import open_catalog, open_world
from planner.facts.cloud import clouds
from planner.market.offer import ORDERABLE_PURCHASES

SORT_KEYS = ("gpu", "tflop", "bandwidth", "hour", "memory")


@click.command("offers")
@click.argument(
    "accelerator",
    required=False,
    default="*",
    shell_complete=complete.accelerator_names,
)
@click.option(
    "--cloud",
    multiple=True,
    type=click.Choice(list(clouds())),
    help="Only this cloud.",
)
@click.option(
    "--region",
    shell_complete=complete.region_names,
    multiple=True,
    metavar="PATTERN",
    help="Only these regions.",
)
@click.option(
    "--type",
    "kind",
    shell_complete=complete.machine_types,
    multiple=True,
    metavar="PATTERN",
    help="Only these machine types.",
)
@click.option(
    "--purchase",
    multiple=True,
    help=f"Only {', '.join(ORDERABLE_PURCHASES)}.",
    type=click.Choice(ORDERABLE_PURCHASES),
)
@click.option(
    "--sort",
    type=click.Choice(SORT_KEYS),
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
@option.full_rows
@option.simulate
@option.catalog
@option.format_option("text", "json", "csv", "markdown")
@option.color
def command(accelerator: str, **option_values: Any) -> int:
    """List offers of an ACCELERATOR (a name or a pattern), the cheapest first.

    Example: tonnage offers 'h100*' --region 'us-*' --sort bandwidth
    """
    from planner.market.listing import offer_rows, rank_offers
    from planner.market.offer_search import nothing_found
    from planner.render.offer_list import offers_page

    catalog = open_catalog(
        option_values["catalog"], open_world(option_values["simulate"])
    )
    ranked_offers = rank_offers(
        catalog.offers,
        accelerator.lower(),
        option_values["sort"],
        {
            option_name: option_values[option_name]
            for option_name in ("cloud", "region", "kind", "purchase")
        },
    )
    if not ranked_offers:
        raise nothing_found(
            catalog.offers,
            accelerator.lower(),
            option_values["region"],
            option_values["kind"],
        )
    rows = offer_rows(ranked_offers[: option_values["limit"]])
    if option_values["format"] == "text" and not option_values["full"]:
        option.print_page(
            offers_page(rows, option_values["sort"]),
            "text",
            option_values["color"],
        )
    else:
        option.write_rows(rows, option_values)
    # Other formats are read by programs, which need no hint.
    if (
        len(ranked_offers) > option_values["limit"]
        and option_values["format"] == "text"
    ):
        click.echo(
            f"{len(ranked_offers) - option_values['limit']:,} more: use --limit",
            err=True,
        )
    return 0
