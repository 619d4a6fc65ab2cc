"""What clouds answer about what an account has committed to: it is paid for, used or not.

`providers.<cloud>.commitment` is a `CommitmentModule`.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import cache, partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeVar

from planner.facts import table
from planner.facts.cloud import clouds
from planner.market.term import TERM_PURCHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from decimal import Decimal

    from planner.market.live import CommitmentFact


FoundT = TypeVar("FoundT")


class CommitmentModule(Protocol):
    """Every function raises the errors of `providers.live.access`.

    A commitment that pays for none of the machine types is left out. So is one whose use no
    service tells: nobody knows it, and it is never zero.
    """

    def commitment_regions(self, regions: Sequence[str]) -> list[str]:
        """Return those of some regions that have commitments which pay there alone."""

    def commitments(
        self, region: str, machine_types: Sequence[str]
    ) -> list[CommitmentFact]:
        """Return what the account has bought that pays for machine types in a region."""

    def commitment_use(
        self, region: str, machine_types: Sequence[str]
    ) -> dict[str, Decimal]:
        """Return what is used of each commitment in an hour, by its id and in its unit."""


def filled_in_order(
    used: Decimal, amounts: Mapping[str, Decimal]
) -> dict[str, Decimal]:
    """Return what is used of each commitment of a kind, where only what runs in all is known.

    Each is full before the next one is used. The last has what is left, also above its amount: so
    the use that a stack makes of it can be taken off.
    """
    shares: dict[str, Decimal] = {}
    *first, last = amounts
    for name in first:
        shares[name] = min(used, amounts[name])
        used -= shares[name]
    return {**shares, last: used}


def asked_at_once(
    find: Callable[[str], FoundT], names: Sequence[str], at_once: int
) -> dict[str, FoundT]:
    """Return what is found for each name, some at a time. Raises the first error.

    The threads are daemons: a region that never answers keeps no command from ending.
    """
    waiting: SimpleQueue[str] = SimpleQueue()
    for name in names:
        waiting.put(name)
    arrived: SimpleQueue[tuple[str, Future[FoundT]]] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except Empty:
                return
            arrived.put((name, _done(partial(find, name))))

    for _ in range(min(at_once, len(names))):
        Thread(target=work, daemon=True).start()
    return {
        name: future.result() for name, future in (arrived.get() for _ in names)
    }


def _done(find: Callable[[], FoundT]) -> Future[FoundT]:
    """Return what is found, or the error, as something that is over."""
    future: Future[FoundT] = Future()
    try:
        future.set_result(find())
    except (OSError, LookupError, ValueError, TypeError) as error:
        future.set_exception(error)
    return future


def term_of(cloud: str, word: str) -> str:
    """Return the way to buy for a term, as a cloud writes it; empty where none is as long."""
    return _terms().get((cloud, word), "")


@cache
def _terms() -> dict[tuple[str, str], str]:
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "word": table.nonempty_text,
        "purchase": table.one_of(*TERM_PURCHASES),
        **table.SOURCE_COLUMNS,
    }
    return {
        (row["cloud"], row["word"]): row["purchase"]
        for row in table.load_rows("providers", "terms.csv", columns)
    }
