"""The serving engine that machines start unless a spec names another one, and what others lack."""

from __future__ import annotations

from functools import cache
from typing import Final, Literal, TypeAlias, get_args

from planner.facts import table

DEFAULT_ENGINE: Final = "vllm"
# Engines whose name in tables is not the one that specs and people call them by.
TABLE_NAMES: Final = {"tensorrt-llm": "trtllm"}
SPOKEN_NAMES: Final = {tabled: spoken for spoken, tabled in TABLE_NAMES.items()}
EngineGap: TypeAlias = Literal[
    "conversion",
    "entries",
    "key",
    "machines",
    "replicas",
    "sliced-experts",
    "wide-cache",
]


def table_name(engine: str) -> str:
    """Return the name that an engine has in tables, from that of a spec."""
    return TABLE_NAMES.get(engine, engine)


def spoken_name(engine: str) -> str:
    """Return the name that people call an engine by, from that in tables."""
    return SPOKEN_NAMES.get(engine, engine)


def has_gap(engine: str, gap: EngineGap) -> bool:
    """Whether an engine lacks what others have.

    conversion      making other formats of weights when it loads them
    entries         kernels for entries of the cache that tokens share
    key             asking clients for a key
    machines        one replica over several machines
    replicas        several replicas of one server
    sliced-experts  experts in fp8 that several accelerators share
    wide-cache      a cache of 16 bits beside quantized weights, where it is asked for
    """
    return gap in gap_reasons(engine)


@cache
def gap_reasons(engine: str) -> dict[str, str]:
    """Return why an engine lacks what it does, by what that is."""
    columns: table.Columns = {
        "engine": table.nonempty_text,
        "gap": table.one_of(*get_args(EngineGap)),
        "reason": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["gap"]: row["reason"]
        for row in table.load_rows("planner.facts", "engine_gaps.csv", columns)
        if row["engine"] == engine
    }
