"""What is read from a recorded trace, against the standard library's own statistics."""

from __future__ import annotations

import csv
import io
import itertools
import random
import statistics
from array import array
from collections import Counter
from decimal import Decimal

import pytest

from planner.errors import Place, SpecError
from planner.perf.serving.trace import Trace
from planner.solve.serving.traffic_trace import observed_traffic, read_trace
from planner.spec.model import Traffic

Row = tuple[float, float, float]
HEADER = "timestamp,input_tokens,output_tokens"


def drawn_rows(seed: int, rows_per_s: float, decimals: int) -> list[Row]:
    """Draw 3,000 rows in any order; few decimals make many of them simultaneous."""
    draw = random.Random(seed)
    arrival_s = itertools.accumulate(
        draw.expovariate(rows_per_s) for _ in range(3000)
    )
    rows = [
        (
            round(x, decimals),
            draw.randint(1, 900) / 2,
            float(draw.randint(0, 9)),
        )
        for x in arrival_s
    ]
    draw.shuffle(rows)
    return rows


def read(lines: list[str], end: str = "\n") -> Trace:
    return read_trace("t.csv", lambda _: end.join(lines).encode())


def written(rows: list[Row]) -> list[str]:
    return [HEADER, *(",".join(map(str, row)) for row in rows)]


@pytest.mark.parametrize("decimals", [0, 1, 3])
@pytest.mark.parametrize("in_order", [False, True])
def test_requests_are_sorted_as_their_rows(
    decimals: int, *, in_order: bool
) -> None:
    rows = drawn_rows(decimals, 5.0, decimals)
    if in_order:
        # By time alone: those of one moment stay as they were drawn.
        rows.sort(key=lambda row: row[0])
    assert list(read(written(rows))) == sorted(rows)


def test_columns_may_come_in_any_order_among_others() -> None:
    rows = drawn_rows(4, 5.0, 3)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("output_tokens", "model", "timestamp", "input_tokens"))
    for arrival_s, prompt_tokens, answer_tokens in rows:
        writer.writerow(
            (answer_tokens, 'large, "quoted"', arrival_s, prompt_tokens)
        )
    lines = text.getvalue().split("\r\n")
    expected = list(read(written(rows)))
    assert list(read(lines)) == expected
    # Blank lines and the line ends of every system mean nothing.
    assert list(read([*lines[:5], "", *lines[5:]], "\r\n")) == expected
    assert list(read(lines, "\r")) == expected


@pytest.mark.parametrize("rows_per_s", [0.02, 5.0, 300.0])
def test_traffic_is_what_the_rows_are(rows_per_s: float) -> None:
    rows = sorted(drawn_rows(7, rows_per_s, 3))
    times, prompts, answers = (
        list(column) for column in zip(*rows, strict=True)
    )
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    found = observed_traffic(
        Traffic(place=Place("spec.yaml")),
        Trace(*(array("d", x) for x in (times, prompts, answers))),
    )
    burstiness = statistics.pstdev(gaps) / statistics.fmean(gaps)
    assert found.burstiness == Decimal(str(round(burstiness, 3)))
    busiest = max(Counter(int((x - times[0]) // 60) for x in times).values())
    assert found.peak_rps == Decimal(busiest) / 60
    for lengths, tokens in (
        (found.input_tokens, prompts),
        (found.output_tokens, answers),
    ):
        assert lengths is not None
        assert lengths.mean == round(statistics.fmean(tokens))
        assert lengths.p95 == round(statistics.quantiles(tokens, n=20)[-1])


def test_requests_of_one_moment_have_no_gaps_to_vary() -> None:
    assert (
        observed_traffic(
            Traffic(place=Place("spec.yaml")),
            read([HEADER, *["5,10,10"] * 120]),
        ).burstiness
        == 0
    )


@pytest.mark.parametrize(
    "cell", ["x", "", "nan", "inf", "-1", "1e999", "9" * 200_000]
)
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_wrong_row_is_refused_with_its_line(cell: str, column: int) -> None:
    cells = ["1", "2", "3"]
    cells[column] = cell
    lines = [HEADER, *["1,2,3"] * 150, "", ",".join(cells), "1,2,3"]
    with pytest.raises(SpecError, match="numbers of 0 or more") as refused:
        read(lines)
    assert [str(x.place) for x in refused.value.problems] == ["t.csv:153:1"]


@pytest.mark.parametrize("cell", [".5", "+0.5", " 0.5 ", "5e-1", "0_0.5"])
def test_numbers_may_be_written_as_in_python(cell: str) -> None:
    plain = read([HEADER, *["0.5,2,3"] * 700])
    mixed = read([HEADER, *["0.5,2,3"] * 350, *[f"{cell},2,3"] * 350])
    assert list(mixed) == list(plain)


def test_short_rows_and_missing_columns_are_refused() -> None:
    for lines in ([HEADER, "1,2"], ["timestamp,input_tokens", "1,2"]):
        with pytest.raises(SpecError, match="numbers of 0 or more"):
            read(lines)
    with pytest.raises(SpecError, match="99 requests"):
        read([HEADER, *["1,2,3"] * 99])
