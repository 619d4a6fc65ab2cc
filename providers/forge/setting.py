"""Where a comment goes, as the CI that runs the job says it: variables, and the event's file."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.facts import table
from planner.render.clean import without_secrets
from providers.files import MAX_DOCUMENT_BYTES, read_regular
from providers.forge.host import forge_names, pattern_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIELDS: Final = (
    "repository",
    "request",
    "api",
    "commit",
    "run",
    "report",
    "restricted",
    "event_commit",
    "event_repository",
    "authority",
)
BRACES: Final = re.compile(r"\{([^{}]+)\}")
EVENT: Final = "event:"
EVENT_FILE: Final = "GITHUB_EVENT_PATH"
MASK: Final = "***"
# Shorter words would be found in any text.
SHORTEST_SECRET: Final = 6


class VariableRow(Struct, frozen=True, kw_only=True):
    """A way in which a CI says something.

    template  of variables in braces; those that begin with event: are of the event's file
    pattern   of which the groups `value` and `name` are what is said; none: all of it
    """

    forge: str
    field: str
    ci: str
    template: str
    pattern: re.Pattern[str] | None

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it reads."""
        return tuple(BRACES.findall(self.template))

    def read(self, variables: Mapping[str, str]) -> str:
        """Return what is said; empty when a variable is missing or says something else."""
        if not all(variables.get(name) for name in self.variables):
            return ""
        text = BRACES.sub(lambda brace: variables[brace[1]], self.template)
        if self.pattern is None:
            return text
        pattern_match = self.pattern.fullmatch(text)
        if pattern_match is None:
            return ""
        groups = pattern_match.groupdict()
        return "/".join(
            groups[name] for name in ("value", "name") if groups.get(name)
        )


class TokenRow(Struct, frozen=True, kw_only=True):
    """A variable with a token, and how it is sent. `how` one gets such a token, in words."""

    forge: str
    variable: str
    user_variable: str
    is_basic: bool
    how: str


class ForgeLogin:
    """How a job signs in. It hides itself: no text of it has the token."""

    def __init__(self, header: str, secrets: tuple[str, ...]) -> None:
        self.header = header
        self._secrets = tuple(
            secret for secret in secrets if len(secret) >= SHORTEST_SECRET
        )

    def __repr__(self) -> str:
        """Return what may be seen of it."""
        return f"ForgeLogin({MASK})"

    def masked(self, text: str) -> str:
        """Return a text without the token, as it is or as it was sent."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return without_secrets(text)


@cache
def variable_rows() -> tuple[VariableRow, ...]:
    """Return all ways, in the order in which they are tried."""
    columns: table.Columns = {
        "forge": table.one_of(*forge_names()),
        "field": table.one_of(*FIELDS),
        "ci": table.nonempty_text,
        "template": table.nonempty_text,
        "pattern": table.optional(pattern_cell),
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        VariableRow(
            forge=row["forge"],
            field=row["field"],
            ci=row["ci"],
            template=row["template"],
            pattern=row["pattern"],
        )
        for row in table.load_rows("providers", "forge_variables.csv", columns)
    )


@cache
def token_rows() -> tuple[TokenRow, ...]:
    """Return all variables with tokens, in the order in which they are tried."""
    columns: table.Columns = {
        "forge": table.one_of(*forge_names()),
        "variable": table.nonempty_text,
        "user_variable": table.any_text,
        "scheme": table.one_of("bearer", "basic"),
        "how": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        TokenRow(
            forge=row["forge"],
            variable=row["variable"],
            user_variable=row["user_variable"],
            is_basic=row["scheme"] == "basic",
            how=row["how"],
        )
        for row in table.load_rows("providers", "forge_tokens.csv", columns)
    )


def with_event(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a job, and the event's values that some row reads."""
    variables = dict(environment)
    path = environment.get(EVENT_FILE)
    if not path:
        return variables
    try:
        event = json.loads(read_regular(path, MAX_DOCUMENT_BYTES))
    except (OSError, ValueError):
        # A job may have been started by hand: then options say where.
        return variables
    for row in variable_rows():
        for name in row.variables:
            if name.startswith(EVENT):
                variables[name] = _event_value(event, name.removeprefix(EVENT))
    return variables


def _event_value(event: Any, path: str) -> str:
    value = event
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | int) else ""


def read_setting(forge: str, field: str, variables: Mapping[str, str]) -> str:
    """Return what the CI says of a field; empty when it says nothing."""
    for row in _rows_of(forge, field):
        text = row.read(variables)
        if text:
            return text
    return ""


def names_tried(forge: str, field: str) -> tuple[str, ...]:
    """Return the variables that would have said something of a field, each once."""
    names = (name for row in _rows_of(forge, field) for name in row.variables)
    return tuple(
        dict.fromkeys(
            EVENT_FILE if name.startswith(EVENT) else name for name in names
        )
    )


def _rows_of(forge: str, field: str) -> Iterator[VariableRow]:
    return (
        row
        for row in variable_rows()
        if row.forge == forge and row.field == field
    )


def find_login(
    forge: str, variables: Mapping[str, str]
) -> tuple[str, ForgeLogin] | None:
    """Return the variable with a token, and the login that it gives; None without one.

    Raises ValueError, with the name of the variable alone, for what cannot be a token.
    """
    for row in token_rows():
        token = variables.get(row.variable, "").strip()
        user = variables.get(row.user_variable, "").strip()
        if row.forge != forge or not token or (row.user_variable and not user):
            continue
        if not (token + user).isascii() or not (token + user).isprintable():
            raise ValueError(row.variable)
        if not row.is_basic:
            return row.variable, ForgeLogin(f"Bearer {token}", (token,))
        pair = base64.b64encode(f"{user}:{token}".encode()).decode()
        return row.variable, ForgeLogin(f"Basic {pair}", (pair, token))
    return None


def token_help(forge: str) -> str:
    """Return how a job of a forge gets a token."""
    return next(
        row.how for row in token_rows() if row.forge == forge and row.how
    )
