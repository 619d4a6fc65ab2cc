"""The words of a difference: amounts that are partly unknown, causes, and what changed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from planner import figures
from planner.plan.amount import CostAmount, cost_delta
from planner.render import period

if TYPE_CHECKING:
    from planner.plan.amount import Bound, CostDelta
    from planner.plan.diff import BilledEntry
    from planner.plan.diff_document import (
        CatalogEffect,
        DiffDocument,
        Origin,
        PeriodTotal,
        SpecDiff,
        SpecSide,
        SpecState,
    )
    from planner.plan.part import Period
    from planner.plan.threshold import ThresholdVerdict
    from planner.plan.types import Binding
    from planner.spec.change import KeyChange

UNKNOWN: Final = "?"
NOT_THERE: Final = "-"
BOUND_MARKS: Final[dict[Bound, str]] = {
    "exact": "",
    "at_least": ">= ",
    "at_most": "<= ",
    "unknown": "",
}
STATE_MARKS: Final[dict[SpecState, str]] = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "renamed": "~",
    "unchanged": " ",
}
ORIGIN_NAMES: Final[dict[Origin, str]] = {
    "spec": "specs",
    "price": "prices",
    "model": "predictions",
}
# Values of keys may be long; beyond this they are cut.
SHOWN_LETTERS: Final = 60
SHOWN_KEYS: Final = 2


def amount_text(amount: CostAmount | None, *, cents: bool = True) -> str:
    """Return an amount as text: `?` where nothing is known, `>=` where a part is not."""
    if amount is None:
        return NOT_THERE
    if amount.usd is None:
        return UNKNOWN
    return f"{bound_mark(amount)}{figures.dollars(amount.usd, cents=cents)}"


def bound_mark(amount: CostAmount | None) -> str:
    """Return what stands before an amount, and before what is derived from it."""
    is_bound = amount is not None and not amount.is_complete
    return BOUND_MARKS["at_least"] if is_bound else ""


def delta_text(delta: CostDelta | None) -> str:
    """Return a difference as text: `>=` or `<=` where a price is unknown on one side."""
    if delta is None:
        return NOT_THERE
    if delta.usd is None:
        return UNKNOWN
    return f"{BOUND_MARKS[delta.bound]}{figures.signed_dollars(delta.usd)}"


def change_text(delta: CostDelta | None) -> str:
    """Return a difference with its percentage, where that is known."""
    if delta is None or delta.percent is None or not delta.usd:
        return delta_text(delta)
    return f"{delta_text(delta)} ({figures.signed_percent(delta.percent)})"


def percent_text(delta: CostDelta | None) -> str:
    """Return the percentage of a difference; nothing where there is none, or it is not known."""
    if delta is None or delta.percent is None or not delta.usd:
        return ""
    mark = BOUND_MARKS[delta.bound]
    return f"{mark}{figures.signed_percent(delta.percent)}"


def side_text(side: SpecSide | None) -> str:
    """Return what a spec costs on a side, or why that is not known."""
    if side is None:
        return NOT_THERE
    if side.cost is None or side.period is None:
        return side.status
    return f"{amount_text(side.cost)}{period.UNITS[side.period]}"


def entry_text(entry: BilledEntry | None) -> str:
    """Return quantity and unit of a cost line, or the machines of a pool."""
    if entry is None:
        return NOT_THERE
    if entry.machines is not None:
        return entry.machines
    return _quantity_text(entry)


def _quantity_text(entry: BilledEntry | None) -> str:
    if entry is None:
        return NOT_THERE
    return f"{figures.quantity(entry.quantity)} {entry.unit}"


def quantities_text(
    before: BilledEntry | None, after: BilledEntry | None
) -> str:
    """Return the quantities on both sides; of the same ones the unit prices."""
    text = f"{_quantity_text(before)} -> {_quantity_text(after)}"
    if before is None or after is None or before.unit != after.unit:
        return text
    if before.quantity != after.quantity:
        return f"{figures.quantity(before.quantity)} -> {_quantity_text(after)}"
    prices = (before.unit_price, after.unit_price)
    old_price, new_price = map(figures.unit_price, prices)
    return f"{_quantity_text(after)} at {old_price} -> {new_price}"


def key_text(change: KeyChange, *, is_short: bool = False) -> str:
    """Return a key, or the last of its parts, with what it says on both sides."""
    old, new = shortened(change.before), shortened(change.after)
    name = change.key.rpartition(".")[2] if is_short else change.key
    return f"{name} {old} -> {new}"


def shortened(text: str | None) -> str:
    """Return a value of a key, cut where it is long; nothing where the key is not there."""
    if text is None:
        return NOT_THERE
    if len(text) <= SHOWN_LETTERS:
        return text or '""'
    return f"{text[: SHOWN_LETTERS - 1]}…"


def why_text(spec: SpecDiff, *, is_short: bool = False) -> str:
    """Return in a few words what a spec says differently."""
    if spec.state in ("added", "removed"):
        return spec.state
    texts = [
        key_text(change, is_short=is_short) for change in spec.keys[:SHOWN_KEYS]
    ]
    hidden = len(spec.keys) - len(texts)
    if hidden > 0:
        texts.append(f"{hidden} more")
    texts += [f"what is in {name}" for name in spec.files]
    if spec.state == "renamed" and spec.before is not None:
        texts.insert(0, f"was {spec.before.path}")
    return ", ".join(texts) or spec.state


def count_text(spec: SpecDiff) -> str:
    """Return how much a spec says differently, where there is no room to say what."""
    counts = {"key": len(spec.keys), "file": len(spec.files)}
    texts = [
        f"{count} {noun}" if count == 1 else f"{count} {noun}s"
        for noun, count in counts.items()
        if count
    ]
    if spec.state != "changed":
        texts.insert(0, spec.state)
    return ", ".join(texts) or spec.state


def has_difference(spec: SpecDiff) -> bool:
    """Whether there is anything to say of a spec but its cost."""
    return bool(
        spec.keys
        or spec.changes
        or spec.files
        or (spec.before and spec.before.status != "planned")
        or (spec.after and spec.after.status != "planned")
        or spec.state in ("added", "removed", "renamed")
    )


def period_name(name: Period, count: int) -> str:
    """Return what the total of some specs is for."""
    plurals = {"month": "a month", "run": "of runs", "life": "of lives"}
    return plurals[name] if count > 1 or name == "month" else f"of a {name}"


def headline(document: DiffDocument) -> str:
    """Return by how much the cost changes, in one line."""
    texts = [
        _total_phrase(total, len(document.specs))
        for total in document.totals
        if total.delta.usd != 0 or total.delta.bound != "exact"
    ]
    if texts:
        return "; ".join(texts)
    if document.left_out:
        return "no change of cost is known"
    totals = [
        f"{amount_text(total.after, cents=False)} "
        f"{period_name(total.period, len(document.specs))}"
        for total in document.totals
    ]
    return ", ".join(["no change of cost", *totals])


def _total_phrase(total: PeriodTotal, count: int) -> str:
    percent = total.delta.percent
    share = "" if percent is None else f" ({figures.signed_percent(percent)})"
    return (
        f"{delta_text(total.delta)} {period_name(total.period, count)}{share}, "
        f"from {amount_text(total.before, cents=False)} to "
        f"{amount_text(total.after, cents=False)}"
    )


def counts_text(document: DiffDocument) -> str:
    """Return how many specs were added, changed and so on."""
    counts = {
        state: sum(spec.state == state for spec in document.specs)
        for state in STATE_MARKS
    }
    counts["unchanged"] += len(document.unplanned)
    texts = [f"{count} {state}" for state, count in counts.items() if count]
    return ", ".join(texts) or "no specs"


def catalog_text(document: DiffDocument) -> str:
    """Return which prices both sides have."""
    if document.catalog is None:
        return "the catalogs differ: prices are not the same on both sides"
    return f"catalog of {document.catalog.as_of} on both sides"


def effect_text(effect: CatalogEffect) -> str:
    """Return what a catalog alone did to the specs of the old side."""
    names = " and ".join(ORIGIN_NAMES[origin] for origin in effect.origins)
    count = len(effect.paths)
    specs = effect.paths[0] if count == 1 else f"{count} specs"
    return (
        f"{names} alone: {change_text(effect.delta)}{period.UNITS[effect.period]} for the old "
        f"{specs} since the catalog of {effect.since.as_of}; not counted above"
    )


def parts_text(total: PeriodTotal) -> str:
    """Return by what a total changes, or nothing where that is the specs alone."""
    return ", ".join(
        f"{ORIGIN_NAMES[part.origin]} {delta_text(part.delta)}"
        for part in total.parts
    )


def cause_text(spec: SpecDiff) -> str:
    """Return what a change of cost is due to; empty where that is the spec alone."""
    if set(spec.differs) <= {"spec"}:
        return ""
    names = " and ".join(ORIGIN_NAMES[origin] for origin in spec.differs)
    if not spec.parts:
        return f"due to {names}, which cannot be told apart"
    parts = ", ".join(
        f"{ORIGIN_NAMES[part.origin]} {delta_text(part.delta)}"
        for part in spec.parts
    )
    return f"due to {parts}"


def limits_text(document: DiffDocument) -> str:
    """Return whether the specs of the new side meet their limits."""
    sides = [spec.after for spec in document.specs if spec.after is not None]
    if not sides:
        return ""
    counts = Counter(side.status for side in sides)
    texts = []
    if counts["infeasible"]:
        texts.append(
            f"no fleet meets the limits of {counts['infeasible']} of {len(sides)} specs"
        )
    if counts["invalid"]:
        texts.append(
            f"{counts['invalid']} of {len(sides)} specs cannot be planned"
        )
    return ", ".join(texts) or "every spec meets its limits"


def verdict_text(verdict: ThresholdVerdict) -> str:
    """Return how a change stands to a threshold."""
    if not verdict.is_exceeded or verdict.period is None:
        return f"within {verdict.threshold}"
    limit = figures.dollars(verdict.limit_usd, cents=True)
    unit = period.UNITS[verdict.period]
    if verdict.usd is None:
        return (
            f"above {verdict.threshold}, as far as anybody knows: a price is unknown, and at most "
            f"+{limit}{unit} is allowed"
        )
    return (
        f"above {verdict.threshold}: {figures.signed_dollars(verdict.usd)}{unit}, and at most "
        f"+{limit}{unit} is allowed"
    )


def relaxation_text(spec: SpecDiff) -> str:
    """Return the change of the spec that saves most, or makes it feasible; empty without one."""
    savings = [
        limit for limit in spec.binding if limit.saves_usd_month is not None
    ]
    if savings:
        best = max(savings, key=lambda limit: limit.saves_usd_month or 0)
        saved = _saved_text(spec, best)
        unit = period.UNITS[_period_of(spec)]
        return (
            f"cheaper by {saved}{unit} with {best.constraint}: {best.relax_to}"
        )
    if spec.binding:
        nearest = spec.binding[0]
        return f"feasible with {nearest.constraint}: {nearest.relax_to}"
    return ""


def _saved_text(spec: SpecDiff, change: Binding) -> str:
    """Return what a change saves against the new side, as far as prices are known."""
    total = spec.after.cost if spec.after is not None else None
    saved_usd = change.saves_usd_month
    if total is None or saved_usd is None:
        return UNKNOWN
    relaxed = CostAmount(
        usd=total.known_usd - saved_usd, is_complete=not change.unpriced
    )
    delta = cost_delta(relaxed, total)
    if delta.usd is None:
        return UNKNOWN
    return f"{BOUND_MARKS[delta.bound]}{figures.dollars(delta.usd, cents=True)}"


def _period_of(spec: SpecDiff) -> Period:
    new_period = spec.after.period if spec.after is not None else None
    return new_period or "month"
