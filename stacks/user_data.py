"""User data: what a machine is given to run when it first starts."""

from __future__ import annotations

import base64


def base64_text(script: str) -> str:
    """Encode a script as AWS and Azure want it."""
    return base64.b64encode(script.encode()).decode()
