"""What identifies an offer."""

from __future__ import annotations

from typing import TypeAlias

# Cloud, region, machine type and purchase option.
OfferKey: TypeAlias = tuple[str, str, str, str]
