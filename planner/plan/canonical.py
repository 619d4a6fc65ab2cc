"""Canonical JSON: equal documents are equal bytes, and the digest says so."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from planner.errors import Place, Problem, UsageError

SCHEMA: Final = "tonnage.plan/1"
MAX_BYTES: Final = 16 * 2**20


def dump_document(document: dict[str, Any]) -> str:
    """Write a document: keys sorted, two spaces, ends with a newline."""
    return (
        json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
        + "\n"
    )


def digest(document: dict[str, Any]) -> str:
    """SHA-256 of a plan without its digest and without how long solving took."""
    digested = {
        section: content
        for section, content in document.items()
        if section != "digest"
    }
    solution_section = digested.get("solution")
    if isinstance(solution_section, dict):
        digested["solution"] = {
            solution_key: entry
            for solution_key, entry in solution_section.items()
            if solution_key != "solve_ms"
        }
    canonical_text = json.dumps(
        digested, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(canonical_text.encode()).hexdigest()


def with_digest(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with its digest."""
    return {**document, "digest": digest(document)}


def parse_plan(raw: bytes, path: str) -> dict[str, Any]:
    """Read a plan; raises UsageError when it is none, was edited, or is of another schema."""
    if len(raw) > MAX_BYTES:
        raise _plan_error(path, "larger than 16 MiB")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _plan_error(path, f"not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        schema_name = (
            document.get("schema") if isinstance(document, dict) else None
        )
        raise _plan_error(
            path, f"not a {SCHEMA} document: {str(schema_name)[:40]}"
        )
    if document.get("digest") != digest(document):
        raise _plan_error(
            path, "the plan was changed after it was made: its digest differs"
        )
    return document


def is_plan(raw: bytes) -> bool:
    """Whether a file claims to be a plan rather than a spec: plans are JSON objects."""
    return raw.lstrip()[:1] == b"{"


def _plan_error(path: str, message: str) -> UsageError:
    next_step = "make a new plan: tonnage plan SPEC -o FILE"
    return UsageError(
        Problem(
            code="plan", message=message, place=Place(path), next_step=next_step
        )
    )
