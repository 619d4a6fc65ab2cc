"""What clouds answer: one file for each call and case, with where its shape is from.

<cloud>/<call>/<case>.json     an answer; `ordinary` of a call also says what is read of it
errors/<dialect>/<case>.json   a refusal, as all services that speak a dialect write it
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from tests.loopback import Request

FOLDER: Final = Path(__file__).parent
CLOUDS: Final = ("aws", "azure", "gcp")
# Clouds of which nothing is asked but a price list.
SMALL_CLOUDS: Final = ("oci", "vultr")
ERRORS: Final = "errors"
ORDINARY: Final = "ordinary"
# An answer, or a part of it.
Document: TypeAlias = dict[str, Any]


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file. Paths are such as value[].name, and items.*.name below what `maps` names.

    call      service and operation of AWS; method and URL elsewhere; the dialect of a refusal
    case      its name
    source    whose shape it is
    as_of     the day on which somebody looked there
    answer    the document
    status    of HTTP
    request   what the answer is one to, where it matters
    seen      who has seen a text that the answer has, by the text
    beyond    paths that the cloud's own client does not know, and who knows them
    maps      paths of objects whose members have names of users
    texts     fields with lists whose rows are JSON in a text
    reads     paths without which a function would not answer the same, by function
    sometimes paths of those that no row of an account may have, and why
    may_lack  other paths that a good answer may lack, and what that means
    next      what a page has besides, that is followed by another
    tomorrow  what an answer may have besides, and that changes nothing: rows, words, fields
    """

    call: dict[str, str]
    case: str
    source: str
    as_of: str
    answer: Document
    status: int = 200
    request: Document = {}
    seen: dict[str, str] = {}
    beyond: dict[str, str] = {}
    maps: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    reads: dict[str, tuple[str, ...]] = {}
    sometimes: dict[str, str] = {}
    may_lack: dict[str, str] = {}
    next: Document = {}
    tomorrow: Document = {}


@cache
def shape(call: str, case: str = ORDINARY) -> Shape:
    """Return a file. Nobody changes what it has: `answer_of` gives copies."""
    path = FOLDER / call / f"{case}.json"
    return msgspec.json.decode(path.read_bytes(), type=Shape)


@cache
def _answer_text(call: str, case: str) -> str:
    return json.dumps(shape(call, case).answer)


def answer_of(call: str, case: str = ORDINARY) -> Document:
    """Return a copy of an answer."""
    document: Document = json.loads(_answer_text(call, case))
    return document


@cache
def cases() -> dict[str, tuple[str, ...]]:
    """Return the calls, such as gcp/regions.get, each with the names of its cases."""
    return {
        str(folder.relative_to(FOLDER)): tuple(
            sorted(path.stem for path in folder.glob("*.json"))
        )
        for cloud in CLOUDS
        for folder in sorted((FOLDER / cloud).iterdir())
    }


@cache
def refusals(dialect: str) -> tuple[str, ...]:
    """Return the names of the cases in which services of a dialect refuse."""
    return tuple(
        sorted(path.stem for path in (FOLDER / ERRORS / dialect).glob("*.json"))
    )


def cloud_of(call: str) -> str:
    """Return the cloud of a call."""
    return call.partition("/")[0]


def call_of(request: Request) -> str:
    """Return the call that a request makes. Raises ValueError where it is of none, or of two."""
    target = request.headers.get("X-Amz-Target")
    if target is not None:
        return f"aws/{target.rpartition('.')[2]}"
    action = re.match(rb"Action=(\w+)", request.body)
    if action is not None:
        return f"aws/{action[1].decode()}"
    return call_at(request.method, request.path.partition("?")[0])


def call_at(method: str, path: str) -> str:
    """Return the call at an address. Raises ValueError where there is none, or are two."""
    [call] = [
        call
        for call, (stated, form) in _addresses().items()
        if method == stated and form.fullmatch(path)
    ]
    return call


@cache
def _addresses() -> dict[str, tuple[str, re.Pattern[str]]]:
    """Return method and path of the calls that have their own address.

    The service of tests has the paths of the clouds, some of them below one of its own.
    """
    addresses = {}
    for call in cases():
        stated = shape(call).call
        if "url" in stated:
            path = re.escape(urlsplit(stated["url"]).path)
            form = re.sub(r"\\{\w+\\}", r"[^/]+", path)
            addresses[call] = (stated["method"], re.compile(rf"(/\w+)?{form}"))
        else:
            path = call.rpartition("/")[2]
            addresses[call] = ("POST", re.compile(f"/{path}"))
    return addresses
