"""What an expression of the Common Expression Language (CEL) names, read without evaluating it.

The engine of CEL tells of a key that is missing only where it comes by it: a part that is not
reached hides it. Here every name of an expression is held against what documents can have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, field

from planner.plan.policy.shape import OPEN
from planner.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.plan.policy.shape import Shape

MAX_LENGTH: Final = 2_000
MAX_NESTING: Final = 32
# A loop in a loop in a loop over some hundred resources takes seconds.
MAX_LOOPS: Final = 3
MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})
# Functions of the language, and those of docs/policy.md.
FUNCTIONS: Final = frozenset(
    {
        "age_days",
        "bool",
        "bytes",
        "contains",
        "double",
        "duration",
        "dyn",
        "endsWith",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
        "has",
        "int",
        "matches",
        "max",
        "min",
        "size",
        "startsWith",
        "string",
        "sum",
        "timestamp",
        "type",
        "uint",
        *MACROS,
    }
)
LITERALS: Final = frozenset({"true", "false", "null", "in"})
CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
SPEC_PREFIXES: Final = (("spec",), ("plan", "spec", "normalized"))
BLANK: Final = "blank"
TOKEN: Final = re.compile(
    r"""
      (?P<blank> \s+ | //[^\n]* )
    | (?P<text> [rRbB]{0,2} (?:
          \"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
        | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' ) )
    | (?P<number> 0x[0-9a-fA-F]+u? | \d+(?:\.\d+)?(?:[eE][+-]?\d+)?[uU]? )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<sign> && | \|\| | [<>=!]= | . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(Struct, frozen=True):
    """A word or a sign of an expression, and how many characters stand before it.

    kind  text, number, name, sign or end
    """

    kind: str
    text: str
    offset: int


class ExpressionFault(Struct, frozen=True, kw_only=True):
    """What is wrong in an expression, and where.

    kind  key: a document never has it; name: no such document or function; nesting: too deep
    """

    kind: Literal["key", "name", "nesting"]
    message: str
    hint: str
    offset: int


class ExpressionNames(Struct, frozen=True, kw_only=True):
    """What an expression names.

    documents   names of the documents that it reads
    read_paths  what it reads of them by keys alone, each from the name of its document
    """

    documents: frozenset[str]
    read_paths: tuple[tuple[str, ...], ...]
    faults: tuple[ExpressionFault, ...]

    @property
    def spec_paths(self) -> tuple[tuple[str, ...], ...]:
        """Keys of the spec that it reads, each as a path."""
        return tuple(
            path[len(prefix) :]
            for path in self.read_paths
            for prefix in SPEC_PREFIXES
            if path[: len(prefix)] == prefix and len(path) > len(prefix)
        )


class Chain(Struct):
    """A name with the keys that follow it, as far as it has been read."""

    path: list[str] = field(default_factory=list)
    shape: Shape = OPEN


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the words and signs of an expression, and its end."""
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or BLANK
        if kind != BLANK:
            yield Token(kind, match[0], match.start())
    yield Token("end", "", len(text))


def read_names(text: str, documents: Mapping[str, Shape]) -> ExpressionNames:
    """Return what an expression names, with what no document and no function is named."""
    reader = NameReader(text, documents)
    reader.read_until("")
    return ExpressionNames(
        documents=frozenset(reader.documents_read),
        read_paths=tuple(dict.fromkeys(reader.read_paths)),
        faults=tuple(reader.faults),
    )


def place_of_key(text: str, key: str) -> int:
    """Return how many characters stand before a key in an expression; 0 where it is not there."""
    quoted = (f'"{key}"', f"'{key}'")
    return next(
        (
            token.offset
            for token in tokens_of(text)
            if token.text == key or token.text in quoted
        ),
        0,
    )


class NameReader:
    """Reads names from left to right; what stands between brackets is read by itself."""

    def __init__(self, text: str, documents: Mapping[str, Shape]) -> None:
        self.tokens = list(tokens_of(text))
        self.position = 0
        self.nesting = 0
        self.loops = 0
        # Variables of loops are entered while their loop is read.
        self.scope: dict[str, Shape] = dict(documents)
        self.document_names = frozenset(documents)
        self.documents_read: set[str] = set()
        self.read_paths: list[tuple[str, ...]] = []
        self.faults: list[ExpressionFault] = []

    @property
    def token(self) -> Token:
        """The token that is read next."""
        return self.tokens[self.position]

    def read_until(self, closing: str) -> None:
        """Read up to a closing bracket, or up to the end of the expression."""
        while self.token.kind != "end" and self.token.text != closing:
            token = self.token
            if token.kind == "name" and token.text not in LITERALS:
                self._read_chain()
            elif token.kind == "sign" and token.text in CLOSING:
                self._read_brackets()
            else:
                self.position += 1

    def _read_brackets(self) -> None:
        """Read a pair of brackets with all in between."""
        opening = self.token
        self.position += 1
        if self.nesting == MAX_NESTING:
            self._refuse_nesting(
                f"brackets are nested deeper than {MAX_NESTING}"
            )
            return
        self.nesting += 1
        self.read_until(CLOSING[opening.text])
        self.nesting -= 1
        # A bracket that is not closed is told by the engine.
        if self.token.kind != "end":
            self.position += 1

    def _read_chain(self) -> None:
        """Read a name and all that follows it: keys, positions and calls."""
        token = self.token
        self.position += 1
        chain = Chain([token.text])
        if self.token.text == "(":
            self._check_function(token)
            self._read_brackets()
        # A key of a mapping that is written out: {name: 1}.
        elif token.text in self.scope:
            chain.shape = self.scope[token.text]
            if token.text in self.document_names:
                self.documents_read.add(token.text)
        else:
            self._refuse_name(token, self.scope, "document")
        while self.token.text in (".", "["):
            if self.token.text == "[":
                self._read_position(chain)
            else:
                self.position += 1
                self._read_member(chain)
        self._keep_path(chain)

    def _read_member(self, chain: Chain) -> None:
        """Read what follows a point: a key, or a call."""
        token = self.token
        if token.kind != "name":
            return
        self.position += 1
        if self.token.text != "(":
            self._enter(chain, token.text, token.offset)
            return
        self._keep_path(chain)
        self._check_function(token)
        if token.text in MACROS:
            self._read_loop(chain.shape)
        else:
            self._read_brackets()
        chain.path.clear()
        if token.text != "filter":
            chain.shape = OPEN

    def _read_loop(self, shape: Shape) -> None:
        """Read the brackets of a loop, in which its variable is an element of a list."""
        if self.loops == MAX_LOOPS:
            self._refuse_nesting(f"loops are nested deeper than {MAX_LOOPS}")
            return
        variable = self.tokens[self.position + 1].text
        hidden_shape = self.scope.get(variable)
        self.scope[variable] = shape.element()
        self.loops += 1
        self._read_brackets()
        self.loops -= 1
        if hidden_shape is None:
            del self.scope[variable]
        else:
            self.scope[variable] = hidden_shape

    def _read_position(self, chain: Chain) -> None:
        """Read brackets after a value: the position in a list, or the key of a mapping."""
        begin = self.position + 1
        self._read_brackets()
        inner = self.tokens[begin]
        if inner.kind == "text" and self.position == begin + 2:
            self._enter(chain, inner.text.strip("\"'"), inner.offset)
        else:
            self._keep_path(chain)
            chain.path.clear()
            chain.shape = chain.shape.entry()

    def _enter(self, chain: Chain, key: str, offset: int) -> None:
        """Go on to a key; tell of one that there never is."""
        keys = chain.shape.keys
        # After a call or a position, it is no path of keys alone.
        if chain.path:
            chain.path.append(key)
        if keys is None or key in keys:
            chain.shape = chain.shape.member(key)
            return
        nearest = closest(key, keys)
        self.faults.append(
            ExpressionFault(
                kind="key",
                message=f"missing key {key}",
                hint=f"did you mean '{nearest}'?" if nearest else "",
                offset=offset,
            )
        )
        chain.shape = OPEN

    def _keep_path(self, chain: Chain) -> None:
        """Keep what is read of a document by keys alone."""
        if chain.path and chain.path[0] in self.document_names:
            self.read_paths.append(tuple(chain.path))

    def _check_function(self, token: Token) -> None:
        if token.text not in FUNCTIONS:
            self._refuse_name(token, FUNCTIONS, "function")

    def _refuse_name(
        self,
        token: Token,
        known_names: Mapping[str, Shape] | frozenset[str],
        sort: str,
    ) -> None:
        nearest = closest(token.text, known_names)
        self.faults.append(
            ExpressionFault(
                kind="name",
                message=f"no {sort} is named {token.text}",
                hint=f"did you mean '{nearest}'?"
                if nearest
                else f"use one of: {', '.join(sorted(known_names))}",
                offset=token.offset,
            )
        )

    def _refuse_nesting(self, message: str) -> None:
        """Tell of an expression that is nested too deep, and read no more of it."""
        self.faults.append(
            ExpressionFault(
                kind="nesting",
                message=message,
                hint="split it into several rules",
                offset=self.token.offset,
            )
        )
        self.position = len(self.tokens) - 1
