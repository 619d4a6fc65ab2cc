"""What a cloud says of a stack, beside what was planned, as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.market.commitment import used_amount
from planner.render.live import clock_text, commitment_line
from planner.render.page import LINE_WIDTH, Block, PageTable, Paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.live import LiveAnswer
    from planner.plan.live_status import LiveStatus, MachineCount
    from planner.render.page import Tone


def live_status_blocks(status: LiveStatus) -> list[Block]:
    """Return what runs, what it has cost, and what of commitments is used, by the cloud's word."""
    return [
        Paragraph(""),
        Paragraph(
            f"asked of {status.cloud} {status.region} for {status.stack}, at "
            f"{clock_text(status.running.as_of)}:"
        ),
        *_machine_blocks(status),
        *_cost_blocks(status),
        *_commitment_blocks(status),
    ]


def _machine_blocks(status: LiveStatus) -> Iterator[Block]:
    """Yield the machines of each kind, as they were planned and as they run."""
    if status.machines:
        yield PageTable(
            ("pool", "machines", ">planned at the peak", ">run now"),
            tuple(map(_machine_row, status.machines)),
            tuple(map(_machine_tone, status.machines)),
        )
    if status.running.value is None:
        yield _silence(status.cloud, "what runs", status.running)


def _machine_row(count: MachineCount) -> tuple[str, str, str, str]:
    bought = " on spot" if count.is_spot else ""
    return (
        count.pool,
        f"{count.machine_type}{bought}",
        str(count.planned),
        "?" if count.running is None else str(count.running),
    )


def _machine_tone(count: MachineCount) -> Tone:
    """Mark what nobody knows, and what is more than was planned: it costs more too."""
    is_odd = count.running is None or count.running > count.planned
    return "warn" if is_odd else ""


def _cost_blocks(status: LiveStatus) -> Iterator[Block]:
    """Yield what the month has cost so far, against the plan."""
    planned = (
        f"; planned for these days: {figures.dollars(status.planned_usd, cents=True)}"
        if status.planned_usd is not None
        else ""
    )
    cost = status.cost.value
    if cost is None:
        yield _silence(status.cloud, "what it has cost", status.cost, planned)
        return
    amount = (
        figures.dollars(cost.amount, cents=True)
        if cost.currency == "USD"
        else f"{cost.amount:,.2f} {cost.currency}"
    )
    yield Paragraph(
        f"  {amount} since {cost.first_day}, as far as {status.cloud} has counted{planned}",
        width=LINE_WIDTH,
    )


def _commitment_blocks(status: LiveStatus) -> Iterator[Block]:
    """Yield the commitments that pay for its machine types, and what of each is used."""
    for found in status.commitments.value or ():
        line = commitment_line(
            f"  {status.cloud} {status.region}",
            found,
            used_amount(status.commitment_use, found),
        )
        yield line
    if status.commitments.value is None:
        yield _silence(status.cloud, "what is committed", status.commitments)
    elif status.commitments.value and status.commitment_use.value is None:
        yield _silence(
            status.cloud, "what of commitments is used", status.commitment_use
        )


def _silence(
    cloud: str, what: str, answer: LiveAnswer[object], more: str = ""
) -> Paragraph:
    """Say what a cloud did not answer, and why."""
    return Paragraph(
        f"! {cloud} does not say {what}: {answer.state}: {answer.reason}{more}",
        "warn",
        LINE_WIDTH,
    )
