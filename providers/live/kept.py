"""What clouds have answered a short while ago, kept for the next plan of the same account."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from planner.market.live import (
    PlaceFacts,  # noqa: TC001 - msgspec reads the annotations
)
from providers.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from providers.live.place import LivePlace

# Quotas and prices of spot change by the hour; what runs, by the minute.
MOST_AGE_S: Final = 300.0
CHARACTERS: Final = 16


class _Kept(Struct, frozen=True):
    """The answers about a region, for the machine types that were asked about."""

    machine_types: tuple[str, ...]
    facts: PlaceFacts


class KeptAnswers(Struct, frozen=True):
    """A folder with a file for each account and region, which only its owner may read."""

    folder: Path

    def read(self, caller: str, place: LivePlace) -> PlaceFacts | None:
        """Return what was answered within five minutes, if all of it was; None otherwise."""
        try:
            kept = msgspec.json.decode(
                self._path(caller, place).read_bytes(), type=_Kept
            )
        except (OSError, msgspec.MsgspecError):
            return None
        if kept.machine_types != place.machine_types:
            return None
        ages_s = [
            _age_s(answer.as_of) for answer in kept.facts.answers.values()
        ]
        # A file of the future is one of a clock that was wrong.
        is_fresh = all(0 <= age_s <= MOST_AGE_S for age_s in ages_s)
        return kept.facts if is_fresh else None

    def write(self, caller: str, place: LivePlace, facts: PlaceFacts) -> None:
        """Keep what was answered. What is unknown may be known the next time."""
        if any(answer.state == "unknown" for answer in facts.answers.values()):
            return
        write_atomically(
            self._path(caller, place),
            msgspec.json.encode(_Kept(place.machine_types, facts)),
        )

    def _path(self, caller: str, place: LivePlace) -> Path:
        account = hashlib.sha256(caller.encode()).hexdigest()[:CHARACTERS]
        return self.folder / f"{place.cloud}-{place.region}-{account}.json"


def _age_s(as_of: str) -> float:
    asked = datetime.fromisoformat(as_of)
    return (datetime.now(UTC) - asked).total_seconds()
