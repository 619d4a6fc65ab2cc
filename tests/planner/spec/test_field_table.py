"""The tables of fields: every row is used, every default is a value, every bound is in order."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest

from planner.errors import CatalogError
from planner.facts import table
from planner.plan.own_file import OWN_FILES
from planner.spec import field_table
from planner.spec.field import Block, Field, Quantity
from planner.spec.field_table import block_fields
from planner.spec.kinds import SPEC_KINDS
from tests.conftest import ROOT

TABLES = sorted((ROOT / "planner" / "spec" / "data").glob("*.csv"))
ROWS = [
    (path.stem, row)
    for path in TABLES
    for row in csv.DictReader(path.read_text().splitlines())
]


def fields_below(block: Block) -> Iterator[tuple[str, Field]]:
    """Every field of a kind, with the meaning by which its row is known."""
    for spec_field in block.fields:
        yield spec_field.name, spec_field
        inner = getattr(spec_field.field_type, "block", spec_field.field_type)
        inner = getattr(inner, "element_type", inner)
        if isinstance(inner, Block):
            yield from fields_below(inner)


FIELDS = [
    pair
    for block in (*SPEC_KINDS.values(), *OWN_FILES.values())
    for pair in fields_below(block)
]


def test_every_row_is_a_field_of_some_file() -> None:
    known = {(name, spec_field.doc) for name, spec_field in FIELDS}
    rows = {(row["key"], row["meaning"]) for _, row in ROWS}
    assert rows == known


@pytest.mark.parametrize(
    ("name", "spec_field"),
    [(n, f) for n, f in FIELDS if isinstance(f.field_type, Quantity)],
)
def test_examples_and_defaults_lie_within_their_bounds(
    name: str, spec_field: Field
) -> None:
    quantity = spec_field.field_type
    assert isinstance(quantity, Quantity), name
    shown = [quantity.example, spec_field.default_text]
    for text in filter(None, shown):
        amount = quantity.convert(text)
        assert not quantity.minimum or amount >= quantity.convert(
            quantity.minimum
        )
        assert not quantity.maximum or amount <= quantity.convert(
            quantity.maximum
        )
    assert quantity.example


def test_a_required_field_has_no_default() -> None:
    assert not [
        name for name, f in FIELDS if f.required and f.default is not None
    ]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"type": "lenght"}, "nothing is named 'lenght'"),
        ({"type": "count", "default": "many"}, "'many' cannot be read"),
        ({"type": "one of: a | b", "default": "c"}, "'c' is not known"),
        ({"status": "soon"}, "status"),
    ],
)
def test_a_row_that_is_wrong_is_refused_with_its_place(
    cells: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        **dict.fromkeys(ROWS[0][1], ""),
        "block": "b",
        "key": "k",
        "type": "count",
        "required": "no",
        "status": "used",
        "meaning": "m",
        **cells,
    }
    text = f"{','.join(row)}\n{','.join(row.values())}\n"
    monkeypatch.setattr(table, "data_text", lambda *_: text)
    field_table._table_rows.cache_clear()
    with pytest.raises(CatalogError) as caught:
        block_fields("wrong", "b")
    field_table._table_rows.cache_clear()
    assert says in str(caught.value.problems[0].message)
    assert str(caught.value.problems[0].place).startswith("wrong.csv:2")
