"""Files that end, and writing so that a crash leaves either the old content or the new one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from tempfile import mkstemp
from typing import Final

PRIVATE_FOLDER_MODE: Final = 0o700
PUBLIC_FILE_MODE: Final = 0o666
# Traces of many millions of requests are smaller, and so is every document.
MAX_FILE_BYTES: Final = 512 * 2**20
MAX_DOCUMENT_BYTES: Final = 16 * 2**20


def read_regular(path: str | Path, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file; any other one may never end.

    Raises OSError: FileNotFoundError, IsADirectoryError, with EINVAL for a file of another sort,
    and with EFBIG for one of more than `most_bytes`, of which no more is read.
    """
    # A pipe that nobody writes to would be waited for.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    with os.fdopen(descriptor, "rb") as opened_file:
        content = opened_file.read(most_bytes + 1)
    if len(content) > most_bytes:
        size_text = f"has more than {most_bytes // 2**20} MiB"
        raise OSError(errno.EFBIG, size_text, str(path))
    return content


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
