"""What a machine of Azure answers to the extension that asks for its health."""

from __future__ import annotations

import socket

import pytest

from stacks.azure.node import answer
from stacks.runtime.vm.node.host import Host, RequestError

pytestmark = pytest.mark.enable_socket


def test_a_machine_answers_with_what_it_is_told_at_that_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        machine = Host()
        # A port that somebody else has is no reason to fail.
        answer(machine, port, lambda: (200, b"never"))
    answers = [(503, b""), (200, b"well")]
    answer(machine, port, lambda: answers[-1])
    url = f"http://127.0.0.1:{port}/any/path"
    assert machine.send("GET", url).body == b"well"
    answers.pop()
    with pytest.raises(RequestError) as refusal:
        machine.send("GET", url)
    assert refusal.value.status == 503
