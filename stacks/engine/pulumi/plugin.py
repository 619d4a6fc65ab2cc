"""Our provider plugins, for the simulated clouds, where Pulumi looks first."""

from __future__ import annotations

import sys
from pathlib import Path

from stacks.spec.table import lookup_table


def install_plugins(home_folder: Path) -> None:
    """Put the plugins of all clouds into a home of Pulumi, without touching PATH."""
    source_root = Path(__file__).resolve().parents[3]
    for package_name, plugin_version in lookup_table(
        "plugins.csv", "package", "version"
    ).items():
        plugin_path = (
            home_folder
            / "plugins"
            / f"resource-{package_name}-v{plugin_version}"
            / f"pulumi-resource-{package_name}"
        )
        python_code = (
            f"import sys; sys.path.insert(0, {str(source_root)!r}); "
            f"from providers.simulated.plugin import main; main({plugin_version!r})"
        )
        quoted_code = python_code.replace("'", "'\"'\"'")
        script = (
            f"#!/bin/sh\nexec '{sys.executable}' -c '{quoted_code}' \"$@\"\n"
        )
        # A plugin of another run may be starting from the file.
        if plugin_path.exists() and plugin_path.read_text("utf-8") == script:
            continue
        plugin_path.parent.mkdir(parents=True, exist_ok=True)
        plugin_path.write_text(script, "utf-8")
        plugin_path.chmod(0o755)
