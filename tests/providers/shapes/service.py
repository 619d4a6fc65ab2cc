"""A service of tests that answers with files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tests.loopback import Answer, Cloud, Request
from tests.providers.shapes import ORDINARY, Document, call_of
from tests.providers.shapes.wire import refusal_text, sent_case, sent_text

# The name of a case, or another answer in its shape.
Said: TypeAlias = str | Document


def serve(cloud: Cloud, changes: Mapping[str, Said] | None = None) -> None:
    """Let a cloud answer as the files of its calls do, but for some calls."""

    def answer(request: Request) -> Answer:
        call = call_of(request)
        return said(call, (changes or {}).get(call, ORDINARY))

    cloud.answer = answer


def refuse(cloud: Cloud, case: str) -> None:
    """Let a cloud refuse all calls in one way."""
    cloud.answer = lambda request: refusal_text(call_of(request), case, "no")


def said(call: str, words: Said) -> Answer:
    """Return what a service says to a call."""
    if isinstance(words, str):
        return sent_case(call, words)
    return 200, sent_text(call, words)
