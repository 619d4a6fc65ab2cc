"""How numbers are written for people: money, times, shares. One way each."""

from __future__ import annotations

from decimal import Decimal


def dollars(text: str | None, *, cents: bool = False) -> str:
    """Write money: $48,912 or $48,912.07; a missing price is ?."""
    if text is None:
        return "?"
    value = Decimal(text)
    return (
        f"${value:,.2f}" if cents or 0 < abs(value) < 10 else f"${value:,.0f}"
    )


def change(value: Decimal) -> str:
    """Write a difference of money with its sign."""
    sign = "-" if value < 0 else "+"
    return f"{sign}${abs(value):,.2f}" if value else "$0.00"


def percent(value: Decimal | None) -> str:
    """Write a relative change, or `new` when there was nothing before."""
    return "new" if value is None else f"{value:+.1f} %"


def significant(value: float) -> float:
    """Round to the six digits that a prediction is worth at most."""
    return float(f"{value:.6g}")


def percent_off(value: float) -> str:
    """Write a relative error with its sign."""
    return f"{100 * value:+.0f} %"


def quantity(text: str) -> str:
    """Write how much of something: at most two decimals, none when they are zero."""
    value = Decimal(text)
    if 0 < abs(value) < Decimal("0.01"):
        return f"{value.normalize():f}"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def milliseconds(value: float) -> str:
    """Write a time: 33 ms, 1.4 s, 2.1 h."""
    if value < 1000:
        return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"
    return (
        f"{value / 1000:,.1f} s"
        if value < 3_600_000
        else f"{value / 3_600_000:,.1f} h"
    )


def span(text: str) -> str:
    """Write seconds as people do: 30m, 12h, 3d."""
    seconds = Decimal(text)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:f}{unit}"
    return f"{seconds:f}s"


def short(value: int) -> str:
    """Write a large count in short: 140B, 1.5T, 64k."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= size:
            return f"{value / size:,.4g}{unit}"
    return str(value)


def share(value: float) -> str:
    """Write a fraction of one as a percentage."""
    return f"{value * 100:.0f} %"


def quantity_price(text: str | None) -> str:
    """Write a unit price as exactly as it is known."""
    if text is None:
        return "?"
    value = f"{Decimal(text):,.6f}".rstrip("0")
    whole, _, part = value.partition(".")
    return f"{whole}.{part.ljust(2, '0')}"
