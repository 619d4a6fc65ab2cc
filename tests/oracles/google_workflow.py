"""An interpreter of Google Cloud Workflows, by the reference of their language.

It knows what the workflows of this project use, and refuses everything else. Logical operators
evaluate both sides: the reference does not say that they stop early.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import yaml

MAX_EXPRESSION = 400
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda key, collection: key in collection,
    ast.Or: lambda one, other: one or other,
}
NAMES = {"true": True, "false": False, "null": None}
KINDS = {
    ("assign",),
    ("call", "args", "result"),
    ("call", "args"),
    ("try", "except"),
    ("try", "retry"),
    ("for",),
    ("switch",),
    ("return",),
}


class WorkflowError(Exception):
    """What `except` catches; `args[0]` is the error as a map."""


class ReturnedError(Exception):
    """The end of a workflow, with its value."""


class Workflow:
    """A workflow with the services that it asks.

    `ask` is given method, URL, query or body, and returns the body of the answer. It raises
    WorkflowError for statuses from 400.
    """

    def __init__(
        self,
        source: str,
        ask: Callable[[str, str, Mapping[str, Any]], Any],
        now_s: float,
        project: str,
    ) -> None:
        self._workflows = yaml.safe_load(source)
        self._ask = ask
        self.log: list[tuple[str, str]] = []
        self._functions: dict[str, Callable[..., Any]] = {
            "sys.now": lambda: now_s,
            "sys.get_env": {"GOOGLE_CLOUD_PROJECT_ID": project}.__getitem__,
            "time.parse": lambda text: datetime.fromisoformat(text).timestamp(),
            "time.format": lambda s: datetime.fromtimestamp(s, UTC).isoformat(),
            "map.get": lambda collection, key: collection.get(key),
            "default": lambda value, other: other if value is None else value,
            "text.replace_all": lambda text, old, new: text.replace(old, new),
            "json.encode_to_string": json.dumps,
            "string": str,
            "int": int,
            "len": len,
            "not": operator.not_,
        }

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        workflow = self._workflows[name]
        assert set(workflow) == {"params", "steps"}
        assert set(arguments) == set(workflow["params"])
        try:
            self._steps(workflow["steps"], dict(arguments))
        except ReturnedError as returned:
            return returned.args[0]
        return None

    def _steps(
        self, steps: list[dict[str, Any]], variables: dict[str, Any]
    ) -> None:
        names = [name for step in steps for name in step]
        assert len(set(names)) == len(names) == len(steps)
        position = 0
        while position < len(steps):
            [step] = steps[position].values()
            following = self._step(step, variables)
            position = names.index(following) if following else position + 1

    def _step(self, step: dict[str, Any], variables: dict[str, Any]) -> str:
        """Run a step, and return the name of the next one where it is another."""
        assert tuple(step) in KINDS, step
        if "assign" in step:
            for assignment in step["assign"]:
                [(name, value)] = assignment.items()
                variables[name] = self._value(value, variables)
        elif "call" in step:
            arguments = self._value(step["args"], variables)
            answer = self._call(step["call"], arguments)
            if "result" in step:
                variables[step["result"]] = answer
        elif "try" in step:
            self._try(step, variables)
        elif "for" in step:
            loop = step["for"]
            for element in self._value(loop["in"], variables):
                inner = {**variables, loop["value"]: element}
                self._steps(loop["steps"], inner)
                # What is older than the loop is changed by it.
                variables |= {name: inner[name] for name in variables}
        elif "switch" in step:
            return self._switch(step["switch"], variables)
        else:
            raise ReturnedError(self._value(step["return"], variables))
        return ""

    def _try(self, step: dict[str, Any], variables: dict[str, Any]) -> None:
        try:
            self._step(step["try"], variables)
        except (WorkflowError, LookupError, TypeError, ValueError) as error:
            if "except" not in step:
                raise
            what = step["except"]
            message = str(error)
            self._steps(
                what["steps"], {**variables, what["as"]: {"message": message}}
            )

    def _switch(
        self, conditions: list[dict[str, Any]], variables: dict[str, Any]
    ) -> str:
        for condition in conditions:
            holds = self._value(condition["condition"], variables)
            assert isinstance(holds, bool), condition
            if not holds:
                continue
            if "return" in condition:
                raise ReturnedError(self._value(condition["return"], variables))
            following: str = condition["next"]
            return following
        return ""

    def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "sys.log":
            self.log.append((arguments["severity"], arguments["text"]))
            return None
        if not name.startswith("http."):
            return self.run(name, arguments)
        assert arguments.pop("auth") == {"type": "OAuth2"}
        url = arguments.pop("url")
        [sent] = arguments.values()
        return {"body": self._ask(name.removeprefix("http."), url, sent)}

    def _value(self, value: Any, variables: dict[str, Any]) -> Any:
        if isinstance(value, dict):
            return {k: self._value(v, variables) for k, v in value.items()}
        if isinstance(value, list):
            return [self._value(element, variables) for element in value]
        if not isinstance(value, str) or not value.startswith("${"):
            return value
        assert value.endswith("}")
        assert len(value) <= MAX_EXPRESSION
        expression = ast.parse(value[2:-1], mode="eval").body
        return self._evaluate(expression, variables)

    def _evaluate(  # noqa: PLR0911 - one for each kind of expression
        self, node: ast.expr, variables: dict[str, Any]
    ) -> Any:
        def value(inner: ast.expr) -> Any:
            return self._evaluate(inner, variables)

        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                known = {**NAMES, **variables}
                return known[node.id]
            case ast.Attribute():
                return value(node.value)[node.attr]
            case ast.Subscript():
                return value(node.value)[value(node.slice)]
            case ast.Call():
                function = self._functions[ast.unparse(node.func)]
                return function(*map(value, node.args))
            case ast.UnaryOp(op=ast.Not()):
                return not value(node.operand)
            case ast.BinOp():
                return OPERATORS[type(node.op)](
                    value(node.left), value(node.right)
                )
            case ast.Compare(ops=[compare], comparators=[right]):
                return OPERATORS[type(compare)](value(node.left), value(right))
            case ast.BoolOp(values=[one, other]):
                return OPERATORS[type(node.op)](value(one), value(other))
        raise AssertionError(ast.dump(node))


def expressions(value: Any) -> Iterator[str]:
    """Yield all expressions of a workflow."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)
    elif isinstance(value, str) and "${" in value:
        yield value
