"""Answers as services send them; those of AWS are written by the models that its clients read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from xml.sax.saxutils import escape

import botocore.session
from botocore.model import OperationModel
from botocore.model import Shape as ModelShape
from botocore.utils import parse_timestamp

from tests.providers.shapes import ERRORS, Document, answer_of, cloud_of, shape

CORE: Final = botocore.session.get_session()
XML_PROTOCOLS: Final = ("ec2", "query")
FIRST_ERROR: Final = 400
# The ways in which services refuse.
DIALECTS: Final = ("azure", "ec2", "gcp", "json", "query")


@cache
def operation(call: str) -> OperationModel:
    """Return what botocore knows of a call."""
    stated = shape(call).call
    service = CORE.get_service_model(stated["service"])
    return service.operation_model(stated["operation"])


@cache
def protocol(call: str) -> str:
    """Return how a service speaks: ec2, query, json, rest-json."""
    spoken: str = operation(call).service_model.resolved_protocol
    return spoken


def sent_text(call: str, document: Document) -> str:
    """Write an answer as its service does."""
    told = with_texts(call, document)
    if cloud_of(call) == "aws":
        return _aws_text(call, told)
    return json.dumps(told)


@cache
def sent_case(call: str, case: str) -> tuple[int, str]:
    """Return the status and the text of a file, as its service sends them."""
    document = answer_of(call, case)
    status = shape(call, case).status
    if status < FIRST_ERROR:
        return status, sent_text(call, document)
    # An error is of no output of a model.
    return status, json.dumps(document)


def with_texts(call: str, document: Document) -> Document:
    """Return an answer with JSON in a text where the service has it so."""
    return {
        name: [json.dumps(row) for row in value]
        if name in shape(call).texts
        else value
        for name, value in document.items()
    }


def dialect(call: str) -> str:
    """Return in which way a call is refused."""
    if cloud_of(call) != "aws":
        return cloud_of(call)
    spoken = protocol(call)
    return spoken if spoken in XML_PROTOCOLS else "json"


def refusal_text(call: str, case: str, words: str) -> tuple[int, str]:
    """Return the status and the text with which a service refuses, in some words."""
    home = f"{ERRORS}/{dialect(call)}"
    document = _reworded(answer_of(home, case), words)
    text = json.dumps(document)
    if dialect(call) in XML_PROTOCOLS:
        root = "Response" if dialect(call) == "ec2" else "ErrorResponse"
        text = f"<{root}>{_xml(document, None)}</{root}>"
    return shape(home, case).status, text


def _reworded(value: Any, words: str) -> Any:
    """Return a refusal with another message: its own says nothing."""
    if isinstance(value, list):
        return [_reworded(row, words) for row in value]
    if isinstance(value, dict):
        return {
            name: words
            if name.lower() == "message"
            else _reworded(inner, words)
            for name, inner in value.items()
        }
    return value


def _aws_text(call: str, document: Document) -> str:
    """Write an answer of AWS; members that no model knows are written as they are."""
    model = operation(call).output_shape
    if protocol(call) not in XML_PROTOCOLS:
        return json.dumps(_timed(document, model, _epoch_s))
    inner = _xml(document, model)
    wrapper = model.serialization.get("resultWrapper")
    # Where nothing is answered, there is nothing around it either.
    if wrapper and document:
        inner = f"<{wrapper}>{inner}</{wrapper}>"
    root = f"{operation(call).name}Response"
    return f"<{root}>{inner}</{root}>"


def _xml(value: Any, model: ModelShape | None) -> str:
    if isinstance(value, list):
        member = getattr(model, "member", None)
        tag = member.serialization.get("name", "member") if member else "item"
        return "".join(f"<{tag}>{_xml(row, member)}</{tag}>" for row in value)
    if isinstance(value, dict):
        members = getattr(model, "members", {})
        return "".join(
            _element(name, inner, members.get(name))
            for name, inner in value.items()
        )
    if isinstance(value, bool):
        return str(value).lower()
    return escape(str(value))


def _element(name: str, value: Any, model: ModelShape | None) -> str:
    tag = model.serialization.get("name", name) if model else name
    return f"<{tag}>{_xml(value, model)}</{tag}>"


def typed(call: str, document: Document) -> Document:
    """Return an answer as the client gives it: with times for the texts of them."""
    told = with_texts(call, document)
    members: Document = _timed(told, operation(call).output_shape, _moment)
    return members


def _timed(
    value: Any, model: ModelShape | None, read: Callable[[str], object]
) -> Any:
    """Return a value with what is read of the texts that are times."""
    if isinstance(value, list):
        member = getattr(model, "member", None)
        return [_timed(row, member, read) for row in value]
    if isinstance(value, dict):
        members = getattr(model, "members", {})
        return {
            name: _timed(inner, members.get(name), read)
            for name, inner in value.items()
        }
    is_time = model is not None and model.type_name == "timestamp"
    return read(value) if is_time else value


def _moment(text: str) -> datetime:
    moment: datetime = parse_timestamp(text)
    return moment.astimezone(UTC)


def _epoch_s(text: str) -> float:
    """Return a time as services that speak JSON send it."""
    return _moment(text).timestamp()
