"""Quantities in text form: 70B, 8k, 800ms, 14d, 4TiB, 99.9%, 60000/month.

Each parser returns a number in the base unit, or raises ValueError with a sentence that states
the accepted form.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from planner.units import DAYS_PER_MONTH

NUMBER_PATTERN: Final = r"(\d{1,15}(?:\.\d{1,9})?)"

# The currency may stand before or after the amount, or be left out.
MONEY_PATTERN: Final = rf"(?:\$|usd)?\s*{NUMBER_PATTERN}\s*(?:\$|usd)?"

COUNT_FACTORS: Final = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
# Context lengths are written in binary thousands: a "128k" model takes 131,072 tokens.
CONTEXT_FACTORS: Final = {"": 1, "k": 1024, "m": 1024**2}
SECONDS_PER_UNIT: Final = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
    "w": Decimal(604800),
}
BYTES_PER_UNIT: Final = {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "pib": 2**50,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "pb": 10**15,
}
MONTHS_PER_UNIT: Final = {
    "d": 1 / DAYS_PER_MONTH,
    "month": Decimal(1),
    "year": Decimal(12),
}
MOST_MONTHS: Final = 120
PERIODS_PER_MONTH: Final = {  # billing convention of the three clouds: 730 hours a month
    "hour": Decimal(730),
    "day": Decimal(730) / 24,
    "month": Decimal(1),
    "year": Decimal(1) / 12,
}


def parse_number(text: str) -> Decimal:
    """Return a plain number of at least 0.

    No sign, exponent or NaN; at most 15 digits before the point.
    """
    if not re.fullmatch(NUMBER_PATTERN, text):
        raise ValueError("write a plain number, for example 12 or 1.5")
    return Decimal(text)


def parse_count(text: str) -> int:
    """Return a whole number: 12, 8k, 4M, 70B or 1T, in powers of 1,000.

    A trailing word `tokens` is allowed.
    """
    return _parse_scaled(
        text.removesuffix("tokens"),
        COUNT_FACTORS,
        "a count, for example 4000, 4k or 70B",
    )


def parse_context(text: str) -> int:
    """Return a sequence length in tokens: 4096, 8k or 1M, in powers of 1,024."""
    return _parse_scaled(
        text.removesuffix("tokens"),
        CONTEXT_FACTORS,
        "a length, for example 8192 or 8k",
    )


def parse_seconds(text: str) -> Decimal:
    """Return a time span in seconds: 800ms, 20s, 30m, 72h, 14d."""
    quantity_match = re.fullmatch(
        NUMBER_PATTERN + r"\s*([a-z]+)", text.strip().lower()
    )
    if not quantity_match or quantity_match[2] not in SECONDS_PER_UNIT:
        raise ValueError(
            "write a time span with its unit, for example 800ms, 30m, 12h or 14d"
        )
    return Decimal(quantity_match[1]) * SECONDS_PER_UNIT[quantity_match[2]]


def parse_months(text: str) -> Decimal:
    """Return a span of time in months, more than 0: 4 months, 1.5 years, 120d.

    A year has 12 months, and a month 365 / 12 days.
    """
    span_match = re.fullmatch(
        NUMBER_PATTERN + r"\s*(d|month|year)s?", text.strip().lower()
    )
    months = (
        Decimal(span_match[1]) * MONTHS_PER_UNIT[span_match[2]]
        if span_match
        else Decimal(0)
    ).quantize(Decimal("0.01"))
    if not 0 < months <= MOST_MONTHS:
        raise ValueError(
            "write a span of up to 10 years, for example 4 months, 1 year or 120d"
        )
    return months


def parse_kilowatts(text: str) -> Decimal:
    """Return a power in kW: 10.2kW or 700W."""
    power_match = re.fullmatch(
        NUMBER_PATTERN + r"\s*(k?)w", text.strip().lower()
    )
    if not power_match:
        raise ValueError("write a power with its unit, for example 10.2kW")
    return Decimal(power_match[1]) / (1 if power_match[2] else 1000)


def parse_bytes(text: str) -> int:
    """Return a size in bytes: 200GiB (binary) or 4TB (decimal)."""
    quantity_match = re.fullmatch(
        NUMBER_PATTERN + r"\s*([a-z]+)", text.strip().lower()
    )
    if not quantity_match or quantity_match[2] not in BYTES_PER_UNIT:
        raise ValueError(
            "write a size with its unit, for example 200GiB or 4TiB"
        )
    return int(Decimal(quantity_match[1]) * BYTES_PER_UNIT[quantity_match[2]])


def parse_percent(text: str) -> Decimal:
    """Return a percentage as a fraction of one: 99.9% is 0.999."""
    percent_match = re.fullmatch(NUMBER_PATTERN + r"\s*%", text.strip())
    # Shares above one are refused.
    if not percent_match or Decimal(percent_match[1]) > 100:
        raise ValueError(
            "write a percentage from 0% to 100%, for example 99.9%"
        )
    return Decimal(percent_match[1]) / 100


def parse_money(text: str) -> Decimal:
    """Return an amount of USD, with or without its currency: 2000, $2000, 2000 USD."""
    money_match = re.fullmatch(MONEY_PATTERN, text.strip().lower())
    if not money_match:
        raise ValueError("write an amount of USD, for example 2000 or $2000")
    return Decimal(money_match[1])


def parse_spending(text: str) -> Decimal:
    """Return an amount of USD a month: 60000/month, 20/hour, $500/day.

    An amount without a time is that of a month.
    """
    money_match = re.fullmatch(
        rf"{MONEY_PATTERN}(?:\s*/\s*([a-z]+))?", text.strip().lower()
    )
    period = (money_match and money_match[2]) or "month"
    if not money_match or period not in PERIODS_PER_MONTH:
        raise ValueError(
            "write an amount of USD a month or per time, for example 2000 or 20/hour"
        )
    return Decimal(money_match[1]) * PERIODS_PER_MONTH[period]


def _parse_scaled(
    text: str, suffix_factors: dict[str, int], accepted_form: str
) -> int:
    quantity_match = re.fullmatch(
        NUMBER_PATTERN + r"\s*([A-Za-z]?)", text.strip()
    )
    # Suffixes have no case: 70b is 70B.
    if not quantity_match or quantity_match[2].lower() not in suffix_factors:
        raise ValueError(f"write {accepted_form}")
    scaled_number = (
        Decimal(quantity_match[1]) * suffix_factors[quantity_match[2].lower()]
    )
    # Decimal arithmetic is exact: 1.5k is whole, 1.5 is not.
    if scaled_number != scaled_number.to_integral_value():
        raise ValueError(f"write {accepted_form}; {text.strip()} is not whole")
    return int(scaled_number)
