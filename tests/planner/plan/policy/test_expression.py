"""Names in expressions: against the plan itself, and against the engine's own parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.plan.policy.document_shape import document_shapes
from planner.plan.policy.expression import (
    MAX_LOOPS,
    MAX_NESTING,
    ExpressionNames,
    place_of_key,
    read_names,
)


def names_of(text: str) -> ExpressionNames:
    return read_names(text, document_shapes())


def paths_of(part: Any, text: str) -> list[str]:
    """Every path of a document, as an expression writes it."""
    if isinstance(part, dict):
        return [
            text,
            *(
                path
                for key, inner in part.items()
                for path in paths_of(
                    inner,
                    f"{text}.{key}"
                    if key.isidentifier()
                    else f'{text}["{key}"]',
                )
            ),
        ]
    if isinstance(part, list):
        return [
            text,
            *(
                path
                for number, inner in enumerate(part)
                for path in paths_of(inner, f"{text}[{number}]")
            ),
        ]
    return [text]


def test_what_a_plan_has_is_never_missing(documents: dict) -> None:
    paths = [
        path
        for name, part in documents.items()
        for path in paths_of(part, name)
    ]
    assert len(paths) > 1_000
    for path in paths:
        assert names_of(path).faults == (), path


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("plan.cost.totl > 1", "totl", "total"),
        ("plan.solution.pools[0].regin", "regin", "region"),
        ('plan.solution.pools.exists(p, p["regio"] == "x")', "regio", "region"),
        ("has(plan.shutdown.tttl)", "tttl", "ttl"),
        ("plan.solution.predicted[m].hih > 1", "hih", "high"),
        ("graph.resources.filter(r, r.typ == 'x').size() > 1", "typ", "type"),
        ("graph.resources.filter(r, true)[0].nam", "nam", "name"),
        ("false && plan.changes.outages > 1", "outages", "outage_s"),
        (
            "plan.solution.pools.all(p, p.purchases.all(q, q.terms == p.name))",
            "terms",
            "term",
        ),
    ],
)
def test_a_key_that_no_plan_has_is_missing_wherever_it_stands(
    text: str, key: str, hint: str
) -> None:
    """Also in a branch that is not reached."""
    faults = [fault for fault in names_of(text).faults if fault.kind == "key"]
    assert [fault.message for fault in faults] == [f"missing key {key}"]
    assert hint in faults[0].hint
    assert text[faults[0].offset :].strip("\"'").startswith(key)


def test_labels_and_properties_of_resources_are_free() -> None:
    for text in (
        "spec.labels.whatever",
        "plan.spec.normalized.labels.whatever.more",
        "graph.resources.all(r, r.inputs.anything.atAll == 1)",
        "diff.whatever",
    ):
        assert names_of(text).faults == ()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("pln.cost", "no document is named pln", "plan"),
        ("plan.cost.total > limit", "no document is named limit", "use one of"),
        ("siz(plan.cost.lines) > 1", "no function is named siz", "size"),
        ("plan.stack.name.lower() == ''", "no function is named lower", ""),
        # A variable of a loop is none outside of it.
        ("plan.cost.lines.all(x, true) && x.y", "no document is named x", ""),
    ],
)
def test_a_name_that_means_nothing_is_refused(
    text: str, message: str, hint: str
) -> None:
    (fault,) = names_of(text).faults
    assert fault.kind == "name"
    assert message in fault.message
    assert hint in fault.hint


def loops(count: int) -> str:
    return "plan.warnings.all(x, " * count + "true" + ")" * count


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("(" * MAX_NESTING + "true" + ")" * MAX_NESTING, False),
        ("(" * (MAX_NESTING + 1) + "true" + ")" * (MAX_NESTING + 1), True),
        ("(" * 900, True),
        ("[" * 900 + "]" * 900, True),
        (loops(MAX_LOOPS), False),
        (loops(MAX_LOOPS + 1), True),
    ],
)
def test_what_is_nested_too_deep_is_refused(
    text: str, is_refused: bool
) -> None:
    faults = {fault.kind for fault in names_of(text).faults}
    assert faults == ({"nesting"} if is_refused else set())


OPERANDS = st.sampled_from(
    [
        "plan.cost.total",
        "spec.labels.team",
        'graph["region"]',
        "diff.delta.usd",
        "1.5",
        '"plan.x"',
        "'it is spec'",
        "plan.solution.pools.exists(p, p.nodes > 2)",
        "size(graph.resources)",
        "has(spec.endpoint)",
        "{'plan': 1}",
        "[plan.stack.name, true]",
        "// diff\n  true",
    ]
)
EXPRESSIONS = st.recursive(
    OPERANDS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "==", "+", "in"]), inner).map(
            " ".join
        ),
        inner.map(lambda text: f"({text}\n)"),
        st.tuples(inner, inner).map(lambda both: "({} ? {} : 1)".format(*both)),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(EXPRESSIONS)
def test_documents_are_those_that_the_parser_of_the_engine_sees(
    text: str,
) -> None:
    cel = pytest.importorskip("cel")
    variables = set(cel.compile(text).variables())
    names = names_of(text)
    assert names.documents == variables & set(document_shapes())
    assert names.faults == ()


@given(st.text(max_size=60))
def test_any_text_is_read_to_its_end(text: str) -> None:
    names = names_of(text)
    assert all(0 <= fault.offset <= len(text) for fault in names.faults)


def test_paths_of_the_spec_are_known_by_both_of_their_names() -> None:
    text = (
        "spec.buy.spot == 'auto' && plan.spec.normalized.where.regions == [] && spec == {} "
        "&& spec.labels.team.startsWith('x') && spec.notify[0].x"
    )
    assert names_of(text).spec_paths == (
        ("buy", "spot"),
        ("where", "regions"),
        ("labels", "team"),
        ("notify",),
    )


def test_a_key_is_found_in_brackets_too() -> None:
    text = 'plan.cost["total"] > plan.x'
    assert text[place_of_key(text, "total") :].startswith('"total"')
    assert place_of_key(text, "nothing") == 0
