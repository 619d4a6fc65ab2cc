"""The containers of a fleet: image, devices, variables, and what the fabric wants beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stacks.spec.fleet import FleetSpec

TRAIN_IMAGE: Final = "train"
# Images of a fabric are named after the image without it.
FABRIC_IMAGE: Final = "{image}-{fabric}"


def container_settings(
    fleet: FleetSpec,
    image: str,
    program: Sequence[str],
    *options: str,
    prelude: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return how a container of a fleet is run.

    image        reference of the image
    options      words of `docker run`
    environment  variables
    entry, lead  the program, and its first words; the words of the work come after them

    `prelude` are commands of the shell that it runs first.
    """
    fabric = joined_fabric(fleet)
    images = lookup_table("images.csv", "image", "reference")
    fabric_image = FABRIC_IMAGE.format(image=image, fabric=fabric)
    # An image that is not made for the fabric takes its libraries from the machine.
    parts = ("any",) if fabric_image in images else ("any", "bare")
    texts: dict[str, list[str]] = {"option": [], "prelude": []}
    for row in _fabric_rows():
        if (
            row["fabric"] == fabric
            and row["image"] in parts
            and row["kind"] in texts
        ):
            texts[row["kind"]].append(row["text"])
    return {
        "image": images.get(fabric_image, images[image]),
        "options": [*texts["option"], *options],
        "environment": nccl_environment(fleet) | dict(environment or {}),
        "entry": "/bin/bash",
        # The words that follow are the arguments of the shell, which expands none of them.
        "lead": [
            "-c",
            "; ".join([*texts["prelude"], *prelude, 'exec "$@"']),
            "tonnage",
            *program,
        ],
    }


def fabric_settings(fleet: FleetSpec) -> dict[str, Any]:
    """Return what the machine does for the fabric before a container uses it, if anything.

    {"fabric": settings of `node.fabric.prepare_fabric`}, or nothing
    """
    fabric = joined_fabric(fleet)
    texts: dict[str, list[str]] = {
        "module": [],
        "device": [],
        "command": [],
        "service": [],
    }
    for row in _fabric_rows():
        if row["fabric"] == fabric and row["kind"] in texts:
            texts[row["kind"]].append(row["text"])
    if not any(texts.values()):
        return {}
    return {
        "fabric": {
            "modules": texts["module"],
            "repositories": _repositories(fabric),
            "devices": [text.split() for text in texts["device"]],
            "commands": [text.split() for text in texts["command"]],
            "services": [_service(text) for text in texts["service"]],
        }
    }


def _service(text: str) -> dict[str, Any]:
    """A service: its name, words of docker run, and after a bar what it says when it is ready."""
    command, _, ready = text.partition(" | ")
    name, *words = command.split()
    return {"name": name, "words": words, "ready": ready}


def _repositories(fabric: str) -> list[dict[str, Any]]:
    columns: table.Columns = {
        "fabric": table.nonempty_text,
        "name": table.nonempty_text,
        "key_url": table.nonempty_text,
        "repository": table.nonempty_text,
        "packages": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return [
        {
            "name": row["name"],
            "key_url": row["key_url"],
            "line": row["repository"],
            "packages": row["packages"].split(";"),
        }
        for row in table.load_rows("stacks", "fabric_packages.csv", columns)
        if row["fabric"] == fabric
    ]


def joined_fabric(fleet: FleetSpec) -> str:
    """Return the fabric by which the nodes of a fleet work together; "none" without one."""
    is_joined = fleet.spans_nodes or (
        fleet.is_training and fleet.working_nodes > 1
    )
    return (
        fleet.instance.fabric if is_joined and fleet.fabric_attached else "none"
    )


def fabric_devices(fleet: FleetSpec) -> int:
    """Return how many interfaces of the fabric a node has; 0 when it needs none."""
    if joined_fabric(fleet) == "none":
        return 0
    families = lookup_table("fabric_devices.csv", "family", "devices")
    return next(
        (
            int(devices)
            for family, devices in families.items()
            if fleet.instance.instance_type.startswith(family)
        ),
        0,
    )


def nccl_environment(fleet: FleetSpec) -> dict[str, str]:
    """Return the variables of NCCL on the fabric of a fleet, and what makes a hang an error."""
    columns = ["any"]
    if joined_fabric(fleet) != "none":
        columns.append(fleet.instance.fabric)
    return {
        variable: text
        for column in columns
        for variable, text in sorted(
            lookup_table("nccl.csv", "variable", column).items()
        )
        if text
    }


def _fabric_rows() -> Iterator[table.TableRow]:
    columns: table.Columns = {
        "fabric": table.nonempty_text,
        "image": table.one_of("any", "bare"),
        "kind": table.one_of(
            "option",
            "prelude",
            "module",
            "device",
            "command",
            "service",
        ),
        "text": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return table.load_rows("stacks", "containers.csv", columns)
