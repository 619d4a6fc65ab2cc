"""What a look at an account and an engine finds before an apply."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

SymptomState: TypeAlias = Literal["ok", "fix", "unknown", "unneeded"]


class Symptom(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at.

    `subject`  a cloud, or engine, lock, catalog, network, clock
    `state`    ok; fix: it stops an apply; unknown: nobody answered; unneeded by the plan
    `kind`     of what is to fix, as errors of clouds are classed
    `remedy`   what helps
    """

    subject: str
    state: SymptomState
    text: str
    kind: str = ""
    remedy: str = ""
