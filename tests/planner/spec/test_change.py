"""What a spec says differently: read back against an independent reader of YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.spec.change import key_changes
from tests.conftest import BLUEPRINTS

KEYS = st.text("abcxyz", min_size=1, max_size=3)
SCALARS = st.one_of(
    st.integers(0, 99), st.text("abc ", max_size=4), st.booleans()
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.dictionaries(KEYS, inner, max_size=3), st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)
SPECS = st.dictionaries(KEYS, DOCUMENTS, min_size=1, max_size=4)


def without_anchors(document: Any) -> bytes:
    text = yaml.dump(document, sort_keys=False, Dumper=yaml.SafeDumper)
    return text.encode()


@given(SPECS)
def test_order_and_layout_make_no_difference(document: dict) -> None:
    turned = dict(reversed(document.items()))
    flow = yaml.safe_dump(document, default_flow_style=True, width=4000)
    assert key_changes(without_anchors(document), flow.encode()) == ()
    assert key_changes(without_anchors(document), without_anchors(turned)) == ()


@given(SPECS, SPECS)
def test_the_other_way_round_is_the_opposite(old: dict, new: dict) -> None:
    there = key_changes(without_anchors(old), without_anchors(new))
    back = key_changes(without_anchors(new), without_anchors(old))
    assert {(c.key, c.before, c.after) for c in there} == {
        (c.key, c.after, c.before) for c in back
    }
    assert {(c.key, c.line_before, c.line) for c in there} == {
        (c.key, c.line, c.line_before) for c in back
    }


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
def test_each_line_says_the_key_that_it_is_given_for(path) -> None:
    content = path.read_bytes()
    lines = content.decode().splitlines()
    for change in key_changes(b"other: 1\n", content):
        if change.line is None:
            assert change.key == "other"
            continue
        name = change.key.rsplit(".", 1)[-1].split("[")[0]
        assert name in lines[change.line - 1]


def test_blocks_in_lists_and_lists_of_values() -> None:
    old = b"a: [1, 2]\nb:\n  - {x: 1}\n  - {x: 2}\n# comment\nc: '5'\n"
    new = b"c: 5\na: [1, 2, 3]\nb:\n  - {x: 1}\n  - {x: 7, y: 0}\n"
    told = [(c.key, c.before, c.after, c.line) for c in key_changes(old, new)]
    assert told == [
        ("a", "[1, 2]", "[1, 2, 3]", 2),
        ("b[1].x", "2", "7", 5),
        ("b[1].y", None, "0", 5),
    ]
