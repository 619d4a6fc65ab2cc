"""Which request a comment goes to: options first, then what the CI says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from planner.errors import CredentialError, Problem, UsageError
from planner.render.clean import without_secrets
from providers.forge.host import default_api, host_of, whole_api
from providers.forge.setting import (
    find_login,
    names_tried,
    read_setting,
    token_help,
    token_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from providers.forge.host import ForgeHost
    from providers.forge.setting import ForgeLogin

SCHEMES: Final = ("https", "http")
THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")
# Numbers of runs; a job that says nothing of its attempt has the first one.
MOST_NUMBERS: Final = 4


class RequestTarget(Struct, frozen=True, kw_only=True):
    """A pull request or merge request, and the job that comments on it.

    run            number of the run and of its attempt; empty outside a CI
    commit         that the job works on; empty where it does not say
    report_url     where people see the job
    is_restricted  whether it is about a fork, so that its token may only read
    authority      file with the authority of the host's certificate; empty for the system's
    """

    host: ForgeHost
    api: str
    repository: str
    request: int
    run: tuple[int, ...] = ()
    commit: str = ""
    report_url: str = ""
    is_restricted: bool = False
    authority: str = ""

    @property
    def text(self) -> str:
        """The request as its code host writes it: OWNER/NAME#12."""
        return self.host.request_text(self.repository, self.request)

    @property
    def is_readable_on_the_way(self) -> bool:
        """Whether the token is sent to another machine without encryption."""
        parts = urlsplit(self.api)
        return parts.scheme == "http" and parts.hostname not in THIS_MACHINE


class TargetOptions(Struct, frozen=True, kw_only=True):
    """What a user says of a request; empty for what the CI shall say."""

    repository: str = ""
    request: int = 0
    api: str = ""
    commit: str = ""


def find_target(
    forge: str, options: TargetOptions, variables: Mapping[str, str]
) -> RequestTarget:
    """Return the request. Raises UsageError for what neither options nor the CI say."""

    def setting(field: str) -> str:
        return read_setting(forge, field, variables)

    api = options.api or setting("api") or default_api(forge)
    if not api:
        raise _unsaid(forge, "api", "the address of the API", "--api")
    host = host_of(forge, api)
    repository = options.repository or setting("repository")
    if not repository:
        raise _unsaid(forge, "repository", "the repository", "--repo")
    if not host.repository_form.fullmatch(repository):
        raise UsageError(
            Problem(
                code="comment-place",
                message=f"'{repository}' is no repository",
                next_step=f"write it as {host.repository_hint}: --repo",
            )
        )
    request_text = str(options.request or setting("request"))
    if not request_text.isdecimal() or not int(request_text):
        raise _unsaid(
            forge, "request", "the number of the request", "--request"
        )
    return RequestTarget(
        host=host,
        api=_checked_api(whole_api(host, api)),
        repository=repository,
        request=int(request_text),
        run=_run_numbers(setting("run")),
        commit=options.commit or setting("commit"),
        report_url=_web_url(setting("report")),
        is_restricted=bool(setting("restricted")),
        authority=setting("authority"),
    )


def _unsaid(forge: str, field: str, what: str, flag: str) -> UsageError:
    names = names_tried(forge, field)
    cause = f"no variable says it: {', '.join(names)}" if names else ""
    return UsageError(
        Problem(
            code="comment-place",
            message=f"nothing says {what}",
            cause=cause,
            next_step=f"name it with {flag}, or run in a pipeline of a request",
        )
    )


def _checked_api(api: str) -> str:
    """Return an address of the web that has no password in it."""
    parts = urlsplit(api)
    has_secret = "@" in parts.netloc or without_secrets(api) != api
    if parts.scheme in SCHEMES and parts.hostname and not has_secret:
        return api
    reason = "has a password" if has_secret else "is no address of the web"
    raise UsageError(
        Problem(
            code="comment-place",
            message=f"the address of the API {reason}",
            next_step="give one such as https://git.example.com: --api",
        )
    )


def _run_numbers(text: str) -> tuple[int, ...]:
    numbers = text.split(".")[:MOST_NUMBERS]
    return tuple(int(number) for number in numbers if number.isdecimal())


def _web_url(text: str) -> str:
    """Return an address that may stand in a comment; empty for another text."""
    is_plain = text.startswith("https://") and not set(text) & set(" ()<>\"'`")
    return text if is_plain else ""


def require_login(forge: str, variables: Mapping[str, str]) -> ForgeLogin:
    """Return the login of the job. Raises CredentialError without one; no message has a token."""
    try:
        found = find_login(forge, variables)
    except ValueError as error:
        raise CredentialError(
            Problem(
                code="comment-token",
                message=f"{error} has letters that no token has",
                next_step="set it again, without line breaks and quotes",
            )
        ) from None
    if found is None:
        names = ", ".join(
            row.variable for row in token_rows() if row.forge == forge
        )
        raise CredentialError(
            Problem(
                code="comment-token",
                message=f"there is no token: none of {names} is set",
                next_step=token_help(forge),
            )
        )
    return found[1]
