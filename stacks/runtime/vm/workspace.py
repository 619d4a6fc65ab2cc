"""What a machine of a workspace runs: JupyterLab, on the disk that the user keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.runtime.vm.container import container_settings

if TYPE_CHECKING:
    from stacks.spec.fleet import FleetSpec

NOTEBOOK_IMAGE: Final = "notebook"
NOTEBOOK_PORT: Final = 8888
HOME: Final = "/work"


def workspace_work(fleet: FleetSpec) -> dict[str, Any]:
    """Return the settings of the work of a machine of a workspace."""
    program = [
        "start-notebook.py",
        # Nobody comes there but through the way to the machine, which asks who it is.
        "--ip=127.0.0.1",
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
