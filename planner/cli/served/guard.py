"""Who may ask a server for what: nothing is written, and no page of another site gets an answer.

A page of another site can let a browser call an address of this machine, and a name that leads to
it can be anybody's. So hosts are known by name, and other sites' scripts are refused.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse

from planner.errors import Problem
from planner.render.html.served.frame import problem_page

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS: Final = ("GET", "HEAD")
LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
# What a page may load and send: from and to this server alone, and no script within a page.
CONTENT_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Prices and names of machines are nothing for a shared cache, or for a disk.
    "cache-control": "no-store",
}
HOST: Final = re.compile(
    r"(?:\[(?P<number>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?",
    re.ASCII,
)
OTHER_SITES: Final = ("cross-site", "same-site")


class Guard:
    """Refuses what is no reading by whoever may read, and adds the headers of every answer.

    names      by which the server may be called, beside those of this machine
    is_public  whether it listens to others: addresses that are numbers are then its own
    """

    def __init__(
        self, app: ASGIApp, names: frozenset[str], *, is_public: bool
    ) -> None:
        self.app = app
        self.names = names | LOOPBACK_NAMES
        self.is_public = is_public

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a call, or let the pages do it."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in HEADERS.items():
                    headers[name] = text
            await send(message)

        refusal = self._refusal(scope)
        answer = self.app if refusal is None else refusal.response()
        await answer(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> RefusedRequest | None:
        headers = Headers(scope=scope)
        if not self._is_own(headers.getlist("host")):
            return RefusedRequest(
                status=421,
                message="the server is not known by this name",
                next_step="call it as it says when it starts, or start it with --name NAME",
            )
        if scope["method"] not in METHODS:
            return RefusedRequest(
                status=405,
                message="pages are only read",
                next_step="plan and apply in a terminal: tonnage plan",
            )
        # A link of another site leads here; a script of it reads nothing.
        if (
            headers.get("sec-fetch-site") in OTHER_SITES
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            return RefusedRequest(
                status=403,
                message="a page of another site has asked for this",
                next_step="open the page itself",
            )
        return None

    def _is_own(self, hosts: list[str]) -> bool:
        """Whether a call names this server; a name that was not given may lead anywhere."""
        if len(hosts) != 1:
            return False
        name = host_name(hosts[0])
        return name in self.names or (self.is_public and is_address(name))


class RefusedRequest(Struct, frozen=True, kw_only=True):
    """Why a call is not answered."""

    status: int
    message: str
    next_step: str

    def response(self) -> HTMLResponse:
        """Return the page that says so."""
        problem = Problem(
            code="refused", message=self.message, next_step=self.next_step
        )
        headers = {"allow": ", ".join(METHODS)} if self.status == 405 else None
        return HTMLResponse(
            problem_page("Refused", [problem]), self.status, headers
        )


def host_name(host: str) -> str:
    """Return the name of a host without its port: [::1]:8080 is ::1.

    What is neither a name nor a number in brackets with a port or without is no name at all.
    """
    found = HOST.fullmatch(host)
    return (found["number"] or found["name"]).lower() if found else ""


def is_address(name: str) -> bool:
    """Whether a host is a number, which no zone of names can lead elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
