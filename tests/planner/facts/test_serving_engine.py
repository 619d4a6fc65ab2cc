"""Names of serving engines, and what each lacks."""

from __future__ import annotations

from typing import Final, Literal, get_args

from planner.facts.serving_engine import (
    DEFAULT_ENGINE,
    TABLE_NAMES,
    EngineGap,
    gap_reasons,
    has_gap,
    spoken_name,
    table_name,
)
from planner.perf.serving.engine import engine_rows
from planner.spec.model import EngineSettings

ENGINES: Final[
    tuple[Literal["auto", "vllm", "sglang", "tensorrt-llm"], ...]
] = ("auto", "vllm", "sglang", "tensorrt-llm")


def test_every_engine_of_a_spec_has_a_row() -> None:
    for engine in ENGINES:
        name = EngineSettings(engine=engine).engine_name
        assert name in engine_rows()
        assert spoken_name(name) == (
            DEFAULT_ENGINE if engine == "auto" else engine
        )


def test_names_are_read_back() -> None:
    assert TABLE_NAMES
    for spoken, tabled in TABLE_NAMES.items():
        assert (table_name(spoken), spoken_name(tabled)) == (tabled, spoken)
    assert table_name("sglang") == spoken_name("sglang") == "sglang"


def test_the_engine_that_is_taken_by_itself_lacks_nothing() -> None:
    for gap in get_args(EngineGap):
        # Models of 2026 that no release serves which machines start.
        assert has_gap(DEFAULT_ENGINE, gap) == (gap == "entries")
        assert has_gap("trtllm", gap)
        assert gap_reasons("trtllm")[gap]
