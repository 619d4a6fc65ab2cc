"""The containers of a fleet: image, devices, variables, and what the fabric wants beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stacks.spec.fleet import FleetSpec

TRAIN_IMAGE: Final = "train"
SERVE_IMAGE: Final = "vllm"
# Images of a fabric are named after the image without it.
FABRIC_IMAGE: Final = "{image}-{fabric}"


def container_settings(
    fleet: FleetSpec, image: str, program: Sequence[str], *options: str
) -> dict[str, Any]:
    """Return how a container of a fleet is run.

    image        reference of the image
    options      words of `docker run`
    environment  variables
    entry, lead  the program, and its first words; the words of the work come after them
    before       commands of the machine that the fabric wants first
    """
    fabric = joined_fabric(fleet)
    work = "train" if fleet.is_training else "serve"
    rows = [row for row in _fabric_rows() if row["fabric"] == fabric]
    texts: dict[str, list[str]] = {"option": [], "prelude": [], "before": []}
    for row in rows:
        if row["work"] in ("any", work):
            texts[row["kind"]].append(row["text"])
    images = lookup_table("images.csv", "image", "reference")
    fabric_image = FABRIC_IMAGE.format(image=image, fabric=fabric)
    before = [text.split() for text in texts["before"]]
    return {
        "image": images.get(fabric_image, images[image]),
        "options": [*texts["option"], *options],
        "environment": nccl_environment(fleet),
        "entry": "/bin/bash",
        # The words that follow are the arguments of the shell, which expands none of them.
        "lead": [
            "-c",
            "; ".join([*texts["prelude"], 'exec "$@"']),
            "tonnage",
            *program,
        ],
        "before": before,
    }


def joined_fabric(fleet: FleetSpec) -> str:
    """Return the fabric by which the nodes of a fleet work together; "none" without one."""
    is_joined = fleet.spans_nodes or fleet.working_nodes > 1
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
        "work": table.one_of("any", "serve", "train"),
        "kind": table.one_of("option", "prelude", "before"),
        "text": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return table.load_rows("stacks", "containers.csv", columns)
