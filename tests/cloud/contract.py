"""What an account is answered, held against the files of tests/providers/shapes.

Of an answer its structure alone is kept: the names of its fields, and their types of JSON.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
import requests
from botocore.client import BaseClient
from msgspec.structs import replace

from planner.plan.actual.charge import StackTags
from providers.live.place import MISSHAPEN
from tests.providers.live.probe import (
    PROBES,
    PROFILE_PROBES,
    TAGS,
    TODAY,
    Probe,
)
from tests.providers.shapes import (
    Document,
    answer_of,
    call_at,
    cases,
    shape,
)
from tests.providers.shapes.structure import (
    Differences,
    Structure,
    differences,
    structure_of,
    united,
)
from tests.providers.shapes.wire import FIRST_ERROR, typed

ANSWERED: Final = "answered"
# What comes of an answer that a function does not understand: its own words may have a value.
NOT_READ: Final[dict[type, str]] = {
    kind: f"not read: {kind.__name__}" for kind in MISSHAPEN
}


class ContractReport(NamedTuple):
    """What a function of a cloud was answered.

    outcome  that it was answered, or why not
    faults   why it cannot read an answer
    notes    what else differs from the files: nothing breaks by it
    """

    outcome: str
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def live_probes(cloud: str, stack: str, today: date) -> list[Probe]:
    """Return all questions to a cloud that change nothing, on a day and about a stack."""
    current = {TAGS: replace(TAGS, stack=stack), TODAY: today}
    return [
        probe._replace(
            rest=tuple(
                current[word] if isinstance(word, StackTags | date) else word
                for word in probe.rest
            )
        )
        for probe in (*PROBES, *PROFILE_PROBES)
        if probe.cloud == cloud and probe.calls
    ]


def hold(probe: Probe) -> ContractReport:
    """Ask a cloud, and hold what it answers against the files of the calls."""
    with heard_answers() as heard:
        found = probe.result()
    outcome = _outcome(found)
    faults = (
        [f"{probe.name}: {outcome}"] if outcome in NOT_READ.values() else []
    )
    notes = []
    for call in probe.all_calls:
        if not heard[call]:
            notes.append(f"{call}: no answer")
            continue
        differing = call_differences(call, probe.function, united(heard[call]))
        faults += [f"{call}: {fault}" for fault in differing.faults]
        notes += [f"{call}: new: {path}" for path in differing.new]
        notes += [f"{call}: not shown: {path}" for path in differing.unseen]
    return ContractReport(outcome, tuple(faults), tuple(notes))


def _outcome(found: object) -> str:
    """Return what came of a question: of an answer nothing, of a refusal its reason."""
    if isinstance(found, Exception) and type(found) in NOT_READ:
        return NOT_READ[type(found)]
    if isinstance(found, PermissionError):
        return f"denied: {found}"
    if isinstance(found, Exception):
        return f"unknown: {found}"
    return ANSWERED


def call_differences(
    call: str, function: str, actual: Structure
) -> Differences:
    """Return how the answers to a call differ from its files, as far as a function reads them."""
    ordinary = shape(call)
    found = differences(
        expected_structure(call),
        actual,
        ordinary.reads[function],
        ordinary.may_lack,
    )
    # An account may have no row that has them.
    absent = {path for path in found.missing if path in ordinary.sometimes}
    return found._replace(
        missing=tuple(path for path in found.missing if path not in absent),
        unseen=tuple(sorted({*found.unseen, *absent})),
    )


@cache
def expected_structure(call: str) -> Structure:
    """Return all that the files of a call have, and the fields of pages."""
    ordinary = shape(call)
    good = [
        answer_of(call, case)
        for case in cases()[call]
        if shape(call, case).status < FIRST_ERROR
    ]
    return united(
        structure_of(as_heard(call, document), ordinary.maps)
        for document in (*good, ordinary.next)
    )


def as_heard(call: str, document: Document) -> Document:
    """Return an answer as it is heard: of AWS with times, and rows in a text as objects."""
    if "service" not in shape(call).call:
        return document
    rows = {
        name: document[name] for name in document.keys() & {*shape(call).texts}
    }
    return typed(call, document) | rows


@contextmanager
def heard_answers() -> Iterator[dict[str, list[Structure]]]:
    """Listen to what clouds answer, and yield the structures by call as they come."""
    heard: dict[str, list[Structure]] = defaultdict(list)
    with pytest.MonkeyPatch.context() as patch:
        _listen_to_rest(patch, heard)
        _listen_to_aws(patch, heard)
        yield heard


def _listen_to_rest(
    patch: pytest.MonkeyPatch, heard: dict[str, list[Structure]]
) -> None:
    send = requests.Session.send

    def listened(
        session: requests.Session,
        request: requests.PreparedRequest,
        **settings: Any,
    ) -> requests.Response:
        response = send(session, request, **settings)
        if response.status_code < FIRST_ERROR:
            try:
                path = urlsplit(str(request.url)).path
                call = call_at(str(request.method), path)
                document = response.json()
            except ValueError:
                # Logins, and what is no answer of a call; the probe says what it makes of it.
                return response
            heard[call].append(structure_of(document, shape(call).maps))
        return response

    patch.setattr(requests.Session, "send", listened)


def _listen_to_aws(
    patch: pytest.MonkeyPatch, heard: dict[str, list[Structure]]
) -> None:
    """Listen to what the client reads: of what it does not know it tells nobody."""
    make = BaseClient._make_api_call

    def listened(client: Any, operation: str, asked: Document) -> Document:
        document: Document = make(client, operation, asked)
        call = f"aws/{operation}"
        if call in cases():
            told = {
                name: [json.loads(row) for row in value]
                if name in shape(call).texts
                else value
                for name, value in document.items()
                if name != "ResponseMetadata"
            }
            heard[call].append(structure_of(told, shape(call).maps))
        return document

    patch.setattr(BaseClient, "_make_api_call", listened)
