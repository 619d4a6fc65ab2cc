"""The serving engine that machines start unless a spec names another one."""

from __future__ import annotations

from typing import Final

DEFAULT_ENGINE: Final = "vllm"
