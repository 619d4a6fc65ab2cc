"""What a machine of a workspace runs: JupyterLab, on the disk that the user keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.facts.cloud import clouds
from stacks.runtime.vm.container import container_settings
from stacks.spec.stack import NOTEBOOK_PORT

if TYPE_CHECKING:
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

NOTEBOOK_IMAGE: Final = "notebook"
HOME: Final = "/work"
ADDRESSES: Final = {"loopback": "127.0.0.1", "address": "0.0.0.0"}  # noqa: S104 - by rules


def workspace_work(stack: StackSpec, fleet: FleetSpec) -> dict[str, Any]:
    """Return the settings of the work of a machine of a workspace."""
    program = [
        "start-notebook.py",
        # Nobody comes there but through the way to the machine, which asks who it is.
        f"--ip={ADDRESSES[clouds()[stack.provider].door]}",
        f"--port={NOTEBOOK_PORT}",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={HOME}",
    ]
    return {
        "container": container_settings(
            fleet, NOTEBOOK_IMAGE, program, f"--volume={HOME}:{HOME}"
        ),
        "port": NOTEBOOK_PORT,
    }
