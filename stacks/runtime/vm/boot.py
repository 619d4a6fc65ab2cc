"""What a machine is given when it first starts: a script that installs its program.

The script holds no secret and may run again. The agent starts before anything else does.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from planner.cost.lifetime import release_time
from planner.facts import table
from stacks.runtime.shell import fill_script, read_script
from stacks.runtime.vm import program
from stacks.runtime.vm.container import fabric_devices
from stacks.runtime.vm.serving import serving_work
from stacks.runtime.vm.training import training_work
from stacks.runtime.vm.workspace import workspace_work
from stacks.spec.driver import driver_sources
from stacks.spec.table import lookup_table
from stacks.user_data import NodeBoot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeCloud

PACKAGE: Final = "stacks.runtime.vm"
SETTINGS_PATH: Final = "/etc/tonnage/node.json"
UNITS: Final = ("tonnage-agent", "tonnage-work")


def node_boot(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    node_cloud: NodeCloud,
) -> NodeBoot:
    """Return what the machines of a group are given; the script fits into their user data."""
    settings = node_settings(stack, fleet, group, node_cloud.settings)
    more = (
        *(("driver",) if "driver" in settings else ()),
        *(("beside", "slices") if "beside" in settings["work"] else ()),
    )
    role = stack.node_role(fleet)
    core, rest = program.node_program(node_cloud.modules, role, more)
    program_text = program.packed_role(role, more)
    # The whole is never smaller than a part of it.
    if len(program_text) <= node_cloud.max_bytes:
        whole_script = _script({**core, **rest}, settings, "")
        if len(whole_script.encode()) <= node_cloud.max_bytes:
            return NodeBoot(whole_script)
    program_key = (
        f"program/{group.name}/{program.text_digest(program_text)}.txt"
    )
    return NodeBoot(
        _script(core, settings, program_key), program_key, program_text
    )


def _script(
    sources: Mapping[str, str], settings: Mapping[str, Any], program_key: str
) -> str:
    node_files = {
        **sources,
        SETTINGS_PATH: json.dumps(
            {**settings, "program": program_key}, sort_keys=True
        ),
        **{
            f"/etc/systemd/system/{unit}.service": read_script(
                PACKAGE, f"scripts/{unit}.service"
            )
            for unit in UNITS
        },
    }
    return fill_script(
        PACKAGE,
        "scripts/boot.sh",
        {},
        code={"files": program.packed(node_files)},
    )


def node_settings(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    cloud_settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything that the program of a node knows of its stack."""
    return {
        "role": stack.node_role(fleet),
        "cloud": {
            "provider": stack.provider,
            "stack": stack.name,
            "group": stack.group_name(group),
            **cloud_settings,
        },
        "agent": {
            "limits": _limits(stack, fleet),
            "poll_s": int(release_time("poll_s")),
            "group": group.name,
            **_elastic(stack, fleet, group),
        },
        "disk": {
            "local_disks": _disk_patterns(stack.provider, "local"),
            "data_disk": _disk_patterns(stack.provider, "data"),
            "has_disk": bool(fleet.data_disk_gb or fleet.instance.nvme_gb),
            "has_home": bool(fleet.home_gb),
        },
        **_driver(fleet),
        "health": {
            "accelerators": fleet.instance.accelerators,
            "fabric_devices": fabric_devices(fleet),
            "disk_gb_s": _least_disk_speed(fleet),
            "all_reduce_gb_s": _least_speed(
                "all_reduce",
                fleet.instance.accelerator,
                fleet.instance.accelerators,
            ),
            "fatal_xids": sorted(
                int(xid) for xid in lookup_table("xids.csv", "xid", "meaning")
            ),
        },
        "work": _work(stack, fleet, group),
    }


def _work(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> dict[str, Any]:
    if fleet.is_training and stack.training_run is not None:
        return training_work(stack, fleet, group, stack.training_run)
    if fleet.layout is not None:
        return serving_work(stack, fleet, group, fleet.layout)
    return workspace_work(stack, fleet)


def _driver(fleet: FleetSpec) -> dict[str, Any]:
    """Return where a machine gets its driver, when its image has none."""
    sources = driver_sources(fleet.instance)
    if not sources:
        return {}
    return {
        "driver": {
            "sources": [
                {"url": source.url, "sha256": source.sha256}
                for source in sources
            ],
            "license": list(sources[0].license),
        }
    }


def _elastic(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> dict[str, Any]:
    """Return when machines come and go by the load, where they do."""
    if fleet.elastic is None:
        return {}
    return {
        "elastic": {
            "least": list(group.least_nodes),
            "zone": stack.timezone,
            "most": group.most_nodes,
            # Three digits are enough for what is compared with whole requests.
            "target": float(f"{fleet.elastic.target_requests:.3g}"),
            "spare": fleet.elastic.spare_nodes,
            "startup_s": math.ceil(fleet.startup_s),
            "linger_s": fleet.elastic.linger_s,
        }
    }


def _limits(stack: StackSpec, fleet: FleetSpec) -> dict[str, int]:
    """Return when the agent gives a node back, in seconds; 0 without a limit."""
    return {
        "start": fleet.start_limit_s,
        "wait": int(release_time("wait_limit_s")),
        "grace": int(release_time("boot_grace_s")),
        "idle": stack.idle_s or 0,
        "ttl": stack.ttl_s or 0,
    }


def _least_disk_speed(fleet: FleetSpec) -> float:
    """Return what the disk of the weights must write, GB/s; 0 for a machine without one."""
    if fleet.instance.nvme_gb:
        return _least_speed("disk", "local", 0)
    return _least_speed("disk", "data", 0) if fleet.data_disk_gb else 0.0


def _least_speed(kind: str, name: str, count: int) -> float:
    """Return the least speed of data/speeds.csv, GB/s; 0 where none is known."""
    columns: table.Columns = {
        "kind": table.one_of("all_reduce", "disk"),
        "accelerator": table.nonempty_text,
        "accelerators": table.integer_between(0, 1024),
        "gb_s": table.real_between(0.001, 10_000),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    for row in table.load_rows("stacks", "speeds.csv", columns):
        if (row["kind"], row["accelerator"], row["accelerators"]) == (
            kind,
            name,
            count,
        ):
            speed: float = row["gb_s"]
            return speed
    return 0.0


def _disk_patterns(provider: str, kind: str) -> list[str]:
    columns: table.Columns = {
        "provider": table.nonempty_text,
        "kind": table.one_of("local", "data"),
        "pattern": table.nonempty_text,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return [
        row["pattern"]
        for row in table.load_rows("stacks", "disks.csv", columns)
        if (row["provider"], row["kind"]) == (provider, kind)
    ]
