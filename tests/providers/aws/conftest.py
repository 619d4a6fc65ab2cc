"""Services of AWS that give their answers in order, held against their own models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

import boto3
import pytest
from botocore.stub import Stubber

# By service: operation, what is asked, and what is found; an error is a code.
Answers: TypeAlias = dict[str, list[tuple[str, dict[str, Any], dict[str, Any]]]]
Stubbed: TypeAlias = Callable[[Answers], None]


@pytest.fixture
def stub_services(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[ModuleType], Stubbed]]:
    """Let each service of a module give its answers in their order."""
    stubbers: dict[str, tuple[Any, Stubber]] = {}

    def answer(answers: Answers) -> None:
        for name, calls in answers.items():
            client = boto3.client(
                name,
                region_name="us-east-1",
                aws_access_key_id="A",
                aws_secret_access_key="B",
            )
            stubber = Stubber(client)
            for operation, expected, found in calls:
                if "error" in found:
                    stubber.add_client_error(
                        operation,
                        service_error_code=found["error"],
                        expected_params=expected,
                    )
                else:
                    stubber.add_response(operation, found, expected)
            stubber.activate()
            stubbers[name] = (client, stubber)

    @contextmanager
    def service(name: str, _region: str) -> Iterator[Any]:
        yield stubbers[name][0]

    def stub(module: ModuleType) -> Stubbed:
        monkeypatch.setattr(module, "service", service)
        return answer

    yield stub
    for _, stubber in stubbers.values():
        stubber.assert_no_pending_responses()
