"""Rules as data: what cannot be built, what cannot be combined, and what is not safe.

A rule says when it is broken, in conditions on named facts that are joined by `and`:

    fraction below 1
    type is gcp:compute/firewall:Firewall and network refers networkProfile

A condition is a path, an operator and a value. A path leads through mappings; of a list, one
element is enough. What is referred to has a property, or one of a value:

    template refers market.type=block

What one element must have all of is written as `has` or `lacks`:

    disks lacks encrypted=true
    rules has from=*|Internet,access=Allow,port!=443

Resources of a graph have their type and `$name` beside their inputs.
"""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct

from planner.errors import MissingError, Problem
from planner.facts import table
from planner.facts.cloud import clouds
from planner.facts.cloud_limit import cloud_limit
from planner.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Phase: TypeAlias = Literal[
    "spec",
    "machine",
    "software",
    "owned",
    "reservation",
    "training",
    "network",
    "addresses",
    "public",
    "fleet",
    "graph",
    "security",
]
Severity: TypeAlias = Literal["refuse", "high", "medium", "low"]
# What is asked when, and what a rule of it then does.
PHASES: Final[dict[Phase, str]] = {
    "spec": "check and plan refuse the spec",
    "machine": "a plan takes another machine type",
    "software": "a plan takes another machine type, or compares it alone where "
    "where.accelerators.allow has its accelerator",
    "owned": "a plan with buy.reservations takes another machine type",
    "reservation": "a plan with buy.reserve takes another machine type",
    "training": "a plan of a training takes another machine type",
    "network": "check and plan refuse the spec",
    "addresses": "a plan with network.range takes another machine type",
    "public": "a plan with network.public_addresses takes another machine type or fleet",
    "fleet": "a plan takes another fleet",
    "graph": "nothing that is built breaks it",
    "security": "check --security tells it",
}
EVERY_CLOUD: Final = "*"
AND: Final = " and "
# Operators on what single elements have: all of it, or not.
MATCHING: Final = ("has", "lacks")
# Operators without a value.
BARE: Final = ("present", "absent")


class Condition(Struct, frozen=True):
    """One condition on the facts of a thing."""

    path: str
    operator: str
    value: str

    def holds(
        self, facts: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Whether it holds; `others` are the facts of what references name."""
        found = list(_values(facts, self.path.split(".")))
        if self.operator == "unguarded":
            return not any(
                other.get("type") == self.value
                and facts.get("$name") in _referenced(other)
                for other in others.values()
            )
        if self.operator == "refers":
            path, _, cell = self.value.partition("=")
            return any(
                not cell or _text(there) == cell
                for value in found
                if isinstance(value, dict)
                for there in _values(
                    others.get(value.get("$ref", ""), {}), path.split(".")
                )
            )
        if self.operator in MATCHING:
            wanted = self.operator == "has"
            return any(_matches(one, self.value) is wanted for one in found)
        return OPERATORS[self.operator](found, self.value)


class Rule(Struct, frozen=True, kw_only=True):
    """A rule of data/rules.csv.

    cloud     whose it is; `*` for that of every cloud
    when      conditions under which it is broken; all of them must hold
    reason    what is wrong then
    remedy    what helps
    """

    id: str
    cloud: str
    phase: Phase
    when: str
    severity: Severity
    reason: str
    remedy: str
    source: str
    as_of: str

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions, as they are written."""
        return _conditions(self.when)

    @property
    def told(self) -> str:
        """What is wrong, and by which rule."""
        return f"{self.reason} ({self.id})"

    def is_broken(
        self,
        facts: Mapping[str, Any],
        others: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Whether a thing with some facts breaks it."""
        return all(
            condition.holds(facts, others or {})
            for condition in self.conditions
        )

    @property
    def limit(self) -> int | None:
        """The row of data/cloud_limits.csv that a rule on fleets names; none for other rules."""
        if self.phase != "fleet":
            return None
        return cloud_limit(self.cloud, self.conditions[0].value)


def _values(facts: Any, path: list[str]) -> Iterator[Any]:
    """Yield every value at a path; a list stands for its elements."""
    if isinstance(facts, list | tuple):
        for element in facts:
            yield from _values(element, path)
    elif not path:
        yield facts
    elif isinstance(facts, dict) and path[0] in facts:
        yield from _values(facts[path[0]], path[1:])


def _referenced(value: Any) -> set[str]:
    """Return the names that a value refers to, anywhere."""
    if isinstance(value, list | tuple):
        return {name for element in value for name in _referenced(element)}
    if not isinstance(value, dict):
        return set()
    if "$ref" in value:
        return {str(value["$ref"])}
    return {name for part in value.values() for name in _referenced(part)}


def _matches(element: Any, wanted: str) -> bool:
    """Whether an element has all of path=text|text,path!=text.

    The first has one of the texts; the second has something else, or nothing.
    """
    for part in wanted.split(","):
        path, _, cell = part.partition("=")
        texts = cell.split("|")
        values = [
            _text(value)
            for value in _values(element, path.rstrip("!").split("."))
        ]
        if path.endswith("!"):
            holds = not values or any(value not in texts for value in values)
        else:
            holds = any(value in texts for value in values)
        if not holds:
            return False
    return True


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(found: list[Any]) -> Iterator[float]:
    for value in found:
        if isinstance(value, int | float):
            yield float(value)


# Each takes the values at a path and the value of the condition.
OPERATORS: Final[dict[str, Callable[[list[Any], str], bool]]] = {
    "is": lambda found, value: any(_text(one) == value for one in found),
    "not": lambda found, value: all(_text(one) != value for one in found),
    "in": lambda found, value: any(
        _text(one) in value.split("|") for one in found
    ),
    "contains": lambda found, value: any(value in _text(one) for one in found),
    "below": lambda found, value: any(
        number < float(value) for number in _numbers(found)
    ),
    "above": lambda found, value: any(
        number > float(value) for number in _numbers(found)
    ),
    "overlaps": lambda found, value: any(
        IPv4Network(one).overlaps(IPv4Network(value)) for one in found
    ),
    "present": lambda found, _: bool(found),
    "absent": lambda found, _: not found,
}


@cache
def _conditions(text: str) -> tuple[Condition, ...]:
    """Read conditions. Raises ValueError for one that is none."""
    conditions = []
    for part in text.split(AND):
        path, _, rest = part.partition(" ")
        operator, _, value = rest.partition(" ")
        known = operator in (*OPERATORS, *MATCHING, "refers", "unguarded")
        if not known or bool(value) == (operator in BARE):
            raise ValueError(f"no condition: {part}")
        conditions.append(Condition(path, operator, value))
    return tuple(conditions)


def _checked_conditions(cell: str) -> str:
    _conditions(cell)
    return cell


@cache
def rules() -> dict[str, Rule]:
    """Return all rules by id. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "id": table.nonempty_text,
        "cloud": table.one_of(EVERY_CLOUD, *clouds()),
        "phase": table.one_of(*PHASES),
        "when": _checked_conditions,
        "severity": table.one_of("refuse", "high", "medium", "low"),
        "reason": table.nonempty_text,
        "remedy": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.rows_by_key(
        table.load_rows("planner.facts", "rules.csv", columns), "id"
    )
    return {rule_id: Rule(**row.cells) for (rule_id,), row in rows.items()}


def rules_of(phase: Phase, cloud: str) -> tuple[Rule, ...]:
    """Return the rules of a phase that bind a cloud."""
    return tuple(
        rule
        for rule in rules().values()
        if rule.phase == phase and rule.cloud in (EVERY_CLOUD, cloud)
    )


def broken_rules(
    phase: Phase,
    cloud: str,
    resources: Iterable[tuple[str, str, Mapping[str, Any]]],
) -> list[tuple[Rule, str]]:
    """Return the rules of a phase that resources break, each with the name of the resource.

    Resources are type, name and inputs; of a graph, all of them.
    """
    facts_by_name = {
        name: {**inputs, "type": type_, "$name": name}
        for type_, name, inputs in resources
    }
    return [
        (rule, name)
        for rule in rules_of(phase, cloud)
        for name, facts in facts_by_name.items()
        if rule.is_broken(facts, facts_by_name)
    ]


@cache
def accepting_keys() -> dict[str, str]:
    """Return by rule the key of a spec that asks for what the rule finds, and so accepts it.

    Raises CatalogError for an invalid row.
    """
    columns: table.Columns = {
        "rule": table.one_of(*rules()),
        "key": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.facts", "accepting_keys.csv", columns)
    return {row["rule"]: row["key"] for row in rows}


def rule_of_limit(cloud: str, limit: str) -> Rule | None:
    """Return the rule that names a limit of data/cloud_limits.csv."""
    return next(
        (
            rule
            for rule in rules_of("fleet", cloud)
            if rule.conditions[0].value == limit
        ),
        None,
    )


def find_rule(rule_id: str) -> Rule:
    """Return a rule by its id. Raises MissingError for one that there is not."""
    found = rules().get(rule_id)
    if found is None:
        raise MissingError(
            Problem(
                code="rule",
                message=f"no rule is named {rule_id}",
                next_step=did_you_mean(
                    rule_id,
                    rules(),
                    otherwise="see all of a cloud: docs/clouds",
                ),
            )
        )
    return found
