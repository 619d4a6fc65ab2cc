"""How numbers are written for people: money, times, shares. One way each."""

from __future__ import annotations

from decimal import Decimal


def dollars(amount_usd: Decimal | None, *, cents: bool = False) -> str:
    """Write money: $48,912 or $48,912.07; a missing price is ?."""
    if amount_usd is None:
        return "?"
    return (
        f"${amount_usd:,.2f}"
        if cents or 0 < abs(amount_usd) < 10
        else f"${amount_usd:,.0f}"
    )


def signed_dollars(delta_usd: Decimal) -> str:
    """Write a difference of money with its sign."""
    sign = "-" if delta_usd < 0 else "+"
    return f"{sign}${abs(delta_usd):,.2f}" if delta_usd else "$0.00"


def signed_percent(change_percent: Decimal | None) -> str:
    """Write a relative change, or `new` when there was nothing before."""
    return "new" if change_percent is None else f"{change_percent:+.1f} %"


def round_to_six(number: float) -> float:
    """Round to the six digits that a prediction is worth at most."""
    return float(f"{number:.6g}")


def signed_share(relative_error: float) -> str:
    """Write a relative error with its sign."""
    return f"{100 * relative_error:+.0f} %"


def quantity(amount: Decimal) -> str:
    """Write how much of something: at most two decimals, none when they are zero."""
    if 0 < abs(amount) < Decimal("0.01"):
        return f"{amount.normalize():f}"
    return f"{amount:,.2f}".rstrip("0").rstrip(".")


def milliseconds(time_ms: float) -> str:
    """Write a time: 33 ms, 1.4 s, 2.1 h."""
    if time_ms < 1000:
        return f"{time_ms:,.0f} ms" if time_ms >= 10 else f"{time_ms:.1f} ms"
    return (
        f"{time_ms / 1000:,.1f} s"
        if time_ms < 3_600_000
        else f"{time_ms / 3_600_000:,.1f} h"
    )


def compact_seconds(duration_s: Decimal) -> str:
    """Write seconds as people do: 30m, 12h, 3d."""
    for unit_letter, unit_s in (("d", 86_400), ("h", 3600), ("m", 60)):
        if duration_s >= unit_s and duration_s % unit_s == 0:
            return f"{duration_s / unit_s:f}{unit_letter}"
    return f"{duration_s:f}s"


def short_count(count: int) -> str:
    """Write a large count in short: 140B, 1.5T, 64k."""
    for unit_letter, unit_size in (
        ("T", 10**12),
        ("B", 10**9),
        ("M", 10**6),
        ("k", 10**3),
    ):
        if count >= unit_size:
            return f"{count / unit_size:,.4g}{unit_letter}"
    return str(count)


def percentage(fraction: float) -> str:
    """Write a fraction of one as a percentage."""
    return f"{fraction * 100:.0f} %"


def unit_price(price_usd: Decimal | None) -> str:
    """Write a unit price as exactly as it is known."""
    if price_usd is None:
        return "?"
    decimal_text = f"{price_usd:,.6f}".rstrip("0")
    whole_digits, _, fraction_digits = decimal_text.partition(".")
    return f"{whole_digits}.{fraction_digits.ljust(2, '0')}"
