"""The file of a policy: its rules and its waivers, as they are written."""

from __future__ import annotations

from calendar import monthrange
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import Place, Problem, SpecError
from planner.plan.policy.document_shape import document_shapes
from planner.plan.policy.expression import (
    MAX_LENGTH,
    ExpressionNames,
    read_names,
)
from planner.spec.field import (
    MISSING,
    Block,
    ProblemReport,
    TextPattern,
    read_document,
    require_scalar,
)
from planner.spec.field_table import block_fields
from planner.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.spec.field import FieldType, JsonSchema
    from planner.spec.source import Node

RuleSeverity: TypeAlias = Literal["deny", "warn"]
BLOCK_SIGNS: Final = ("|", ">")
QUOTES: Final = ("'", '"')


class Expression(Struct, frozen=True, kw_only=True):
    """An expression of CEL, as it stands in a file.

    place  where its text begins
    """

    text: str
    place: Place
    names: ExpressionNames

    def place_at(self, offset: int, file_text: str) -> Place:
        """Return where a character of it stands in its file.

        YAML folds lines and indents them, so only what is no blank is counted.
        """
        lines = file_text.splitlines()
        line_index, column = self.place.line - 1, self.place.column - 1
        if lines[line_index][column : column + 1] in BLOCK_SIGNS:
            line_index, column = line_index + 1, 0
        elif lines[line_index][column : column + 1] in QUOTES:
            column += 1
        signs_before = len("".join(self.text[:offset].split()))
        while line_index < len(lines):
            for position in range(column, len(lines[line_index])):
                if lines[line_index][position].isspace():
                    continue
                if signs_before == 0:
                    return Place(self.place.path, line_index + 1, position + 1)
                signs_before -= 1
            line_index, column = line_index + 1, 0
        return self.place


class ExpressionType:
    """An expression of CEL over the documents of a plan."""

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the expression with what it names."""
        scalar_node = require_scalar(node, field_path, report)
        if scalar_node is None:
            return MISSING
        text = scalar_node.text
        if len(text) > MAX_LENGTH:
            return report.add(
                scalar_node.place,
                "too-long",
                f"{field_path} has {len(text):,} characters, more than {MAX_LENGTH:,}",
                "split it into several rules",
            )
        return Expression(
            text=text,
            place=scalar_node.place,
            names=read_names(text, document_shapes()),
        )

    def schema(self) -> JsonSchema:
        """Describe as text."""
        return {"type": "string", "maxLength": MAX_LENGTH}


class DayType:
    """A day that there is in the calendar."""

    pattern = TextPattern(
        r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
        "a day such as 2027-03-01",
    )

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the day as text."""
        text = self.pattern.read(node, field_path, report)
        if text is MISSING:
            return MISSING
        year, month, day = map(int, text.split("-"))
        if day > monthrange(year, month)[1]:
            return report.add(
                node.place,
                "value",
                f"{field_path}: there is no {text}",
                f"write {self.pattern.hint}",
            )
        return text

    def schema(self) -> JsonSchema:
        """Describe as a string with a pattern."""
        return self.pattern.schema()


class PolicyRule(Struct, frozen=True, kw_only=True):
    """A rule of a policy; when it is broken, and how grave that is.

    about  key of the spec, with points
    """

    place: Place
    id: str
    message: str
    severity: RuleSeverity
    when: Expression
    unless: Expression | None
    about: str | None
    help: str | None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Its expressions, in the order in which they are judged."""
        return (self.when,) if self.unless is None else (self.when, self.unless)

    @property
    def documents(self) -> frozenset[str]:
        """The documents that it reads."""
        return frozenset[str]().union(
            *(expression.names.documents for expression in self.expressions)
        )

    @property
    def spec_path(self) -> tuple[str, ...]:
        """The key of the spec that it is about; empty where it is about none."""
        if self.about is not None:
            return tuple(self.about.split("."))
        paths = [
            path
            for expression in self.expressions
            for path in expression.names.spec_paths
        ]
        return paths[0] if paths else ()


class PolicyWaiver(Struct, frozen=True, kw_only=True):
    """Stacks that a rule is not held against, up to the end of a day.

    name    of the one stack; None for all
    labels  that they have, all of them
    """

    place: Place
    rule: str
    name: str | None
    labels: Mapping[str, str]
    owner: str
    reason: str
    until: str

    def covers(self, stack: str, labels: Mapping[str, str]) -> bool:
        """Whether it is for a stack, on whatever day."""
        return self.name in (None, stack) and all(
            labels.get(key) == text for key, text in self.labels.items()
        )


class PolicyFile(Struct, frozen=True, kw_only=True):
    """A file with rules. `text` is what stands in it, for the places of what is wrong."""

    place: Place
    rules: tuple[PolicyRule, ...]
    waivers: tuple[PolicyWaiver, ...]
    text: str = ""

    @property
    def path(self) -> str:
        """Where it is."""
        return self.place.path

    def waivers_for(
        self, rule: PolicyRule, stack: str, labels: Mapping[str, str]
    ) -> tuple[PolicyWaiver, ...]:
        """Return the waivers of a rule for a stack, the one that holds longest first."""
        covering = [
            waiver
            for waiver in self.waivers
            if waiver.rule == rule.id and waiver.covers(stack, labels)
        ]
        return tuple(
            sorted(covering, key=lambda waiver: waiver.until, reverse=True)
        )


RULE_ID: Final = TextPattern(
    r"[a-z][a-z0-9-]{0,60}", "a name of a-z, 0-9 and -", 61
)
OWN_TYPES: Final[dict[str, FieldType]] = {
    "rule id": RULE_ID,
    "sentence": TextPattern(r"[^\x00-\x1f\x7f]+", "a line of text", 300),
    "key path": TextPattern(
        r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*",
        "a key of the spec such as where.regions",
    ),
    "expression": ExpressionType(),
    "day": DayType(),
}
POLICY_FILE: Final = Block(
    "policy",
    PolicyFile,
    block_fields(
        "policy",
        "policy",
        {
            name: Block(name, build, block_fields("policy", name, OWN_TYPES))
            for name, build in (("rule", PolicyRule), ("waiver", PolicyWaiver))
        },
    ),
    doc="What plans have to keep to: `plan`, `diff` and `apply` refuse what breaks it (exit 5).",
)


def read_policy(file_bytes: bytes, path: str) -> PolicyFile:
    """Return the policy of a file. Raises SpecError with all of its problems."""
    policy: PolicyFile = read_document(POLICY_FILE, file_bytes, path)
    policy = replace(policy, text=file_bytes.decode("utf-8-sig"))
    problems = [*_wrong_ids(policy), *_wrong_expressions(policy)]
    if problems:
        raise SpecError(*sorted(problems, key=_position))
    return policy


def _position(problem: Problem) -> tuple[int, int]:
    place = problem.place
    return (place.line, place.column) if place is not None else (0, 0)


def _wrong_ids(policy: PolicyFile) -> Iterator[Problem]:
    """Yield rules of one name, and waivers of rules that there are not."""
    rules: dict[str, PolicyRule] = {}
    for rule in policy.rules:
        first = rules.setdefault(rule.id, rule)
        if first is not rule:
            yield Problem(
                code="duplicate-rule",
                message=f"the rule {rule.id} is there twice, first in line {first.place.line}",
                place=rule.place,
                next_step="name one of both otherwise",
            )
    for waiver in policy.waivers:
        if waiver.rule not in rules:
            nearest = closest(waiver.rule, rules)
            yield Problem(
                code="rule",
                message=f"no rule of the file is named {waiver.rule}",
                place=waiver.place,
                next_step=f"did you mean '{nearest}'?"
                if nearest
                else "remove the waiver, or name its rule",
            )


def _wrong_expressions(policy: PolicyFile) -> Iterator[Problem]:
    """Yield names that mean nothing, and what is nested too deep.

    A key that no document has refuses plans, not the file: it is a missing key like any other.
    """
    for rule in policy.rules:
        for expression in rule.expressions:
            for fault in expression.names.faults:
                if fault.kind != "key":
                    yield Problem(
                        code=f"expression-{fault.kind}",
                        message=f"rule {rule.id}: {fault.message}",
                        place=expression.place_at(fault.offset, policy.text),
                        next_step=fault.hint,
                    )
