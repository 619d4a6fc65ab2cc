"""tonnage catalog: state of the catalog and tables of accelerators and MIG profiles."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_catalog


@click.command("catalog")
@click.argument(
    "what",
    type=click.Choice(["status", "accelerators", "mig", "unpriced"]),
    default="status",
)
@option.catalog
@option.format_option("text", "json", "csv", "markdown")
@option.color
def command(what: str, **option_values: Any) -> int:
    """Show the state of the catalog, its accelerators, MIG profiles, or types without a price.

    Example: tonnage catalog accelerators
    """
    from planner.facts.accelerator import accelerators, mig_profiles
    from planner.market.listing import catalog_rows, unpriced_rows
    from planner.render import listing

    if what == "accelerators":
        # Accelerators and MIG profiles do not depend on --catalog.
        listing_rows = listing.accelerator_rows(list(accelerators().values()))
    elif what == "mig":
        listing_rows = listing.mig_rows(list(mig_profiles()))
    elif what == "unpriced":
        listing_rows = unpriced_rows(
            open_catalog(option_values["catalog"], None)
        )
    else:
        listing_rows = catalog_rows(
            open_catalog(option_values["catalog"], None)
        )
    option.write_output(
        listing.render_rows(
            listing_rows,
            option_values["format"],
            color=option.wants_color(option_values["color"]),
        )
    )
    return 0
