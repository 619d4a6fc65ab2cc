"""What of a spec may be asked to be otherwise: quantities with a range, and ways to buy. Pure.

A question is answered by planning the spec anew, with its overrides as `plan --set` takes them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import Problem, UsageError
from planner.market.term import TERMS
from planner.spec.model import Batch, Inference, Training, Workspace
from planner.spec.override import KeyOverride
from planner.spec.unit import NUMBER_PATTERN, SECONDS_PER_UNIT
from planner.workload.registry import workload_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planner.spec.model import Spec

# Of times what the spec says, and in which steps.
LEAST_FACTOR: Final = Decimal("0.25")
MOST_FACTOR: Final = Decimal(4)
FACTOR_STEP: Final = Decimal("0.25")
# A limit may be half as long, or twice; a step is a twentieth of what the spec says.
LIMIT_FACTORS: Final = (Decimal("0.5"), Decimal(2))
LIMIT_STEPS: Final = 20
# What --confidence takes.
CONFIDENCES: Final = (50, 99)
MOST_PEOPLE: Final = 10
# From so many seconds on, people read a limit in a unit.
READ_UNITS: Final = (("h", Decimal(3600)), ("s", Decimal(10)))
# Digits after the point of what a slider shows.
MOST_DIGITS: Final = 3
RATE_KEYS: Final = (
    "peak_rps",
    "requests_per_day",
    "total_requests",
    "concurrency",
)
CONFIDENCE: Final = "confidence"
SPOT: Final = "spot"
COMMIT: Final = "commit"
SPOT_WORDS: Final = ("auto", "never", "only")
COMMIT_WORDS: Final = ("none", *(term.word for term in TERMS))


class Slider(Struct, frozen=True, kw_only=True):
    """A quantity and what it may be.

    name     what a question calls it: its key, or a word of its own
    title    what it is, for people
    unit     after each of its numbers: x is times what the spec says
    written  what the spec says
    key      key of the spec; empty for a flag of `plan`
    scale    what the spec says of a number 1, where that is a factor
    """

    name: str
    title: str
    unit: str
    written: Decimal
    low: Decimal
    high: Decimal
    step: Decimal
    key: str = ""
    scale: Decimal | None = None
    is_whole: bool = False

    def override(self, amount: Decimal) -> KeyOverride:
        """Return the key with an amount, as the spec would write it."""
        if self.scale is None:
            return KeyOverride(self.key, f"{plain(amount)}{self.unit}")
        scaled = amount * self.scale
        if self.is_whole:
            scaled = max(Decimal(1), scaled.to_integral_value())
        return KeyOverride(self.key, plain(scaled))


class Question(Struct, frozen=True, kw_only=True):
    """Where the sliders of a spec stand, and how may be bought.

    amounts  of each slider by its name
    spot     word of buy.spot
    commit   words of buy.commit
    """

    sliders: tuple[Slider, ...]
    amounts: dict[str, Decimal]
    spot: str
    commit: tuple[str, ...]
    written_spot: str
    written_commit: tuple[str, ...]

    @property
    def confidence(self) -> int:
        """With which limits are met, percent."""
        return int(self.amounts[CONFIDENCE])

    @property
    def overrides(self) -> tuple[KeyOverride, ...]:
        """What is asked to be otherwise than the spec says it."""
        changed = [
            slider.override(self.amounts[slider.name])
            for slider in self.sliders
            if slider.key and self.amounts[slider.name] != slider.written
        ]
        if self.spot != self.written_spot:
            changed.append(KeyOverride("buy.spot", self.spot))
        if self.commit != self.written_commit:
            words = ", ".join(self.commit)
            changed.append(KeyOverride("buy.commit", f"[{words}]"))
        return tuple(changed)


def sliders_of(spec: Spec, confidence: int) -> tuple[Slider, ...]:
    """Return what may be moved of a spec; `confidence` is that of its plan, percent."""
    return (
        *_load_sliders(spec),
        *_limit_sliders(spec),
        Slider(
            name=CONFIDENCE,
            title="confidence in the predictions",
            unit="%",
            written=Decimal(confidence),
            low=Decimal(CONFIDENCES[0]),
            high=Decimal(CONFIDENCES[1]),
            step=Decimal(1),
        ),
    )


def read_question(
    spec: Spec, confidence: int, asked: Mapping[str, Sequence[str]]
) -> Question:
    """Return the question of a form; what it leaves out is as the spec says.

    Raises UsageError for what no slider can say.
    """
    sliders = sliders_of(spec, confidence)
    names = {slider.name for slider in sliders} | {SPOT, COMMIT}
    for name in asked:
        if name not in names:
            raise _unknown(f"nothing of it is named '{name[:40]}'")
    commit = tuple(asked.get(COMMIT, spec.buy.commit))
    spot = asked.get(SPOT, (spec.buy.spot,))[-1]
    if spot not in SPOT_WORDS:
        raise _unknown(f"{SPOT} is none of {', '.join(SPOT_WORDS)}")
    if not set(commit) <= set(COMMIT_WORDS):
        raise _unknown(f"{COMMIT} is none of {', '.join(COMMIT_WORDS)}")
    return Question(
        sliders=sliders,
        amounts={slider.name: _amount(slider, asked) for slider in sliders},
        spot=spot,
        # In one order, and each once: equal questions are one.
        commit=tuple(word for word in COMMIT_WORDS if word in commit),
        written_spot=spec.buy.spot,
        written_commit=tuple(
            word for word in COMMIT_WORDS if word in spec.buy.commit
        ),
    )


def plain(amount: Decimal) -> str:
    """Return a number without an exponent and without zeros at its end."""
    return format(amount.normalize(), "f")


def _amount(slider: Slider, asked: Mapping[str, Sequence[str]]) -> Decimal:
    if slider.name not in asked:
        return slider.written
    text = asked[slider.name][-1]
    amount = (
        Decimal(text)
        if re.fullmatch(NUMBER_PATTERN, text, re.ASCII)
        else Decimal(-1)
    )
    # What the spec says may lie outside of the range.
    if not slider.low <= amount <= slider.high and amount != slider.written:
        raise _unknown(
            f"{slider.name} is no number from {plain(slider.low)} to {plain(slider.high)}"
        )
    if slider.name == CONFIDENCE and amount != int(amount):
        raise _unknown(f"{slider.name} is a whole number of percent")
    return amount


def _unknown(message: str) -> UsageError:
    return UsageError(
        Problem(
            code="question",
            message=message,
            next_step="ask with the sliders of the page",
        )
    )


def _load_sliders(spec: Spec) -> Iterator[Slider]:
    """Yield what says how much is to be done; nothing of a trace, which says it itself."""
    if isinstance(spec, Workspace):
        people = Decimal(spec.users)
        yield Slider(
            name="users",
            title="people",
            unit="",
            written=people,
            low=Decimal(1),
            high=max(Decimal(MOST_PEOPLE), people * MOST_FACTOR),
            step=Decimal(1),
            key="users",
        )
        return
    block, holder, keys = (
        ("data", spec.data, ("tokens", "samples"))
        if isinstance(spec, Training)
        else ("traffic", spec.traffic, RATE_KEYS)
    )
    for key in keys:
        amount = getattr(holder, key)
        if not amount:
            continue
        yield Slider(
            name=workload_of(spec).scaled_quantity,
            title=f"{workload_of(spec).scaled_quantity}, times {key} {plain(Decimal(amount))}",
            unit="x",
            written=Decimal(1),
            low=LEAST_FACTOR,
            high=MOST_FACTOR,
            step=FACTOR_STEP,
            key=f"{block}.{key}",
            scale=Decimal(amount),
            is_whole=isinstance(amount, int),
        )


def _limit_sliders(spec: Spec) -> Iterator[Slider]:
    """Yield each limit of time."""
    if isinstance(spec, Inference) and spec.sla is not None:
        for limit in spec.sla.limits:
            title = f"{limit.metric.upper()} p{limit.percentile}"
            yield _time_slider(f"sla.{limit.key}", title, limit.seconds)
    elif isinstance(spec, Batch) and spec.deadline is not None:
        yield _time_slider("deadline", "deadline", spec.deadline)
    elif isinstance(spec, Training) and spec.train.deadline is not None:
        yield _time_slider("train.deadline", "deadline", spec.train.deadline)


def _time_slider(key: str, title: str, seconds: Decimal) -> Slider:
    unit = next(
        (
            unit
            for unit, least_s in READ_UNITS
            if seconds >= least_s
            and _is_short(seconds / SECONDS_PER_UNIT[unit])
        ),
        "ms",
    )
    written = seconds / SECONDS_PER_UNIT[unit]
    low, high = (written * factor for factor in LIMIT_FACTORS)
    return Slider(
        name=key,
        title=f"{title} at most",
        unit=unit,
        written=written,
        low=low,
        high=high,
        step=written / LIMIT_STEPS,
        key=key,
    )


def _is_short(amount: Decimal) -> bool:
    """Whether a number can be written as it is; a third of an hour cannot."""
    return amount == round(amount, MOST_DIGITS)
