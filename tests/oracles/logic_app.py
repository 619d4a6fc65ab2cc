"""An interpreter of Azure Logic Apps, by the reference of their language.

It knows what the definitions of this project use, and refuses everything else. Functions evaluate
all their arguments: the reference does not say that `if` and `and` stop early.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<word>[a-zA-Z]\w*)"
    r"|(?P<sign>\?\[|[\[\](),]))"
)
ENDED = {"Succeeded", "Failed", "Skipped", "TimedOut"}
EPOCH = datetime(1, 1, 1, tzinfo=UTC)


class Answer(NamedTuple):
    """What a service answered, as an action has it."""

    status: int
    body: Any


class LogicApp:
    """A logic app with the services that it asks.

    `ask` is given method, URI with its query, headers and body, and who asks.
    """

    def __init__(
        self,
        definition: Mapping[str, Any],
        parameters: Mapping[str, Any],
        ask: Callable[[dict[str, Any]], Answer],
        now: datetime,
    ) -> None:
        assert set(parameters) == set(definition["parameters"])
        self._definition = definition
        self._parameters = parameters
        self._ask = ask
        self._now = now
        self._variables: dict[str, Any] = {}
        self._items: dict[str, Any] = {}
        self._answers: dict[str, Answer] = {}

    def run(self) -> None:
        self._actions(self._definition["actions"])

    def _actions(self, actions: Mapping[str, Any]) -> bool:
        """Run actions in the order of `runAfter`; return whether all ended well."""
        statuses: dict[str, str] = {}
        waiting = dict(actions)
        while waiting:
            name = next(
                name
                for name, action in waiting.items()
                if action["runAfter"].keys() <= statuses.keys()
            )
            action = waiting.pop(name)
            assert all(set(s) <= ENDED for s in action["runAfter"].values())
            runs = all(
                statuses[before] in wanted
                for before, wanted in action["runAfter"].items()
            )
            self._answers.pop(name, None)
            statuses[name] = "Skipped"
            if runs:
                ended_well = self._action(name, action)
                statuses[name] = "Succeeded" if ended_well else "Failed"
        return "Failed" not in statuses.values()

    def _action(self, name: str, action: Mapping[str, Any]) -> bool:
        try:
            run = getattr(self, f"_run_{action['type'].lower()}")
            ended_well: bool = run(name, action)
        except (LookupError, TypeError, ValueError):
            # An expression without a value fails its action.
            return False
        return ended_well

    def _run_initializevariable(
        self, _: str, action: Mapping[str, Any]
    ) -> bool:
        [variable] = action["inputs"]["variables"]
        self._variables[variable["name"]] = self._value(variable["value"])
        return True

    def _run_setvariable(self, _: str, action: Mapping[str, Any]) -> bool:
        name = action["inputs"]["name"]
        assert name in self._variables
        self._variables[name] = self._value(action["inputs"]["value"])
        return True

    def _run_until(self, _: str, action: Mapping[str, Any]) -> bool:
        ended_well = True
        for _round in range(action["limit"]["count"]):
            ended_well = self._actions(action["actions"])
            if self._value(action["expression"]):
                break
        return ended_well

    def _run_foreach(self, name: str, action: Mapping[str, Any]) -> bool:
        ended_well = True
        for item in self._value(action["foreach"]):
            self._items[name] = item
            ended_well &= self._actions(action["actions"])
        return ended_well

    def _run_if(self, _: str, action: Mapping[str, Any]) -> bool:
        branch = (
            action["actions"]
            if self._holds(action["expression"])
            else action.get("else", {"actions": {}})["actions"]
        )
        return self._actions(branch)

    def _run_http(self, name: str, action: Mapping[str, Any]) -> bool:
        inputs = self._value(action["inputs"])
        answer = self._ask(inputs)
        self._answers[name] = answer
        return 200 <= answer.status < 300

    def _holds(self, condition: Mapping[str, Any]) -> bool:
        [(kind, operands)] = condition.items()
        if kind == "and":
            return all(list(map(self._holds, operands)))
        if kind == "or":
            return any(list(map(self._holds, operands)))
        if kind == "not":
            return not self._holds(operands)
        one, other = map(self._value, operands)
        holds: bool = {
            "equals": lambda: one == other,
            "less": lambda: one < other,
            "greater": lambda: one > other,
            "contains": lambda: other in one,
        }[kind]()
        return holds

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self._value(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._value(element) for element in value]
        if not isinstance(value, str) or not value.startswith("@"):
            return value
        tokens = list(TOKEN.finditer(value, 1))
        assert "".join(t.group() for t in tokens) == value[1:], value
        found, rest = self._expression(tokens)
        assert not rest, value
        return found

    def _expression(self, tokens: list[re.Match[str]]) -> tuple[Any, list[Any]]:
        first, tokens = tokens[0], tokens[1:]
        if first["text"] is not None:
            return first["text"][1:-1].replace("''", "'"), tokens
        if first["number"] is not None:
            return int(first["number"]), tokens
        assert tokens[0]["sign"] == "("
        arguments, tokens = [], tokens[1:]
        while tokens[0]["sign"] != ")":
            argument, tokens = self._expression(tokens)
            arguments.append(argument)
            if tokens[0]["sign"] == ",":
                tokens = tokens[1:]
        value, tokens = self._function(first["word"], arguments), tokens[1:]
        while tokens and tokens[0]["sign"] in ("[", "?["):
            is_optional = tokens[0]["sign"] == "?["
            key, tokens = self._expression(tokens[1:])
            assert tokens[0]["sign"] == "]"
            tokens = tokens[1:]
            if not is_optional:
                value = value[key]
            elif value is not None:
                value = value.get(key)
        return value, tokens

    def _function(self, name: str, arguments: list[Any]) -> Any:
        functions: dict[str, Callable[..., Any]] = {
            "addMinutes": lambda t, n: _written(
                _moment(t) + timedelta(minutes=n)
            ),
            "body": lambda action: self._answers[action].body,
            "coalesce": lambda *values: next(
                (value for value in values if value is not None), None
            ),
            "concat": lambda *texts: "".join(texts),
            "encodeUriComponent": lambda text: quote(text, safe=""),
            "equals": lambda one, other: one == other,
            "formatDateTime": lambda t, form: (
                _moment(t).strftime("%a, %d %b %Y %H:%M:%S GMT")
                if form == "R"
                else ValueError
            ),
            "if": lambda holds, one, other: one if holds else other,
            "items": self._items.__getitem__,
            "last": lambda values: values[-1],
            "mul": lambda one, other: one * other,
            "outputs": self._outputs,
            "parameters": self._parameters.__getitem__,
            "split": lambda text, sign: text.split(sign),
            "string": lambda value: json.dumps(value, separators=(",", ":")),
            "ticks": lambda t: (_moment(t) - EPOCH) / timedelta(microseconds=1),
            "utcNow": lambda: _written(self._now),
            "variables": self._variables.__getitem__,
        }
        return functions[name](*arguments)

    def _outputs(self, action: str) -> dict[str, Any] | None:
        answer = self._answers.get(action)
        return answer and {"statusCode": answer.status, "body": answer.body}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _written(moment: datetime) -> str:
    return moment.isoformat()
