"""What a commitment is, and what it loses in a future that was not planned, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.facts.commitment import commitment_forms
from planner.market.regret import comes_after
from planner.market.term import TERM_OF

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal


def regret_text(usd: Decimal, scenario: str, purchase: str) -> str:
    """Return what is lost, USD, or that nothing is; also where the term is over before.

    scenario  name of the future
    purchase  the commitment, as prices name it
    """
    if usd:
        return figures.dollars(usd)
    if comes_after(scenario, TERM_OF[purchase].months):
        return "nothing: its term ends first"
    return "nothing"


def term_text(purchase: str, cloud: str, form: str | None) -> str:
    """Return for how long a commitment is and of which form: "a year, savings plan"."""
    name = form_name(cloud, form)
    return TERM_OF[purchase].name + (f", {name}" if name else "")


def form_name(cloud: str, form: str | None) -> str:
    """Return what a form of commitment is called; nothing where it is not known."""
    facts = commitment_forms().get((cloud, form or ""))
    return facts.name if facts is not None else ""


def form_sentences(forms: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return what each of some forms serves and how it ends, each once, by cloud and form."""
    return [
        commitment_forms()[cloud, form].sentence
        for cloud, form in dict.fromkeys(forms)
        if form is not None and (cloud, form) in commitment_forms()
    ]


def is_paid_latest(purchase: str, others: Iterable[str]) -> bool:
    """Whether no commitment for as long is paid by the month where this one is paid before."""
    term = TERM_OF[purchase]
    return term.payment == "monthly" or not any(
        TERM_OF[other].months == term.months
        and TERM_OF[other].payment == "monthly"
        for other in others
    )
