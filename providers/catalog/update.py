"""What an update asks, and the tables that it writes.

What clouds have answered is kept in a file, so that an update that was cut off asks only for the
rest.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import MsgspecError
from msgspec import json as msgspec_json

from planner.market.price_row import price_table
from planner.market.price_update import AnsweredQuestion, live_source
from providers.files import MAX_FILE_BYTES, read_regular, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from planner.market.price_row import PriceRow
    from planner.market.price_update import PriceQuestion

# Prices on spot move; after this time a cloud is asked again.
KEPT_FOR: Final = timedelta(hours=1)
SOURCE_COLUMNS: Final = ("source", "what", "as_of", "url")


# Yields questions with their answers, as the answers arrive.
AskPrices: TypeAlias = (
    "Callable[[Sequence[PriceQuestion]], Iterable[AnsweredQuestion]]"
)


def gather_answers(
    questions: Sequence[PriceQuestion],
    work_path: Path,
    ask: AskPrices,
    now: datetime,
) -> Iterator[AnsweredQuestion]:
    """Yield questions with their answers; those that an earlier run has kept come first.

    `ask` is asked for the rest. Each answer is kept in the file at `work_path` before it is
    yielded.
    """
    kept = _read_kept(work_path)
    open_questions = []
    for question in questions:
        known = next(
            (entry for entry in kept if _answers(entry, question, now)), None
        )
        if known is None:
            open_questions.append(question)
        else:
            yield AnsweredQuestion(question, known.answer)
    for answered in ask(open_questions):
        if answered.answer.value is not None:
            kept = [
                entry
                for entry in kept
                if entry.question.place != answered.question.place
            ]
            kept.append(answered)
            write_atomically(work_path, msgspec_json.encode(kept))
        yield answered


def _answers(
    entry: AnsweredQuestion, question: PriceQuestion, now: datetime
) -> bool:
    """Return whether an answer is one to a question too, and young enough."""
    age = now - datetime.fromisoformat(entry.answer.as_of)
    return (
        timedelta(0) <= age < KEPT_FOR
        and entry.question.place == question.place
        and set(question.machine_types) <= set(entry.question.machine_types)
    )


def _read_kept(work_path: Path) -> list[AnsweredQuestion]:
    """Return what an earlier run has kept; nothing of a file that is missing or damaged."""
    try:
        file_bytes = read_regular(work_path, MAX_FILE_BYTES)
        return msgspec_json.decode(file_bytes, type=list[AnsweredQuestion])
    except (OSError, MsgspecError):
        return []


def updated_tables(
    base_texts: Mapping[str, str],
    rows: Iterable[PriceRow],
    clouds: Iterable[str],
    today: str,
) -> dict[str, str]:
    """Return the files of a catalog with other prices, and with those who answered as sources."""
    return {
        **base_texts,
        "prices.csv": price_table(rows),
        "sources.csv": _with_sources(
            base_texts["sources.csv"], sorted(clouds), today
        ),
    }


def _with_sources(text: str, clouds: Sequence[str], today: str) -> str:
    """Return a table of sources with the answers of clouds, instead of those of an earlier day."""
    live_rows = {
        live_source(cloud): {
            "source": live_source(cloud),
            "what": f"what {cloud} answered to tonnage catalog update",
            "as_of": today,
            "url": "",
        }
        for cloud in clouds
    }
    old_rows = {row["source"]: row for row in csv.DictReader(io.StringIO(text))}
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, SOURCE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**old_rows, **live_rows}.values())
    return buffer.getvalue()
