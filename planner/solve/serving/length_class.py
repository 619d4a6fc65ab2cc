"""Requests in two classes by length: the border, and what each class asks of its machines.

A router sees the bytes of a body, and machines work on tokens. How many bytes a token has varies
with the text, so requests near the border go either way. Each class is planned with all of them,
and is checked without them.
"""

from __future__ import annotations

import math
from array import array
from itertools import compress
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from planner.numeric import nearest_rank
from planner.perf.common.constant import constant
from planner.perf.serving.length_part import LengthPart
from planner.perf.serving.load import LengthDistribution
from planner.perf.serving.request_class import RequestClass
from planner.perf.serving.trace import Trace
from planner.solve.serving.requirement import CONTEXT_HEADROOM
from planner.solve.serving.traffic_trace import (
    MIN_REQUESTS,
    observed_load,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.solve.serving.requirement import ServingRequirement

# Shares of the requests that are short: where a border may be.
BORDER_SHARES: Final = (0.5, 0.75, 0.9, 0.95, 0.98)
# Borders are whole numbers of so many bytes.
BORDER_STEP_BYTES: Final = 256
# A class of fewer requests is none.
LEAST_SHARE: Final = 1e-3


class TextBytes(Struct, frozen=True):
    """Bytes of the text of a prompt for each of its tokens: the least and the most of a body."""

    least: float
    most: float


class Border(Struct, frozen=True):
    """Where short requests end.

    body_bytes   longest body of a short request
    sure_tokens  prompts up to this are short whatever their text
    most_tokens  longer prompts are long whatever their text
    """

    body_bytes: int
    sure_tokens: float
    most_tokens: float


class LengthClass(Struct, frozen=True):
    """What one class asks of its machines.

    share   of all requests that it may get
    widest  with the requests that go either way
    least   without them
    """

    length: Literal["short", "long"]
    border: Border
    share: float
    widest: ServingRequirement
    least: ServingRequirement

    @property
    def taken(self) -> RequestClass:
        """What the machines of the class take."""
        return RequestClass(
            length=self.length,
            body_bytes=self.border.body_bytes,
            sure_tokens=math.floor(self.border.sure_tokens),
            most_tokens=math.floor(self.border.most_tokens),
            share=self.share,
        )

    def in_precision(
        self, precision: str, cache_count: int | None
    ) -> LengthClass:
        """Return the class with weights of one precision, and with the first formats of caches."""
        widest, least = (
            replace(
                requirement,
                precisions=(precision,),
                kv_precisions=requirement.kv_precisions[:cache_count],
            )
            for requirement in (self.widest, self.least)
        )
        return replace(self, widest=widest, least=least)


def text_bytes(told_mean: Decimal | None) -> TextBytes:
    """Return the bytes of a token: those that are published, or around a mean that a spec tells.

    The range around a told mean is in proportion that of the published figures.
    """
    least, most = (
        constant("prompt_bytes", "least"),
        constant("prompt_bytes", "most"),
    )
    # The middle of a range of ratios is its geometric mean.
    scale = float(told_mean) / math.sqrt(least * most) if told_mean else 1.0
    return TextBytes(
        max(constant("token_bytes", "least"), least * scale), most * scale
    )


def border_at(prompt_tokens: float, text: TextBytes) -> Border:
    """Return the first border at which prompts up to a length are short whatever their text.

    body bytes = tokens * most bytes of a token + frame of a request
    """
    frame_bytes = constant("request_frame")
    # The text with the most bytes, in the longest frame, is still short.
    needed_bytes = prompt_tokens * text.most + frame_bytes
    body_bytes = math.ceil(needed_bytes / BORDER_STEP_BYTES) * BORDER_STEP_BYTES
    return Border(
        body_bytes=body_bytes,
        # What is between the two depends on the text: it goes either way.
        sure_tokens=(body_bytes - frame_bytes) / text.most,
        most_tokens=body_bytes / text.least,
    )


def borders(requirement: ServingRequirement, text: TextBytes) -> list[Border]:
    """Return where a border may be, in bytes: after stated shares of the prompts."""
    found = {
        border_at(prompt_tokens, text)
        for prompt_tokens in _share_lengths(requirement)
    }
    return sorted(found, key=lambda border: border.body_bytes)


def length_classes(
    requirement: ServingRequirement, border: Border
) -> tuple[LengthClass, LengthClass] | None:
    """Return the short and the long requests of a service; None where one of them has too few."""
    up_to, above = border.most_tokens, border.sure_tokens
    found: list[LengthClass] = []
    for length, widest, least in (
        ("short", (0.0, up_to), (0.0, above)),
        ("long", (above, math.inf), (up_to, math.inf)),
    ):
        parts = [_part(requirement, *ends) for ends in (widest, least)]
        # Without a load there is nothing to plan, and without enough requests nothing to check.
        if parts[0] is None or parts[1] is None:
            return None
        # Engines for long requests take everything, so their context is that of the service.
        is_short = length == "short"
        widest_part, least_part = (
            _with_context(part, border) if is_short else part
            for part in (parts[0], parts[1])
        )
        found.append(
            LengthClass(
                length="short" if is_short else "long",
                border=border,
                share=parts[0].load.rate_per_s / requirement.load.rate_per_s,
                widest=widest_part,
                least=least_part,
            )
        )
    return found[0], found[1]


def _share_lengths(requirement: ServingRequirement) -> Iterator[float]:
    """Yield the prompts that stated shares of all prompts do not exceed, in tokens."""
    lengths = requirement.load.prompt_lengths
    if requirement.trace is not None:
        ordered = sorted(requirement.trace.prompt_tokens)
        for share in BORDER_SHARES:
            yield nearest_rank(ordered, share)
    # Prompts of one length have no border among them.
    elif isinstance(lengths, LengthDistribution) and lengths.sigma:
        everything = LengthPart(whole=lengths)
        for share in BORDER_SHARES:
            yield everything.quantile(share)


def _part(
    requirement: ServingRequirement, above_tokens: float, up_to_tokens: float
) -> ServingRequirement | None:
    """Return what the prompts between two lengths ask for; None where they are too few.

    Two pools are both up only as often as each of them: each has the square root of the
    availability that is asked for.
    """
    load = requirement.load
    trace = requirement.trace
    if trace is not None:
        # Answers stay with their prompts: long ones may have longer answers.
        trace = _trace_part(trace, above_tokens, up_to_tokens)
        if len(trace) < MIN_REQUESTS:
            return None
        part_load = observed_load(load, trace)
        share = len(trace) / len(requirement.trace or ())
    else:
        if not isinstance(load.prompt_lengths, LengthDistribution):
            return None
        # Lengths of answers do not depend on those of prompts here.
        prompts = LengthPart(
            whole=load.prompt_lengths,
            above_tokens=above_tokens,
            up_to_tokens=up_to_tokens,
        )
        share = prompts.share
        if share < LEAST_SHARE:
            return None
        part_load = replace(
            load,
            prompt_lengths=prompts,
            rate_per_s=load.rate_per_s * share,
        )
    return replace(
        requirement,
        load=replace(
            part_load,
            # A share of regular arrivals is less regular. Where they come in bursts, a class may
            # have all the bursts: it keeps the variation of the whole.
            arrival_variation=max(
                part_load.arrival_variation, part_load.thinned_variation(share)
            ),
        ),
        trace=trace,
        availability=requirement.availability
        and requirement.availability.sqrt(),
    )


def _trace_part(
    trace: Trace, above_tokens: float, up_to_tokens: float
) -> Trace:
    """Return the requests of a trace with prompts between two lengths, with their answers."""
    is_inside = [
        above_tokens < prompt_tokens <= up_to_tokens
        for prompt_tokens in trace.prompt_tokens
    ]
    # Traces are compared by what they are: the same one is simulated once.
    if all(is_inside):
        return trace
    return Trace(
        *(
            array("d", compress(column, is_inside))
            for column in (
                trace.arrival_s,
                trace.prompt_tokens,
                trace.answer_tokens,
            )
        )
    )


def _with_context(
    requirement: ServingRequirement, border: Border
) -> ServingRequirement:
    """Return a class with the longest context that a body up to the border may ask for.

    context = bytes of the body / least bytes of a token + 1.25 * p95 of answers, tokens, at most
    that of the whole service
    """
    load = requirement.load
    # Whatever the alphabet: no text has more tokens than bytes.
    prompt_tokens = border.body_bytes / constant("token_bytes", "least")
    context_tokens = math.ceil(
        prompt_tokens + CONTEXT_HEADROOM * load.answer_lengths.p95_tokens
    )
    return replace(
        requirement,
        load=replace(
            load,
            max_context_tokens=min(load.max_context_tokens, context_tokens),
        ),
    )
