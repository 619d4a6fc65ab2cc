"""Durations as text, as a spec takes them."""

from __future__ import annotations

import math


def format_at_least(duration_s: float) -> str:
    """Format a time as `format_duration` does, rounded up to its last digit.

    The written value is at least `duration_s`, in seconds.
    """
    rounding_s = (
        # Last digit that is printed: 0.1 ms, 1 ms or 0.1 s.
        0.0001 if duration_s < 0.01 else 0.001 if duration_s < 1 else 0.1
    )
    if duration_s >= 3600:
        # From one hour on the last digit is 0.1 h.
        rounding_s = 360.0
    return format_duration(
        # 1e-9 absorbs floating-point error at exact multiples.
        math.ceil(duration_s / rounding_s - 1e-9) * rounding_s
    )


def format_duration(duration_s: float) -> str:
    """Format seconds with a unit: 40 ms, 1.4 s, 3.2 h."""
    if duration_s < 1:
        return (
            f"{duration_s * 1000:,.0f} ms"
            if duration_s >= 0.01
            else f"{duration_s * 1000:.1f} ms"
        )
    return (
        f"{duration_s:,.1f} s"
        if duration_s < 3600
        else f"{duration_s / 3600:,.1f} h"
    )
