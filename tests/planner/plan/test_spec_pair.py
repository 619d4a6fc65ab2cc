"""Which spec is which: by path, then content, then kind and name, and never by guess."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.plan.spec_pair import SpecIdentity, SpecPair, pair_specs

IDENTITIES = st.builds(
    SpecIdentity,
    content=st.sampled_from("abcd"),
    kind=st.sampled_from(["Inference", "Training", None]),
    name=st.sampled_from(["x", "y", None]),
)
SIDES = st.dictionaries(st.sampled_from("123456"), IDENTITIES)


def spec(content: str, name: str, kind: str = "Batch") -> SpecIdentity:
    return SpecIdentity(content=content, kind=kind, name=name)


def test_paths_come_first_then_content_then_names() -> None:
    before = {
        "a": spec("1", "one"),
        "b": spec("2", "two"),
        "c": spec("3", "three"),
        "gone": spec("4", "four"),
    }
    after = {
        "a": spec("9", "other"),
        "moved": spec("2", "two"),
        "renamed": spec("8", "three"),
        "new": spec("7", "seven"),
    }
    assert pair_specs(before, after) == [
        SpecPair("a", "a"),
        SpecPair("gone", None),
        SpecPair("b", "moved"),
        SpecPair(None, "new"),
        SpecPair("c", "renamed"),
    ]


def test_what_several_have_in_common_pairs_none_of_them() -> None:
    before = {"a": spec("1", "x"), "b": spec("1", "x")}
    after = {"c": spec("1", "x")}
    assert {pair.before for pair in pair_specs(before, after)} == {
        "a",
        "b",
        None,
    }


@given(SIDES, SIDES)
def test_every_spec_is_in_one_pair(before: dict, after: dict) -> None:
    pairs = pair_specs(before, after)
    old = [pair.before for pair in pairs if pair.before is not None]
    new = [pair.after for pair in pairs if pair.after is not None]
    assert sorted(old) == sorted(before)
    assert sorted(new) == sorted(after)
    for pair in pairs:
        if pair.before in after:
            assert pair.before == pair.after
    # Swapped sides have swapped pairs.
    assert {(p.after, p.before) for p in pair_specs(after, before)} == {
        (p.before, p.after) for p in pairs
    }
