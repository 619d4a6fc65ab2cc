"""What a shell offers for a word that is being typed: names from tables, and file names.

It runs at each press of a key, so it reads names alone, and asks nobody over the network. What
cannot be read offers nothing: no error may stand in the middle of a command line.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click
    from click.shell_completion import CompletionItem

# Below the folder of the work: where engines on this machine keep the states of stacks.
STATE_PATTERNS: Final = (
    ".tonnage/simulated/stacks/*.json",
    ".tonnage/pulumi/.pulumi/stacks/tonnage/*.json",
    ".tonnage/pulumi-simulated/.pulumi/stacks/tonnage/*.json",
)
# Where a price is the same in all regions.
EVERY_REGION: Final = "*"


def file_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell offer its file names."""
    return _left_to_shell(incomplete, "file")


def folder_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell offer its folders."""
    return _left_to_shell(incomplete, "dir")


def model_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the models that can be sized."""
    names = {
        row["model"]
        for row in _rows("planner.facts", "data/models.csv")
        if row["unmodelled"] == ""
    }
    return _beginning(incomplete, names)


def accelerator_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the accelerators."""
    rows = _rows("planner.facts", "data/accelerators.csv")
    return _beginning(incomplete, {row["accelerator"] for row in rows})


def region_names(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the regions of the embedded catalog: of the cloud, where one is named already."""
    rows = _of_cloud(context, _rows("providers.catalog", "data/prices.csv"))
    names = {row["region"] for row in rows} - {EVERY_REGION}
    return _beginning(incomplete, names)


def machine_types(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the machine types of the embedded catalog, as regions are."""
    rows = _of_cloud(context, _rows("providers.catalog", "data/instances.csv"))
    return _beginning(incomplete, {row["instance_type"] for row in rows})


def stack_names(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the stacks whose state is on this machine."""
    folder = Path(context.find_root().params.get("directory") or ".")
    try:
        names = {
            path.stem
            for pattern in STATE_PATTERNS
            for path in folder.glob(pattern)
        }
    except OSError:
        return []
    return _beginning(incomplete, names)


def blueprint_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the blueprints."""
    from importlib.resources import files

    names = {
        entry.name.removesuffix(".yaml")
        for entry in files("blueprints").iterdir()
        if entry.name.endswith(".yaml")
    }
    return _beginning(incomplete, names)


def pipeline_systems(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the systems that there are pipelines for."""
    rows = _rows("blueprints", "ci/targets.csv")
    return _beginning(incomplete, {row["system"] for row in rows})


def rule_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the rules of the checks of what is built."""
    rows = _rows("planner.facts", "data/rules.csv")
    return _beginning(incomplete, {row["id"] for row in rows})


def catalog_names(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Offer the catalogs that there are."""
    from planner.cli.compose import open_catalogs

    try:
        names = [entry.name for entry in open_catalogs().path.iterdir()]
    except OSError:
        names = []
    return _beginning(incomplete, {"embedded", *names})


def stacks_or_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str] | list[CompletionItem]:
    """Offer the stacks, and file names where none of them begins so."""
    names = stack_names(context, parameter, incomplete)
    return names or _left_to_shell(incomplete, "file")


def catalogs_or_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str] | list[CompletionItem]:
    """Offer the catalogs, and file names where none of them begins so."""
    names = catalog_names(context, parameter, incomplete)
    return names or _left_to_shell(incomplete, "file")


def _left_to_shell(incomplete: str, kind: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _of_cloud(
    context: click.Context, rows: tuple[dict[str, str], ...]
) -> list[dict[str, str]]:
    """Return the rows of the clouds that a command line names; of all without one."""
    named = context.params.get("cloud") or ()
    chosen = {named} if isinstance(named, str) else set(named)
    return [row for row in rows if not chosen or row["provider"] in chosen]


@cache
def _rows(package: str, file_name: str) -> tuple[dict[str, str], ...]:
    from importlib.resources import files

    path = files(package).joinpath(*file_name.split("/"))
    with path.open("r", encoding="utf-8") as table:
        return tuple(csv.DictReader(table))
