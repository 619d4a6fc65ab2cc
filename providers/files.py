"""Writing files so that a crash leaves either the old content or the new one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file beside, flush it to the disk, and rename it over the old one.

    Text is written as UTF-8. Folders that are missing are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_name(path.name + ".part")
    with partial_path.open("wb") as partial_file:
        partial_file.write(
            content.encode() if isinstance(content, str) else content
        )
        partial_file.flush()
        os.fsync(partial_file.fileno())
    partial_path.replace(path)
