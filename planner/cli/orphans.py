"""tonnage orphans: what tonnage has made in a cloud and no stack of a backend knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from planner.cli import option, progress
from planner.cli.compose import open_catalog, open_engine
from planner.facts.cloud import clouds

if TYPE_CHECKING:
    from stacks.engine.protocol import StackEngine
    from stacks.operate.orphan import TaggedObject


@click.command("orphans")
@click.option(
    "--cloud",
    "cloud_names",
    multiple=True,
    type=click.Choice(sorted(clouds())),
    help="Look in this cloud; may be given several times; default all of them.",
)
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json")
def command(cloud_names: tuple[str, ...], **option_values: Any) -> int:
    """Look for what carries the tags of tonnage, in all regions, and belongs to no known stack.

    It is found by its tags, and is never deleted. Exits with 20 when there is any.

    Example: tonnage orphans --cloud aws
    """
    from msgspec import to_builtins

    options = option.planning_options(option_values)
    orphans = _find_orphans(
        open_engine(options), cloud_names or tuple(sorted(clouds()))
    )
    if option_values["format"] == "json":
        option.write_output(json.dumps(to_builtins(orphans), indent=2) + "\n")
    else:
        for orphan in orphans:
            click.echo(
                f"{orphan.cloud} {orphan.region}  {orphan.stack}  {orphan.id}"
            )
        click.echo(
            f"{len(orphans)} objects belong to no stack of this backend"
            if orphans
            else "everything that tonnage has made belongs to a stack of this backend"
        )
    return option.CHANGED_EXIT_CODE if orphans else 0


def _find_orphans(
    engine: StackEngine, cloud_names: tuple[str, ...]
) -> list[TaggedObject]:
    from stacks.operate.orphan import simulated_orphans, tagged_orphans

    known_stacks = engine.stack_names()
    world = engine.simulated_world()
    if world is None:
        with progress.waiting("searching all regions"):
            return tagged_orphans(
                cloud_names, known_stacks, open_catalog(None, None)
            )
    known_ids = {
        object_id
        for stack_name in known_stacks
        for object_id in engine.object_ids(stack_name)
    }
    return simulated_orphans(world, cloud_names, known_ids)
