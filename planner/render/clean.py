"""Text that anybody may have written, made safe for terminals and for the logs of pipelines."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Letters that turn the direction of text show another word than the one that is there.
DIRECTION_MARKS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
# What pipelines read as a command of their own: at the start of a line, or anywhere in it.
LINE_COMMAND: Final = re.compile(r"(?m)^(\s*):(?=:)|^(\s*)##(?=teamcity\[)")
INNER_COMMAND: Final = re.compile(r"##(?=\[|vso\[)")
# Colors, which we write ourselves.
COLOR_CODE: Final = re.compile(r"(\x1b\[[0-9;]*m)")
URL_PASSWORD: Final = re.compile(r"(\w://)[^/\s@'\"]+@(?=[\w.\[-])")
SECRET_QUERY: Final = re.compile(
    r"([?&](?:[\w%.-]*(?:sig|secret|token|password|credential|key)[\w%.-]*)=)[^&\s'\"]+",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """Return a text without control characters, commands of pipelines, and secrets of URLs.

    Line breaks and colors stay.
    """
    parts = COLOR_CODE.split(without_secrets(text))
    shown = "".join(
        part if COLOR_CODE.fullmatch(part) else _printable(part)
        for part in parts
    )
    return INNER_COMMAND.sub("# #", LINE_COMMAND.sub(_spaced, shown))


def without_secrets(text: str) -> str:
    """Return a text in which URLs have neither passwords nor signatures."""
    # An address of Azure has the container before the account, which is no secret.
    shown = URL_PASSWORD.sub(
        lambda found: (
            found[0] if ":" not in found[0][4:] else f"{found[1]}***@"
        ),
        text,
    )
    return SECRET_QUERY.sub(r"\1***", shown)


def _printable(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if _is_shown(character) else "?" for character in text
    )


def _is_shown(character: str) -> bool:
    if character in "\n\t":
        return True
    return (
        unicodedata.category(character)[0] != "C"
        and character not in DIRECTION_MARKS
    )


def _spaced(found: re.Match[str]) -> str:
    """Return what begins a command with a space in it, which no pipeline takes for one."""
    return f"{found[0].rstrip(':#')}{found[0].strip()[0]} "
