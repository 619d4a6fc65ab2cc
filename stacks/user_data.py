"""What a machine is given when it first starts."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple


class NodeCloud(NamedTuple):
    """What a node is given of its cloud.

    settings   what it needs to know to speak to it
    modules    the modules that do so; `stacks.<cloud>.node` is one of them
    max_bytes  the most bytes of the script that a machine runs when it first starts
    """

    settings: dict[str, Any]
    modules: tuple[str, ...]
    max_bytes: int


class NodeBoot(NamedTuple):
    """What a machine is given when it first starts.

    script        what it runs as root
    program_key   the object of the bucket from which it brings the rest of its program; empty
                  when the script has all of it
    program_text  the content of this object
    """

    script: str
    program_key: str = ""
    program_text: str = ""


def base64_text(text: str) -> str:
    """Encode text as clouds want scripts and bodies."""
    return base64.b64encode(text.encode()).decode()
