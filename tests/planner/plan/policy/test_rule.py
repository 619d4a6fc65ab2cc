"""Files of policies: what is wrong in them has its place, to the letter."""

from __future__ import annotations

import json
import textwrap

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import SpecError
from planner.plan.own_file import file_schema
from planner.plan.policy.rule import read_policy
from tests.conftest import ROOT, present
from tests.planner.plan.policy.conftest import policy_of

GUARDRAILS = ROOT / "blueprints" / "policies" / "guardrails.yaml"
OPERANDS = st.sampled_from(["plan.cost.total", "(true)", "spec.labels", "5"])
OPERATORS = st.sampled_from([">", "&&", "||", "==", "<="])
# An expression begins with an operand: YAML has a meaning of its own for some operators there.
WORDS = st.builds(
    lambda first, pairs: [first, *(word for pair in pairs for word in pair)],
    OPERANDS,
    st.lists(st.tuples(OPERATORS, OPERANDS), max_size=6),
)


def written(words: list[str], style: str, indent: int) -> str:
    """A rule with an expression in one of the styles of YAML."""
    margin = " " * indent
    text = " ".join(words)
    folded = "\n".join(textwrap.wrap(text, 24))
    value = {
        "plain": text.replace(": ", ":"),
        "single": f"'{text}'",
        "double": f'"{text}"',
        "folded": ">-\n" + textwrap.indent(folded, margin + "  "),
        "literal": "|\n" + textwrap.indent(folded, margin + "  "),
    }[style]
    return (
        f"# a policy\nrules:\n{margin[:-2]}- id: a\n{margin}message: b\n"
        f"{margin}when: {value}\n"
    )


@settings(deadline=None)
@given(
    WORDS,
    st.sampled_from(["plain", "single", "double", "folded", "literal"]),
    st.sampled_from([2, 4, 8]),
    st.data(),
)
def test_every_letter_of_an_expression_is_found_in_its_file(
    words: list[str], style: str, indent: int, data: st.DataObject
) -> None:
    file_text = written(words, style, indent)
    policy = read_policy(file_text.encode(), "policy.yaml")
    when = policy.rules[0].when
    letters = [
        offset
        for offset, letter in enumerate(when.text)
        if not letter.isspace()
    ]
    offset = data.draw(st.sampled_from(letters))
    place = when.place_at(offset, policy.text)
    line = file_text.splitlines()[place.line - 1]
    assert line[place.column - 1] == when.text[offset]
    # And it is that letter, not one like it: as many stand before it.
    before = "\n".join(
        [*file_text.splitlines()[: place.line - 1], line[: place.column - 1]]
    ).split("when:")[1]
    for sign in (">-", "|", "'", '"'):
        before = before.removeprefix(" " + sign)
    assert "".join(before.split()) == "".join(when.text[:offset].split())


@pytest.mark.parametrize(
    ("rule", "code", "message"),
    [
        ({"when": "plan.x ~ 1"}, "", ""),
        ({"when": "true", "severity": "deni"}, "choice", "is not known"),
        ({"when": "true", "if": "true"}, "unknown-key", "unknown key"),
        ({"message": "b"}, "missing-key", "when is missing"),
        ({"when": "true", "id": "A b"}, "value", "cannot be 'A b'"),
        ({"when": "x" * 2_001}, "too-long", "2,001 characters"),
        (
            {"when": "true", "about": "where..x"},
            "value",
            "cannot be 'where..x'",
        ),
        ({"when": "foo(1)"}, "expression-name", "no function is named foo"),
        ({"when": "true", "unless": "pla.n"}, "expression-name", "named pla"),
        ({"when": "(" * 40}, "expression-nesting", "deeper than 32"),
    ],
)
def test_what_is_wrong_in_a_rule_is_told_at_its_place(
    rule: dict, code: str, message: str
) -> None:
    if not code:
        # Whether it is an expression at all, the engine tells.
        assert policy_of(rule)
        return
    with pytest.raises(SpecError, match=message) as refusal:
        policy_of(rule)
    (problem,) = refusal.value.problems
    assert problem.code == code
    assert present(problem.place).line == 1
    assert present(problem.place).column > 1
    assert problem.next_step


@pytest.mark.parametrize(
    ("waiver", "message"),
    [
        ({"until": "2026-02-30"}, "there is no 2026-02-30"),
        ({"until": "soon"}, "cannot be 'soon'"),
        ({"rule": "other"}, "no rule of the file is named other"),
        ({"owner": ""}, "has no value|cannot be ''"),
    ],
)
def test_a_waiver_has_a_rule_an_owner_and_a_day(
    waiver: dict, message: str
) -> None:
    whole = {
        "rule": "r0",
        "owner": "ann",
        "reason": "a test",
        "until": "2026-12-31",
    }
    assert policy_of({"when": "true"}, waivers=(whole,))
    for key in whole:
        with pytest.raises(SpecError, match=f"{key} is missing"):
            policy_of(
                {"when": "true"},
                waivers=({k: v for k, v in whole.items() if k != key},),
            )
    with pytest.raises(SpecError, match=message):
        policy_of({"when": "true"}, waivers=({**whole, **waiver},))


def test_a_name_is_given_once() -> None:
    with pytest.raises(SpecError, match="there twice, first in line 1"):
        policy_of({"id": "a", "when": "true"}, {"id": "a", "when": "false"})


def test_the_schema_takes_what_the_reader_takes() -> None:
    schema = file_schema("policy")
    jsonschema.Draft202012Validator.check_schema(schema)
    stored = GUARDRAILS.with_name("policy.schema.json").read_text()
    assert json.loads(stored) == schema
    example = yaml.safe_load(GUARDRAILS.read_text())
    jsonschema.validate(example, schema)
    assert read_policy(GUARDRAILS.read_bytes(), "policy.yaml").rules
    wrong_files: list[dict] = [
        {"rules": [{"id": "a", "message": "b"}]},
        {"rules": [{"id": "a", "message": "b", "when": "true", "x": 1}]},
        {"waivers": []},
    ]
    for wrong in wrong_files:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
        with pytest.raises(SpecError):
            read_policy(json.dumps(wrong).encode(), "policy.yaml")


def test_an_example_says_what_to_do_and_where() -> None:
    """Ready rules are of every sort that organizations ask for, each once."""
    rules = read_policy(GUARDRAILS.read_bytes(), "policy.yaml").rules
    assert len(rules) >= 10
    for rule in rules:
        assert not any(e.names.faults for e in rule.expressions), rule.id
        assert rule.help or rule.severity == "warn", rule.id


def test_the_ready_rules_are_in_the_docs() -> None:
    page = (ROOT / "docs" / "policy.md").read_text()
    for rule in read_policy(GUARDRAILS.read_bytes(), "policy.yaml").rules:
        assert f"`{rule.id}`" in page
