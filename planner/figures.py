"""Text of numbers: money, times, shares and quantities."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from planner.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

MILLION: Final = 10**6
LEVELS: Final = "▁▂▃▄▅▆▇█"
BAR_CELLS: Final = 10
# Up to here people count minutes.
MINUTES_TOLD: Final = 90


def dollars(amount_usd: Decimal | None, *, cents: bool = False) -> str:
    """Return USD as text such as $48,912 or, with cents, $48,912.07.

    Amounts other than 0 below $10 always have cents. An unknown amount is ?.
    """
    if amount_usd is None:
        return "?"
    return (
        f"${amount_usd:,.2f}"
        # Small amounts would lose too much to rounding.
        if cents or 0 < abs(amount_usd) < 10
        else f"${amount_usd:,.0f}"
    )


def rough_dollars(amount_usd: Decimal) -> str:
    """Return USD as `dollars` does, and from a million on as short text such as $167.8M."""
    if amount_usd < MILLION:
        return dollars(amount_usd)
    return f"${short_count(int(amount_usd))}"


def signed_dollars(delta_usd: Decimal) -> str:
    """Return a difference in USD as text with sign and cents."""
    sign = "-" if delta_usd < 0 else "+"
    return f"{sign}${abs(delta_usd):,.2f}" if delta_usd else "$0.00"


def signed_percent(change_percent: Decimal | None) -> str:
    """Return a change in percent with its sign; None is `new`."""
    return "new" if change_percent is None else f"{change_percent:+.1f} %"


def round_to_six(number: float) -> float:
    """Return the number with six significant digits."""
    return float(f"{number:.6g}")


def signed_share(relative_error: float) -> str:
    """Return a relative error of 1 = 100 % as text in percent with its sign."""
    return f"{100 * relative_error:+.0f} %"


def quantity(amount: Decimal) -> str:
    """Return an amount as text with at most two decimals, without zeros at the end.

    An amount below 0.01 has all its digits.
    """
    # Two decimals would show 0.
    if 0 < abs(amount) < Decimal("0.01"):
        return f"{amount.normalize():f}"
    return f"{amount:,.2f}".rstrip("0").rstrip(".")


def milliseconds(time_ms: float) -> str:
    """Return a time given in ms as text: 33 ms, 1.4 s, 2.1 h."""
    if time_ms < 1000:
        return f"{time_ms:,.0f} ms" if time_ms >= 10 else f"{time_ms:.1f} ms"
    return (
        f"{time_ms / 1000:,.1f} s"
        if time_ms < 3_600_000
        else f"{time_ms / 3_600_000:,.1f} h"
    )


def duration(duration_s: float) -> str:
    """Return a time given in s as text: 40 ms, 1.4 s, 3.2 h."""
    return milliseconds(float(duration_s) * 1000)


def about(duration_s: float) -> str:
    """Return a time given in s as people say it: 40 s, 7 min, 3 h."""
    if duration_s < SECONDS_PER_MINUTE:
        return f"{duration_s:.0f} s"
    if duration_s < MINUTES_TOLD * SECONDS_PER_MINUTE:
        return f"{duration_s / SECONDS_PER_MINUTE:.0f} min"
    return f"{duration_s / SECONDS_PER_HOUR:.0f} h"


def duration_at_least(duration_s: float) -> str:
    """Return a time as `duration` does, rounded up to its last digit.

    The written value is at least `duration_s`.
    """
    return duration(float(printed_seconds(duration_s)))


def printed_seconds(duration_s: float) -> Decimal:
    """Return the least time that is at least `duration_s` and is printed exactly, in s."""
    # Last digit that is printed: 0.1 ms, 1 ms, 0.1 s or 0.1 h.
    rounding_s = Decimal(
        "0.0001" if duration_s < 0.01 else "0.001" if duration_s < 1 else "0.1"
    )
    if duration_s >= 3600:
        rounding_s = Decimal(360)
    # 1e-9 absorbs floating-point error at exact multiples.
    return math.ceil(duration_s / float(rounding_s) - 1e-9) * rounding_s


def spec_duration(duration_s: float) -> str:
    """Return a time as a spec takes it, rounded up to hours, or from 4 days on to 0.1 days."""
    if duration_s < 4 * 86_400:
        return f"{math.ceil(duration_s / 3600)}h"
    return f"{math.ceil(duration_s / 86_400 * 10) / 10:g}d"


def whole_dollars_up(amount_usd: Decimal) -> str:
    """Return USD as a spec takes it, rounded up to whole dollars."""
    return str(math.ceil(amount_usd))


def compact_seconds(duration_s: Decimal) -> str:
    """Return a time given in s as text in the largest whole unit: 30m, 12h, 3d."""
    for unit_letter, unit_s in (("d", 86_400), ("h", 3600), ("m", 60)):
        if duration_s >= unit_s and duration_s % unit_s == 0:
            return f"{duration_s / unit_s:f}{unit_letter}"
    return f"{duration_s:f}s"


def short_count(count: int) -> str:
    """Return a count as short text: 140B, 1.5T, 64k."""
    for unit_letter, unit_size in (
        ("T", 10**12),
        ("B", 10**9),
        ("M", 10**6),
        ("k", 10**3),
    ):
        if count >= unit_size:
            return f"{count / unit_size:,.4g}{unit_letter}"
    return str(count)


def byte_size(size_bytes: int) -> str:
    """Return bytes as text in decimal units: 16.1 GB, 420 kB, 12 bytes."""
    for unit_name, unit_bytes in (
        ("TB", 10**12),
        ("GB", 10**9),
        ("MB", 10**6),
        ("kB", 10**3),
    ):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:,.3g} {unit_name}"
    return f"{size_bytes} bytes"


def percentage(fraction: float) -> str:
    """Return a fraction of 1 as text in percent."""
    return f"{fraction * 100:.0f} %"


def unit_price(price_usd: Decimal | None) -> str:
    """Return a price in USD as text with two to six decimals; None is ?."""
    if price_usd is None:
        return "?"
    # Prices of requests and GB are fractions of a cent.
    decimal_text = f"{price_usd:,.6f}".rstrip("0")
    whole_digits, _, fraction_digits = decimal_text.partition(".")
    return f"{whole_digits}.{fraction_digits.ljust(2, '0')}"


def token_price(price_usd: Decimal) -> str:
    """Return USD for many tokens or requests as text: two decimals, four below 0.10."""
    return (
        f"${price_usd:,.4f}"
        if price_usd < Decimal("0.10")
        else f"${price_usd:,.2f}"
    )


def bar(fraction: float) -> str:
    """Return a fraction of 1 as a bar of ten cells, full at 1 and beyond."""
    full_cells = round(BAR_CELLS * min(max(fraction, 0.0), 1.0))
    return "█" * full_cells + "░" * (BAR_CELLS - full_cells)


def level(fraction: float) -> str:
    """Return a fraction of 1 as one cell that is as high."""
    last = len(LEVELS) - 1
    return LEVELS[round(last * min(max(fraction, 0.0), 1.0))]


def age(age_days: int | None) -> str:
    """Return an age in days as text; None is unknown."""
    if age_days is None:
        return "unknown"
    return "1 day" if age_days == 1 else f"{age_days:,} days"
