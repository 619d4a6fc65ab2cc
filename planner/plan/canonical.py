"""Canonical JSON of plans: equal plans have equal bytes and an equal digest."""

from __future__ import annotations

import hashlib
import json
from typing import Final

import msgspec

from planner.errors import Place, Problem, UsageError
from planner.plan.types import Plan, Properties
from planner.spec.stack_name import STACK_NAME

SCHEMA: Final = "tonnage.plan/1"
MAX_BYTES: Final = 16 * 2**20


def dump_document(document: Properties) -> str:
    """Return canonical JSON: sorted keys, two spaces, a newline at the end."""
    return (
        json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
        + "\n"
    )


def dump_plan(plan: Plan) -> str:
    """Return a plan as canonical JSON."""
    return dump_document(to_document(plan))


def to_document(plan: Plan) -> Properties:
    """Return a plan as plain JSON values; decimals become text."""
    document: Properties = msgspec.to_builtins(plan)
    return document


def digest(document: Properties) -> str:
    """Return the SHA-256 of a plan document.

    The fields `digest` and `solution.solve_ms` are not part of it.
    """
    body = {key: value for key, value in document.items() if key != "digest"}
    solution = body.get("solution")
    if isinstance(solution, dict):
        # A measured time would differ between equal plans.
        body["solution"] = {
            key: value for key, value in solution.items() if key != "solve_ms"
        }
    # Independent of the indentation of the file.
    canonical_json = json.dumps(
        body, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(canonical_json.encode()).hexdigest()


def seal(plan: Plan) -> Plan:
    """Return the plan with its digest."""
    return msgspec.structs.replace(plan, digest=digest(to_document(plan)))


def parse_plan(file_bytes: bytes, path: str) -> Plan:
    """Return the plan of a file.

    Raises UsageError when the file is no plan, has another schema, or differs from its digest.
    """
    # Limits the memory that parsing can take.
    if len(file_bytes) > MAX_BYTES:
        raise _unreadable_plan(path, "larger than 16 MiB")
    try:
        document = json.loads(file_bytes)
    except (ValueError, RecursionError) as error:
        raise _unreadable_plan(path, f"not JSON: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise _unreadable_plan(
            path, f"not a {SCHEMA} document: {str(schema)[:40]}"
        )
    # A plan is an approval: an edited one was not reviewed.
    if document.get("digest") != digest(document):
        raise _unreadable_plan(
            path, "the plan was changed after it was made: its digest differs"
        )
    try:
        plan = msgspec.convert(document, Plan)
    except msgspec.ValidationError as error:
        raise _unreadable_plan(path, f"not a plan: {error}") from error
    # The name becomes that of files and of things in a cloud.
    if not STACK_NAME.fullmatch(plan.stack.name):
        raise _unreadable_plan(path, "not a plan: its stack has no valid name")
    return plan


def plan_schema() -> Properties:
    """Return the JSON Schema (draft 2020-12) of a plan document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **msgspec.json.schema(Plan),
    }


def is_plan(file_bytes: bytes) -> bool:
    """Return whether a file is a plan and no spec: only plans start with a brace."""
    return file_bytes.lstrip()[:1] == b"{"


def _unreadable_plan(path: str, message: str) -> UsageError:
    return UsageError(
        Problem(
            code="plan",
            message=message,
            place=Place(path),
            next_step="make a new plan: tonnage plan SPEC -o FILE",
        )
    )
