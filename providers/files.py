"""Writing files so that a crash leaves either the old content or the new one."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import mkstemp
from typing import Final

PRIVATE_FOLDER_MODE: Final = 0o700
PUBLIC_FILE_MODE: Final = 0o666


def write_atomically(
    path: Path, content: str | bytes, *, is_private: bool = True
) -> None:
    """Write a file beside, flush it to the disk, and rename it over the old one.

    Text is written as UTF-8. Folders that are missing are made, for the user alone. A private file
    is readable by the user alone, any other one by those whom the user lets read new files.
    """
    make_folder(path.parent)
    # Its name cannot be foreseen, so nobody has put a link there.
    descriptor, partial_name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    partial_path = Path(partial_name)
    try:
        with os.fdopen(descriptor, "wb") as partial_file:
            partial_file.write(
                content.encode() if isinstance(content, str) else content
            )
            partial_file.flush()
            os.fsync(partial_file.fileno())
        if not is_private:
            partial_path.chmod(PUBLIC_FILE_MODE & ~_user_mask())
        partial_path.replace(path)
    finally:
        # After the rename there is none; a disk that is full leaves a part of it.
        partial_path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for the user alone."""
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)


def _user_mask() -> int:
    """Return the mask of new files; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
