"""Services of AWS that give answers from files in order, held against their own models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

import boto3.session
import pytest
from botocore import xform_name
from botocore.stub import Stubber

from tests.providers.shapes import Document, answer_of, shape
from tests.providers.shapes.wire import CORE, FIRST_ERROR, typed

# A call, what is asked of it, and the case of its answer or another one in its shape.
Asked: TypeAlias = tuple[str, dict[str, Any] | None, str | Document]
Stubbed: TypeAlias = Callable[..., None]


@cache
def client_of(service: str) -> Any:
    """Return the client of a service, which takes longer to open than a test."""
    return boto3.session.Session(botocore_session=CORE).client(
        service,
        region_name="us-east-1",
        aws_access_key_id="A",
        aws_secret_access_key="B",
    )


@pytest.fixture
def stub_services(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[ModuleType], Stubbed]]:
    """Let the services of a module give their answers in order."""
    stubbers: dict[str, Stubber] = {}

    def stubber_of(service: str) -> Stubber:
        if service not in stubbers:
            stubbers[service] = Stubber(client_of(service))
            stubbers[service].activate()
        return stubbers[service]

    def answer(*calls: Asked) -> None:
        for name, asked, said in calls:
            add_answer(
                stubber_of(shape(f"aws/{name}").call["service"]),
                name,
                asked,
                said,
            )

    @contextmanager
    def service(name: str, _region: str) -> Iterator[Any]:
        stubber_of(name)
        yield client_of(name)

    def stub(module: ModuleType) -> Stubbed:
        monkeypatch.setattr(module, "service", service)
        return answer

    yield stub
    for stubber in stubbers.values():
        stubber.deactivate()
    for stubber in stubbers.values():
        stubber.assert_no_pending_responses()


def add_answer(
    stubber: Stubber,
    name: str,
    asked: dict[str, Any] | None,
    said: str | Document,
) -> None:
    """Let a service answer a call; without `asked` anything may be asked."""
    call, method = f"aws/{name}", xform_name(name)
    status = shape(call, said).status if isinstance(said, str) else 200
    document = answer_of(call, said) if isinstance(said, str) else said
    if status < FIRST_ERROR:
        stubber.add_response(method, typed(call, document), asked)
    else:
        stubber.add_client_error(
            method,
            service_error_code=document["__type"],
            http_status_code=status,
            expected_params=asked,
        )
