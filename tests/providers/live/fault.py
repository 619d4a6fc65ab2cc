"""What goes wrong between a probe and its cloud, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tests.loopback import Request
from tests.providers.shapes import Document, answer_of, shape
from tests.providers.shapes.structure import (
    changed,
    emptied,
    merged,
    without,
)
from tests.providers.shapes.wire import refusal_text, sent_case, sent_text

# well: as if nothing had been. denied: a right or a login is missing. unknown: nobody knows.
# refused: denied or unknown. any: well or unknown.
Outcome: TypeAlias = Literal["well", "denied", "unknown", "refused", "any"]
TOKEN: Final = "page-two/of=a+list"
BUSY_HTML: Final = "<html><body>Bad Gateway {sent}</body>"


class Reply(NamedTuple):
    """What a service sends. One that is cut ends in the middle; one that is held never comes."""

    text: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False
    held: Event | None = None

    def write(self, handler: BaseHTTPRequestHandler) -> None:
        """Write it to a connection."""
        if self.held is not None:
            self.held.wait(30)
            handler.close_connection = True
            return
        body = self.text.encode()
        handler.send_response(self.status)
        for name, value in self.headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if self.is_cut else body)


class Asked(NamedTuple):
    """A request that meets a fault; `held` is set when the test is over."""

    call: str
    request: Request
    url: str
    held: Event

    @property
    def sent(self) -> str:
        """What a service that says too much repeats of a request: its secrets."""
        names = ("Authorization", "X-Amz-Security-Token")
        return " ".join(str(self.request.headers.get(name)) for name in names)

    @property
    def is_second_page(self) -> bool:
        """Whether the page is asked for that a first one has named."""
        body = self.request.body.decode()
        return any(
            mark in self.request.path + body
            for mark in ("page-two", "page_two")
        )

    def page(self, document: Document) -> Reply:
        """Send a page that another one follows."""
        here = self.request.path.partition("&page_two")[0]
        link = f"{self.url}{here}{'&' if '?' in here else '?'}page_two=1"
        form = json.dumps(shape(self.call).next)
        following = json.loads(
            form.replace("{token}", TOKEN).replace("{link}", link)
        )
        return Reply(sent_text(self.call, merged(document, following)))


Answering: TypeAlias = Callable[[Asked], Reply]


class Fault(NamedTuple):
    """What a service does in place of its answer: always, or so many times."""

    outcome: Outcome
    answer: Answering
    times: int = 1_000_000


def refused(situation: str, **headers: str) -> Answering:
    """Let a service say what is wrong, as its cloud does."""

    def answer(asked: Asked) -> Reply:
        words = f"no. You have sent: {asked.sent}"
        status, text = refusal_text(asked.call, situation, words)
        named = tuple(
            (name.replace("_", "-"), value) for name, value in headers.items()
        )
        return Reply(text, status, named)

    return answer


def told(case: str) -> Answering:
    """Let a service answer with another case of a call."""

    def answer(asked: Asked) -> Reply:
        status, text = sent_case(asked.call, case)
        return Reply(text, status)

    return answer


def sent(text: str, status: int = 200) -> Answering:
    """Let a service send a text."""
    return lambda asked: Reply(text.replace("{sent}", asked.sent), status)


def edited(change: Callable[[Asked, Document], Document]) -> Answering:
    """Let a service send another document than the good one."""
    return lambda asked: Reply(
        sent_text(asked.call, change(asked, answer_of(asked.call)))
    )


def lacking(path: str) -> Answering:
    """Let a service leave out a field, in all rows."""
    return edited(
        lambda asked, document: without(document, path, shape(asked.call).maps)
    )


def _with_new_fields(asked: Asked, document: Document) -> Document:
    return changed(
        document,
        lambda _, fields: {**fields, "fieldOfTomorrow": {"a": "b"}},
        shape(asked.call).maps,
    )


def _with_texts(asked: Asked, document: Document) -> Document:
    def as_text(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(
            value, bool
        )
        return str(value) if is_number else value

    return changed(
        document,
        lambda _, fields: {
            name: as_text(value) for name, value in fields.items()
        },
        shape(asked.call).maps,
    )


def _of_tomorrow(asked: Asked, document: Document) -> Document:
    return merged(document, shape(asked.call).tomorrow)


def _empty_page_first(asked: Asked) -> Reply:
    document = answer_of(asked.call)
    if asked.is_second_page:
        return Reply(sent_text(asked.call, document))
    return asked.page(emptied(document))


def _same_page_again(asked: Asked) -> Reply:
    document = answer_of(asked.call)
    return asked.page(emptied(document) if asked.is_second_page else document)


def _cut(asked: Asked) -> Reply:
    return Reply(sent_text(asked.call, answer_of(asked.call)), is_cut=True)


def _held(asked: Asked) -> Reply:
    return Reply("", held=asked.held)


FAULTS: Final[dict[str, Fault]] = {
    "permission": Fault("denied", refused("permission")),
    "quota": Fault("unknown", refused("quota")),
    "rate": Fault("unknown", refused("rate")),
    "user_rate": Fault("unknown", refused("user_rate")),
    "stranger": Fault("denied", refused("stranger")),
    "wrong_key": Fault("denied", refused("wrong_key")),
    "expired": Fault("denied", refused("expired")),
    "skew": Fault("unknown", refused("skew")),
    "throttled, then well": Fault("well", refused("throttled"), 1),
    "throttled for 7 s, then well": Fault(
        "well", refused("throttled", Retry_After="7"), 1
    ),
    "throttled for a day, then well": Fault(
        "well", refused("throttled", Retry_After="86400"), 1
    ),
    "throttled": Fault("unknown", refused("throttled")),
    "busy, then well": Fault("well", refused("busy"), 1),
    "broken, then well": Fault("well", refused("broken"), 1),
    "busy": Fault("unknown", refused("busy")),
    "broken": Fault("unknown", refused("broken")),
    "bad gateway": Fault("unknown", sent(BUSY_HTML, 502)),
    "held, then well": Fault("well", _held, 1),
    "held": Fault("unknown", _held),
    "cut, then well": Fault("well", _cut, 1),
    # The clients of AWS do not ask again for an answer that has begun.
    "cut once at AWS": Fault("any", _cut, 1),
    "cut": Fault("unknown", _cut),
    "empty page first": Fault("well", _empty_page_first),
    "same page again": Fault("any", _same_page_again),
    "empty body": Fault("unknown", sent("")),
    "HTML": Fault("unknown", sent(BUSY_HTML)),
    "HTML of a login": Fault("refused", sent(BUSY_HTML, 403)),
    "JSON list": Fault("unknown", sent('[{"value": []}]')),
    "null": Fault("unknown", sent("null")),
    "no field at all": Fault("unknown", edited(lambda *_: {})),
    "words of tomorrow": Fault("well", edited(_of_tomorrow)),
    "fields of tomorrow": Fault("well", edited(_with_new_fields)),
    "numbers as texts": Fault("any", edited(_with_texts)),
}
