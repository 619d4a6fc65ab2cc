"""What goes wrong between a probe and its cloud, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tests.loopback import Request
from tests.providers.live.recorded import (
    JSON_CALLS,
    QUERY_CALLS,
    Document,
    changed,
    document_of,
    emptied,
    merged,
    record_of,
    text_of,
)

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
        form = json.dumps(record_of(self.call)["next"])
        following = json.loads(
            form.replace("{token}", TOKEN).replace("{link}", link)
        )
        return Reply(text_of(self.call, merged(document, following)))


Answering: TypeAlias = Callable[[Asked], Reply]


class Fault(NamedTuple):
    """What a service does in place of its answer: always, or so many times."""

    outcome: Outcome
    answer: Answering
    times: int = 1_000_000


# The code of an error, and its status, in services of AWS that speak: ec2, query, json.
AWS_ERRORS: Final = {
    "permission": (
        (403, "UnauthorizedOperation"),
        (403, "AccessDenied"),
        (400, "AccessDeniedException"),
    ),
    "quota": (
        (400, "MaxConfigLimitExceeded"),
        (403, "LimitExceeded"),
        (400, "QuotaExceededException"),
    ),
    "rate": (
        (503, "RequestLimitExceeded"),
        (400, "Throttling"),
        (400, "ThrottlingException"),
    ),
    "stranger": (
        (401, "AuthFailure"),
        (403, "InvalidClientTokenId"),
        (400, "UnrecognizedClientException"),
    ),
    "wrong key": (
        (403, "SignatureDoesNotMatch"),
        (403, "SignatureDoesNotMatch"),
        (400, "InvalidSignatureException"),
    ),
    "expired": (
        (400, "ExpiredToken"),
        (403, "ExpiredToken"),
        (400, "ExpiredTokenException"),
    ),
    "throttled": (
        (429, "RequestLimitExceeded"),
        (429, "Throttling"),
        (429, "TooManyRequestsException"),
    ),
    "busy": (
        (503, "Unavailable"),
        (503, "ServiceUnavailable"),
        (503, "ServiceUnavailableException"),
    ),
    "broken": (
        (500, "InternalError"),
        (500, "InternalFailure"),
        (500, "InternalServerError"),
    ),
    "skew": (
        (400, "RequestExpired"),
        (403, "RequestTimeTooSkewed"),
        (400, "RequestTimeTooSkewed"),
    ),
}
# Status, status in words, and reason.
GCP_ERRORS: Final = {
    "permission": (403, "PERMISSION_DENIED", "forbidden"),
    "quota": (403, "PERMISSION_DENIED", "quotaExceeded"),
    "rate": (403, "PERMISSION_DENIED", "rateLimitExceeded"),
    "user rate": (403, "PERMISSION_DENIED", "userRateLimitExceeded"),
    "stranger": (403, "PERMISSION_DENIED", "authError"),
    "expired": (401, "UNAUTHENTICATED", "authError"),
    "throttled": (429, "RESOURCE_EXHAUSTED", "rateLimitExceeded"),
    "busy": (503, "UNAVAILABLE", "backendError"),
    "broken": (500, "INTERNAL", "internalError"),
}
AZURE_ERRORS: Final = {
    "permission": (403, "AuthorizationFailed"),
    "quota": (409, "OperationNotAllowed"),
    "stranger": (401, "AuthenticationFailed"),
    "expired": (401, "ExpiredAuthenticationToken"),
    "throttled": (429, "TooManyRequests"),
    "busy": (503, "ServerTimeout"),
    "broken": (500, "InternalServerError"),
}


def error_of(situation: str, asked: Asked) -> tuple[int, str]:
    """Return the status and the text with which a cloud says what is wrong."""
    said = f"no. You have sent: {asked.sent}"
    cloud = asked.call.partition("_")[0]
    if cloud == "azure":
        status, code = AZURE_ERRORS[situation]
        return status, json.dumps({"error": {"code": code, "message": said}})
    if cloud == "gcp":
        status, words, reason = GCP_ERRORS[situation]
        error = {
            "code": status,
            "message": said,
            "errors": [{"message": said, "reason": reason}],
            "status": words,
        }
        return status, json.dumps({"error": error})
    ec2, query, json_error = AWS_ERRORS[situation]
    if asked.call in JSON_CALLS:
        status, code = json_error
        return status, json.dumps({"__type": code, "message": said})
    status, code = query if asked.call in QUERY_CALLS else ec2
    error_xml = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>"
    if asked.call in QUERY_CALLS:
        return status, f"<ErrorResponse>{error_xml}</ErrorResponse>"
    return status, f"<Response><Errors>{error_xml}</Errors></Response>"


def refused(situation: str, **headers: str) -> Answering:
    """Let a service say what is wrong, as its cloud does."""

    def answer(asked: Asked) -> Reply:
        status, text = error_of(situation, asked)
        named = tuple(
            (name.replace("_", "-"), value) for name, value in headers.items()
        )
        return Reply(text, status, named)

    return answer


def sent(text: str, status: int = 200) -> Answering:
    """Let a service send a text."""
    return lambda asked: Reply(text.replace("{sent}", asked.sent), status)


def edited(change: Callable[[Asked, Document], Document]) -> Answering:
    """Let a service send another document than the good one."""
    return lambda asked: Reply(
        text_of(asked.call, change(asked, document_of(asked.call)))
    )


def without(field: str) -> Answering:
    """Let a service leave out a field, wherever it is."""

    def change(asked: Asked, document: Document) -> Document:
        return changed(
            asked.call,
            document,
            lambda fields: {
                name: value for name, value in fields.items() if name != field
            },
        )

    return edited(change)


def _with_new_fields(asked: Asked, document: Document) -> Document:
    return changed(
        asked.call,
        document,
        lambda fields: {**fields, "fieldOfTomorrow": {"a": "b"}},
    )


def _with_texts(asked: Asked, document: Document) -> Document:
    def as_text(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(
            value, bool
        )
        return str(value) if is_number else value

    return changed(
        asked.call,
        document,
        lambda fields: {name: as_text(value) for name, value in fields.items()},
    )


def _of_tomorrow(asked: Asked, document: Document) -> Document:
    return merged(document, record_of(asked.call).get("tomorrow", {}))


def _empty_page_first(asked: Asked) -> Reply:
    document = document_of(asked.call)
    if asked.is_second_page:
        return Reply(text_of(asked.call, document))
    return asked.page(emptied(document))


def _same_page_again(asked: Asked) -> Reply:
    document = document_of(asked.call)
    return asked.page(emptied(document) if asked.is_second_page else document)


def _cut(asked: Asked) -> Reply:
    return Reply(text_of(asked.call, document_of(asked.call)), is_cut=True)


def _held(asked: Asked) -> Reply:
    return Reply("", held=asked.held)


FAULTS: Final[dict[str, Fault]] = {
    "permission": Fault("denied", refused("permission")),
    "quota": Fault("unknown", refused("quota")),
    "rate": Fault("unknown", refused("rate")),
    "user rate": Fault("unknown", refused("user rate")),
    "stranger": Fault("denied", refused("stranger")),
    "wrong key": Fault("denied", refused("wrong key")),
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
