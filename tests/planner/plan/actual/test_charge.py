"""Exports as they may come: damaged, hostile, of another currency; nothing is guessed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import MissingError, TonnageError, UsageError
from planner.plan.actual.charge import read_charges
from tests.planner.plan.actual.conftest import (
    COLUMNS,
    TAGS,
    charges_of,
    export,
    export_row,
    focus_bytes,
)


def problem_of(file_bytes: bytes, kind: type[TonnageError] = UsageError):
    with pytest.raises(kind) as caught:
        read_charges({"f.csv": file_bytes}, TAGS)
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("EffectiveCost", "NaN", "not finite"),
        ("EffectiveCost", "-Infinity", "not finite"),
        ("EffectiveCost", "", "not a number"),
        ("EffectiveCost", "1,5", "not a number"),
        ("EffectiveCost", "1e999999", "not below"),
        ("ConsumedQuantity", "many", "not a number"),
        ("BillingCurrency", "EUR", "is not USD"),
        ("BillingCurrency", "", "is not USD"),
        ("ChargePeriodStart", "yesterday", "not a time"),
        ("ChargePeriodStart", "2026-02-30T00:00:00Z", "not a time"),
        ("ChargePeriodStart", "2026-10-01T00:00:00+02:00", "not a time"),
        ("ChargePeriodStart", "0001-01-01T00:00:00Z", "not a time"),
        ("ChargePeriodEnd", "2026-10-01T00:00:00Z", "not after the start"),
        ("Tags", "{not json", "not JSON"),
        ("Tags", "[1]", "without key and value"),
        ("Tags", "[" * 100_000, "not JSON"),
    ],
)
def test_a_damaged_cell_is_told_with_its_place(
    column: str, cell: str, reason: str
) -> None:
    lines = focus_bytes([export_row(), export_row(**{column: cell})])
    problem = problem_of(lines)
    place = problem.place
    assert place is not None
    assert (problem.code, place.line) == ("export-cell", 3)
    assert problem.message.startswith(f"{column}: ")
    assert reason in problem.message
    assert problem.next_step
    # The column is that of the first letter of the cell.
    row = lines.decode().split("\n")[2]
    start = row[place.column - 1 :]
    assert start.startswith((cell[:20], f'"{cell[:5]}'.replace("{n", "{n")))


@pytest.mark.parametrize("field", [name for name in COLUMNS if name != "x"])
def test_a_missing_column_is_named(field: str) -> None:
    optional = {
        "BilledCost",
        "EffectiveCost",
        "ChargeDescription",
        "ResourceId",
        "CommitmentDiscountStatus",
    }
    file_bytes = focus_bytes([export_row()]).replace(
        field.encode(), b"elsewhere", 1
    )
    if field in optional:
        assert len(read_charges({"f.csv": file_bytes}, TAGS)) == 1
        return
    problem = problem_of(file_bytes)
    assert problem.code == "export-columns"
    assert field in problem.cause


@pytest.mark.parametrize(
    ("file_bytes", "code"),
    [
        (b"", "export-columns"),
        (b"\x1f\x8b\x08\x00compressed", "export-row"),
        (b"PAR1\xff\xfe", "export-row"),
        (b"a,a\n1,2\n", "export-row"),
        (b'{"cost": NaN}\n', "export-row"),
        (b'{"cost": 1\n', "export-row"),
        (b'{"cost": 1}\n[1]\n', "export-row"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "export-row"),
        (b'{"cost": 1}\n', "export-columns"),
    ],
)
def test_what_is_no_export_is_refused(file_bytes: bytes, code: str) -> None:
    assert problem_of(file_bytes).code == code


def test_a_file_that_is_cut_off_is_refused() -> None:
    file_bytes = focus_bytes([export_row(), export_row()])
    problem = problem_of(file_bytes[:-30])
    assert (problem.code, str(problem.place)) == ("export-row", "f.csv:3:1")
    short = b"\n".join([*file_bytes.split(b"\n")[:2], b"1,2,3"])
    assert "3 cells, the header has 13" in problem_of(short).message


def test_a_row_of_json_without_its_cost_is_refused() -> None:
    (text,) = export("bigquery.jsonl").values()
    damaged = text.replace(b'"cost": 1.2, ', b"", 1)
    problem = problem_of(damaged)
    assert (problem.message, str(problem.place)) == ("has no cost", "f.csv:2:1")


def test_a_json_cell_is_told_with_its_place() -> None:
    (text,) = export("bigquery.jsonl").values()
    damaged = text.replace(b'"cost": 1.2, ', b'"cost": "x", ', 1)
    problem = problem_of(damaged)
    place = problem.place
    assert place is not None
    line = damaged.decode().split("\n")[place.line - 1]
    assert line[place.column - 1 :].startswith('"cost": "x"')


def test_a_credit_without_an_amount_is_refused() -> None:
    (text,) = export("bigquery.jsonl").values()
    for wrong in (b'"amount": "x"', b'"share": -0.05', b'"amount": 1e40'):
        damaged = text.replace(b'"amount": -0.05', wrong)
        assert "credit" in problem_of(damaged).message


def test_a_file_that_is_given_twice_is_refused() -> None:
    file_bytes = focus_bytes([export_row()])
    with pytest.raises(UsageError) as caught:
        read_charges({"a.csv": file_bytes, "b.csv": file_bytes}, TAGS)
    assert caught.value.problems[0].code == "export-twice"


def test_a_stack_without_rows_is_missing() -> None:
    other = focus_bytes([export_row(Tags='{"tonnage-stack": "chat-2"}')])
    assert problem_of(other, MissingError).code == "export-stack"


def test_many_files_are_one() -> None:
    rows = [export_row(EffectiveCost=str(usd)) for usd in (1, 2, 3)]
    parts = {
        f"{number}.csv": focus_bytes([row]) for number, row in enumerate(rows)
    }
    assert read_charges(parts, TAGS) == charges_of(rows)


def test_a_byte_order_mark_and_windows_lines_are_read() -> None:
    plain = focus_bytes([export_row()])
    windows = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n")
    assert read_charges({"w.csv": windows}, TAGS) == charges_of([export_row()])


def test_the_currency_of_others_is_theirs() -> None:
    rows = [
        export_row(),
        export_row(BillingCurrency="EUR", Tags='{"tonnage-stack": "other"}'),
    ]
    assert len(charges_of(rows)) == 1


@settings(deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise_is_refused_and_never_breaks(noise: bytes) -> None:
    for file_bytes in (noise, focus_bytes([export_row()]) + noise):
        try:
            read_charges({"noise": file_bytes}, TAGS)
        except TonnageError as error:
            assert error.exit_code in (2, 6)
