"""Requests by length: what the machines of a pool take where a router divides requests."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class RequestClass(Struct, frozen=True, kw_only=True):
    """The requests of one pool of two, between which the length of their bodies decides.

    length       whether the pool takes the short or the long ones
    body_bytes   longest body of a short request, in bytes
    sure_tokens  a request with a prompt up to this is short whatever its text, in tokens
    most_tokens  a request with a longer prompt is long whatever its text, in tokens
    share        share of all requests that the pool may get at most
    """

    length: Literal["short", "long"]
    body_bytes: int
    sure_tokens: int
    most_tokens: int
    share: float

    @property
    def limit_bytes(self) -> int:
        """Longest body that the pool takes, in bytes; 0 where it takes all."""
        return self.body_bytes if self.length == "short" else 0
