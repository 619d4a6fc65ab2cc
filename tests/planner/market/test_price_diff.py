"""A difference has all that two tables do not share, once, the largest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planner.market.price_diff import price_differences
from planner.market.price_row import PriceRow
from tests.planner.market.price_rows import price_row

TABLES = st.dictionaries(
    st.sampled_from("abcdef"), st.integers(1, 9).map(str), max_size=6
)


def rows_of(table: dict[str, str]) -> list[PriceRow]:
    return [price_row(usd, instance_type=name) for name, usd in table.items()]


@given(TABLES, TABLES)
def test_the_old_table_with_the_difference_is_the_new_one(
    old: dict[str, str], new: dict[str, str]
) -> None:
    differences = price_differences(rows_of(old), rows_of(new))
    patched = dict(old)
    for difference in differences:
        name = difference.key[2]
        del_usd, add_usd = difference.old_usd_hour, difference.usd_hour
        assert (None if del_usd is None else str(del_usd)) == old.get(name)
        patched.pop(name, None)
        if add_usd is not None:
            patched[name] = str(add_usd)
    assert patched == new
    backward = price_differences(rows_of(new), rows_of(old))
    assert len(backward) == len(differences)


def test_a_half_is_as_much_as_the_double() -> None:
    old = {"a": "10", "b": "10", "c": "10", "d": "5", "f": "7"}
    new = {"a": "11", "b": "4", "c": "19", "e": "1", "f": "7.0"}
    found = price_differences(rows_of(old), rows_of(new))
    assert [(one.key[2], one.kind) for one in found] == [
        ("b", "changed"),
        ("c", "changed"),
        ("a", "changed"),
        ("d", "vanished"),
        ("e", "added"),
    ]
    assert [one.percent for one in found] == [-60, 90, 10, None, None]
