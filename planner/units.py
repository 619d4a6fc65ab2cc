"""Units and the factors between them. Each exists here once."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

SECONDS_PER_MINUTE: Final = 60
SECONDS_PER_HOUR: Final = 3600
SECONDS_PER_DAY: Final = 86_400
HOURS_PER_DAY: Final = 24
HOURS_PER_WEEK: Final = 168
MINUTES_PER_HOUR: Final = 60
MINUTES_PER_DAY: Final = HOURS_PER_DAY * MINUTES_PER_HOUR
DAYS_PER_WEEK: Final = 7
MINUTES_PER_WEEK: Final = DAYS_PER_WEEK * MINUTES_PER_DAY
MONTHS_PER_YEAR: Final = 12
# The three clouds bill a month as 730 hours: 365 * 24 / 12.
HOURS_PER_MONTH: Final = Decimal(730)
DAYS_PER_MONTH: Final = HOURS_PER_MONTH / HOURS_PER_DAY
SECONDS_PER_MONTH: Final = int(HOURS_PER_MONTH) * SECONDS_PER_HOUR

BITS_PER_BYTE: Final = 8

MS_PER_S: Final = 1000.0

# Networks, disks and bills count in powers of ten, memory in powers of two.
BYTES_PER_MB: Final = 1e6
BYTES_PER_GB: Final = 1e9
BYTES_PER_BILLED_GB: Final = Decimal(10**9)  # of quantities on a bill
BYTES_PER_MIB: Final = 2**20
BYTES_PER_GIB: Final = 2**30
GIB_PER_TIB: Final = 1024
TOKENS_PER_MILLION: Final = 1_000_000
