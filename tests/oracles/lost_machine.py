"""Machines as they are seen from outside, and which of them must go."""

from __future__ import annotations

import random
from typing import NamedTuple

YOUNG_S = 2700
SILENT_S = 1800
QUESTIONS = ("written", "heartbeat", "busy")


class Machine(NamedTuple):
    """A machine. Seconds since something happened; None for what never did.

    `refused` are the questions about it that nobody answers.
    """

    name: str
    age_s: int
    wrote_s: int | None
    heard_s: int | None
    worked_s: int | None
    refused: frozenset[str]

    def is_silent(self) -> bool:
        return (
            self.age_s >= YOUNG_S
            and not happened(self.wrote_s, SILENT_S)
            and not happened(self.heard_s, SILENT_S)
        )

    def is_idle(self, idle_s: int) -> bool:
        """Whether it told for long that it has no work."""
        return (
            0 < idle_s <= self.age_s
            and self.age_s >= YOUNG_S
            and happened(self.heard_s, idle_s)
            and not happened(self.worked_s, idle_s)
        )


def happened(ago_s: int | None, within_s: int) -> bool:
    return ago_s is not None and ago_s < within_s


def drawn(seed: int) -> tuple[list[Machine], int]:
    """Return machines, and the idle limit from outside in seconds, 0 without one."""
    draw = random.Random(seed)
    machines = []
    for number in range(draw.randrange(7)):
        age_s = draw.choice((60, 2640, 2760, 20_000, 90_000))
        heard_s, wrote_s, worked_s = (
            draw.choice((None, *(t for t in times if t <= age_s)))
            for times in (
                (30, 1740, 1860, 9000),
                (30, 1740, 1860, 9000),
                (30, 3000, 7140, 7260, 80_000),
            )
        )
        # Work is told with the heartbeat.
        if heard_s is None:
            worked_s = None
        elif worked_s is not None:
            worked_s = max(worked_s, heard_s)
        machines.append(
            Machine(
                name=f"pool-{number:04}",
                age_s=age_s,
                wrote_s=wrote_s,
                heard_s=heard_s,
                worked_s=worked_s,
                refused=frozenset(
                    question for question in QUESTIONS if draw.random() < 0.1
                ),
            )
        )
    return machines, draw.choice((0, 7200))
