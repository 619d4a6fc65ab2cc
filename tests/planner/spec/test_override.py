"""A key that is set is the same as a key that is written."""

from __future__ import annotations

import pytest

from planner.errors import SpecError
from planner.spec.load import load_spec
from planner.spec.override import KeyOverride, parse_override
from planner.spec.plain import plain_values
from tests.conftest import chat

TEXT = chat(extra="buy: {spot: never}")


@pytest.mark.parametrize(
    ("override", "written", "instead"),
    [
        ("traffic.peak_rps=7.5", "peak_rps: 2", "peak_rps: 7.5"),
        ("sla.ttft_p95=600ms", "ttft_p95: 2s", "ttft_p95: 600ms"),
        ("sla.e2e_p95 = 20s", "tpot_p95: 80ms", "tpot_p95: 80ms, e2e_p95: 20s"),
        ("buy.commit=[none, 1y]", "never}", "never, commit: [none, 1y]}"),
        ("shutdown.ttl=72h", "buy:", "shutdown: {ttl: 72h}\nbuy:"),
        ("buy={spot: only}", "{spot: never}", "{spot: only}"),
        ('name="other"', "name: chat", "name: other"),
    ],
)
def test_it_is_the_spec_that_would_be_written(
    override: str, written: str, instead: str
) -> None:
    said = load_spec(TEXT.encode(), "spec.yaml", [parse_override(override)])
    edited = load_spec(TEXT.replace(written, instead).encode(), "spec.yaml")
    assert plain_values(said) == plain_values(edited)
    assert plain_values(said) != plain_values(
        load_spec(TEXT.encode(), "spec.yaml")
    )


def test_the_last_of_two_holds() -> None:
    said = load_spec(
        TEXT.encode(),
        "spec.yaml",
        [
            KeyOverride("traffic.peak_rps", "7"),
            KeyOverride("traffic.peak_rps", "3"),
        ],
    )
    assert plain_values(said)["traffic"]["peak_rps"] == "3"


@pytest.mark.parametrize(
    ("override", "code", "place"),
    [
        ("traffic.peak_rps=many", "quantity", "--set traffic.peak_rps:1:1"),
        ("trafic.peak_rps=3", "unknown-key", "--set trafic.peak_rps:1:1"),
        ("traffic.peak_rps.x=3", "type", "--set traffic.peak_rps.x:1:1"),
        ("labels=[a", "yaml", "--set labels:1:3"),
    ],
)
def test_what_is_wrong_is_said_of_the_flag(
    override: str, code: str, place: str
) -> None:
    with pytest.raises(SpecError) as refused:
        load_spec(TEXT.encode(), "spec.yaml", [parse_override(override)])
    [problem] = refused.value.problems
    assert (problem.code, str(problem.place)) == (code, place)


TRAINING = """
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {tokens: 1B, location: s3://bucket/data}
train: {method: lora, deadline: 2d}
buy: {spot: never}
shutdown: {idle: 1h}
"""


@pytest.mark.parametrize(
    ("overrides", "code", "place"),
    [
        (
            ["buy.owned=machines.yaml"],
            "owned-kind",
            "--set buy.owned:1:1",
        ),
        (
            ["buy.owned=machines.yaml", "train.deadline=3d"],
            "owned-kind",
            "--set buy.owned:1:1",
        ),
        (
            ["where.clouds=[lambda]", "data.storage=parallel"],
            "data",
            "--set data.storage:1:1",
        ),
        (["data.samples=1k"], "data", "--set data.samples:1:1"),
    ],
)
def test_a_key_that_breaks_a_rule_across_blocks_is_the_flag(
    overrides: list[str], code: str, place: str
) -> None:
    """The file has no line of it."""
    with pytest.raises(SpecError) as refused:
        load_spec(
            TRAINING.encode(), "spec.yaml", list(map(parse_override, overrides))
        )
    [problem] = refused.value.problems
    assert (problem.code, str(problem.place)) == (code, place)


def test_a_rule_that_the_file_breaks_itself_keeps_its_line() -> None:
    broken = TRAINING.replace("spot: never", "owned: machines.yaml")
    with pytest.raises(SpecError) as refused:
        load_spec(
            broken.encode(), "spec.yaml", [KeyOverride("train.deadline", "3d")]
        )
    [problem] = refused.value.problems
    assert problem.code == "owned-kind"
    line = broken.splitlines().index("buy: {owned: machines.yaml}") + 1
    assert str(problem.place).startswith(f"spec.yaml:{line}:")


def test_what_the_file_has_wrong_keeps_its_line() -> None:
    broken = TEXT.replace("spot: never", "spot: often")
    with pytest.raises(SpecError) as refused:
        load_spec(
            broken.encode(), "spec.yaml", [KeyOverride("traffic.peak_rps", "3")]
        )
    [problem] = refused.value.problems
    line = broken.splitlines().index("buy: {spot: often}") + 1
    assert str(problem.place) == f"spec.yaml:{line}:13"


@pytest.mark.parametrize("text", ["", "x", "=3", "a.b=", "a..b=3", "a b=3"])
def test_what_is_no_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write KEY=VALUE"):
        parse_override(text)
