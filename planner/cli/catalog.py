"""tonnage catalog: the catalogs there are, which one plans use, and what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli import complete, option
from planner.cli.catalog_update import update
from planner.cli.compose import open_catalog, open_catalogs

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.market.price_row import PriceRow

DEFAULT_PART: Final = "status"


class CatalogGroup(click.Group):
    """A group of commands of which `status` needs no name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `catalog -f json` as `catalog status -f json`."""
        is_flag = bool(args) and args[0].startswith("-")
        if not args or (is_flag and args[0] not in ctx.help_option_names):
            args = [DEFAULT_PART, *args]
        return super().parse_args(ctx, args)


@click.group("catalog", cls=CatalogGroup)
def command() -> None:
    """Show the catalog that plans use, compare catalogs, or make one of the prices of today.

    Example: tonnage catalog update --clouds azure --regions 'east*'
    """


command.add_command(update)


def listing_flags(subcommand: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that write a table."""
    for decorator in (
        option.color,
        option.format_option("text", "json", "csv", "markdown"),
    ):
        subcommand = decorator(subcommand)
    return subcommand


@command.command("status")
@option.catalog
@listing_flags
def status(**option_values: Any) -> int:
    """Show how many prices there are, by cloud and purchase. It is what `tonnage catalog` shows.

    Example: tonnage catalog status
    """
    from planner.market.listing import catalog_rows

    catalog = open_catalog(option_values["catalog"], None)
    option.write_rows(catalog_rows(catalog), option_values)
    return 0


@command.command("accelerators")
@option.full_rows
@listing_flags
def accelerators(**option_values: Any) -> int:
    """List the accelerators with their data sheets, whichever catalog is in use.

    Example: tonnage catalog accelerators
    """
    from planner.facts.accelerator import accelerators as all_accelerators
    from planner.render.listing import accelerator_rows

    rows = accelerator_rows(list(all_accelerators().values()))
    option.write_rows(rows, option_values, without=("confidence", "as_of"))
    return 0


@command.command("mig")
@listing_flags
def mig(**option_values: Any) -> int:
    """List the MIG profiles of accelerators, whichever catalog is in use.

    Example: tonnage catalog mig
    """
    from planner.facts.accelerator import mig_profiles
    from planner.render.listing import mig_rows

    option.write_rows(mig_rows(list(mig_profiles())), option_values)
    return 0


@command.command("unpriced")
@option.catalog
@listing_flags
def unpriced(**option_values: Any) -> int:
    """List the machine types without a known price, which are never chosen.

    Example: tonnage catalog unpriced
    """
    from planner.market.listing import unpriced_rows

    catalog = open_catalog(option_values["catalog"], None)
    option.write_rows(unpriced_rows(catalog), option_values)
    return 0


@command.command("list")
@listing_flags
def list_catalogs(**option_values: Any) -> int:
    """List the embedded catalog and those of updates, with the number of their prices.

    `of_day` counts the prices of the catalog's own date. They are in TONNAGE_CATALOGS, or in the
    user's data folder.

    Example: tonnage catalog list
    """
    from providers.catalog.folder import EMBEDDED

    folder = open_catalogs()
    choice = folder.choice()
    used_name = choice.name if choice else EMBEDDED
    rows = [
        {
            "name": entry.name,
            "as_of": entry.as_of,
            "sha256": entry.sha256[:16],
            "prices": str(entry.rows) if entry.sha256 else "",
            "of_day": str(entry.rows_of_day) if entry.sha256 else "",
            "state": entry.state,
            "used": "yes" if entry.name == used_name else "",
        }
        for entry in folder.entries()
    ]
    option.write_rows(rows, option_values)
    return 0


@command.command("use")
@click.argument(
    "name", metavar="NAME|embedded", shell_complete=complete.catalog_names
)
def use(name: str) -> int:
    """Let plans use the catalog of this NAME, or the embedded one, from now on.

    `--catalog FILE` of a command still wins. A plan names its catalog, and is stale under another.

    Example: tonnage catalog use embedded
    """
    choice = open_catalogs().choose(name)
    digest_text = f" ({choice.sha256[:16]})" if choice else ""
    click.echo(f"plans use the catalog {name}{digest_text}")
    return 0


@command.command("diff")
@click.argument(
    "old",
    metavar="A",
    required=False,
    shell_complete=complete.catalogs_or_files,
)
@click.argument(
    "new",
    metavar="B",
    required=False,
    shell_complete=complete.catalogs_or_files,
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    metavar="N",
    help="Show N prices as text (20); other formats have all.",
)
@listing_flags
def diff(old: str | None, new: str | None, **option_values: Any) -> int:
    """Show which prices changed, vanished and were added from catalog A to B, the largest first.

    Each is the name of a catalog, or the path of a manifest.json. A is the embedded one unless it
    is given, and B the last of `tonnage catalog list`.

    Example: tonnage catalog diff
    """
    from planner.market.listing import difference_rows
    from planner.market.price_diff import price_differences
    from providers.catalog.folder import EMBEDDED

    if new is None:
        new = open_catalogs().entries()[-1].name
    differences = price_differences(_rows_of(old or EMBEDDED), _rows_of(new))
    is_text = option_values["format"] == "text"
    shown = differences[: option_values["limit"]] if is_text else differences
    if is_text and not differences:
        click.echo("no price differs")
        return 0
    option.write_rows(difference_rows(shown), option_values)
    if len(shown) < len(differences):
        click.echo(
            f"{len(differences) - len(shown):,} more: use --limit", err=True
        )
    return 0


def _rows_of(name: str) -> list[PriceRow]:
    """Return the prices of a catalog by name, or of a manifest by path, with small clouds."""
    from planner.market.small_cloud_update import catalog_price_rows
    from providers.catalog.manifest import verify_manifest

    is_path = name.endswith(".json")
    manifest_path = (
        Path(name) if is_path else open_catalogs().manifest_path(name)
    )
    texts, _, _ = verify_manifest(manifest_path)
    return catalog_price_rows(texts)
