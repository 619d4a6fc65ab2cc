"""How one replica is spread over accelerators, in the document of a plan."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from planner.plan.part import DocumentPart


class Layout(DocumentPart, frozen=True, kw_only=True):
    """How one replica is spread over accelerators: the degree of each kind of parallelism."""

    precision: Annotated[str, Meta(description="of weights and products")]
    kv_precision: Annotated[str, Meta(description="of the KV cache")]
    tp: Annotated[int, Meta(description="tensor parallel")]
    pp: Annotated[int, Meta(description="pipeline parallel")]
    ep: Annotated[int, Meta(description="expert parallel")]
    dp: Annotated[int, Meta(description="attention data parallel")]
    cp: Annotated[int, Meta(description="context parallel")]
    max_batch: Annotated[int, Meta(description="requests at a time")]
