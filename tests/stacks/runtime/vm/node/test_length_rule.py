"""Requests that the proxy divides by the bytes of their bodies, in the sandbox and for real."""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stacks.runtime.vm.node.length_rule import (
    ENGINES,
    SHORT_ENGINES,
    divided_paths,
    length_map,
    up_to_pattern,
)
from stacks.runtime.vm.node.router import (
    ALL_PATHS,
    CONFIG,
    DOOR,
    GATED_PATHS,
    KEYED_PATHS,
    METHODS,
    UPSTREAM,
    gate,
)
from tests.stacks.runtime.vm.node.test_router import (
    free_port,
    leaders,
    proxy,
    real_proxy,
    service,
    wait_for,
)
from tests.stacks.runtime.vm.sandbox import HOUR, MINUTE, SandboxMachine, World

LIMIT = 25_856


def takes_as_short(config: str, length: str) -> bool:
    """Whether a configuration sends a body with this stated length to the short engines."""
    found = re.search(r'"~(\^.*\$)" short_engines;', config)
    return found is not None and bool(re.search(found[1], length))


@pytest.mark.parametrize(
    "limit", [0, 1, 9, 10, 11, 99, 100, 256, 999, 1000, 2304, LIMIT, 90_112]
)
def test_the_pattern_is_of_the_numbers_up_to_the_limit(limit: int) -> None:
    pattern = re.compile(up_to_pattern(limit))
    draw = random.Random(limit)
    for number in {
        *range(min(limit + 2000, 4000)),
        *range(max(0, limit - 500), limit + 500),
        *(draw.randint(0, 20 * limit + 20) for _ in range(2000)),
    }:
        assert bool(pattern.fullmatch(str(number))) == (number <= limit)


@pytest.mark.parametrize("length", ["", "chunked", "-1", "1e3", "0512", " 5"])
def test_what_is_no_plain_number_is_long(length: str) -> None:
    assert not takes_as_short(length_map(LIMIT), length)


def upstream(machine: SandboxMachine, name: str) -> list[str]:
    """The addresses of one kind of engines, as a proxy has read them."""
    found = re.search(
        rf"upstream {name} {{(.*?)\n  }}", proxy(machine), re.DOTALL
    )
    return re.findall(r"server ([\d.]+):8001 weight", found[1]) if found else []


def two_classes(world: World) -> tuple[list[SandboxMachine], SandboxMachine]:
    """Two machines for short requests, and one that takes everything."""
    short = service(world, 2, body_limit=LIMIT)
    [long] = service(world, 1)
    world.run(20 * MINUTE)
    return short, long


def test_every_proxy_divides_requests_by_what_machines_take(
    world: World,
) -> None:
    short, long = two_classes(world)
    assert len(leaders(world)) == 1
    for machine in (*short, long):
        assert sorted(upstream(machine, SHORT_ENGINES)) == sorted(
            each.address for each in short
        )
        assert upstream(machine, ENGINES) == [long.address]
        assert takes_as_short(proxy(machine), str(LIMIT))
        assert not takes_as_short(proxy(machine), str(LIMIT + 1))


def test_the_long_engines_take_all_while_no_short_one_is_ready(
    world: World,
) -> None:
    short, long = two_classes(world)
    for machine in short:
        world.end(machine, replaced=False)
    world.run(HOUR)
    assert upstream(long, ENGINES) == [long.address]
    assert SHORT_ENGINES not in proxy(long)
    assert "error_page" not in proxy(long)


def test_a_short_engine_never_gets_what_it_cannot_serve(world: World) -> None:
    short, long = two_classes(world)
    world.end(long, replaced=False)
    world.run(HOUR)
    for machine in short:
        assert upstream(machine, ENGINES) == []
        assert "server 127.0.0.1:8001 down;" in proxy(machine)
        assert not takes_as_short(proxy(machine), str(LIMIT + 1))
        assert takes_as_short(proxy(machine), str(LIMIT))


def test_the_least_that_a_ready_engine_takes_is_the_border(
    world: World,
) -> None:
    """Machines of a plan before have another border until they are replaced."""
    service(world, 1, body_limit=LIMIT)
    service(world, 1, body_limit=2304)
    [long] = service(world, 1)
    world.run(20 * MINUTE)
    assert takes_as_short(proxy(long), "2304")
    assert not takes_as_short(proxy(long), "2305")


class NamedEngine(ThreadingHTTPServer):
    """An engine that answers with its name, or refuses what is longer than it takes."""

    def __init__(self, name: str, most_bytes: int) -> None:
        super().__init__(("127.0.0.1", 0), NamedHandler)
        self.name = name
        self.most_bytes = most_bytes

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class NamedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: NamedEngine

    def do_POST(self) -> None:
        self._answer(self._body())

    def do_GET(self) -> None:
        self._answer(b"")

    def _body(self) -> bytes:
        if "content-length" in self.headers:
            return self.rfile.read(int(self.headers["content-length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        answer = f"{self.server.name} {len(body)}".encode()
        self.send_response(400 if len(body) > self.server.most_bytes else 200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def running(*servers: NamedEngine) -> Iterator[None]:
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield
    for server in servers:
        server.shutdown()
        server.server_close()


def sent(port: int, body: Any, *, chunked: bool = False) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": "Bearer k"}
    with contextlib.closing(connection):
        connection.request(
            "POST", "/v1/completions", body, headers, encode_chunked=chunked
        )
        with connection.getresponse() as response:
            return response.status, response.read().decode()


def divided(port: int, short_port: int, long_port: int, paths: str) -> str:
    """The configuration of a proxy before one engine of each kind."""
    upstreams = "".join(
        UPSTREAM.format(
            name=name,
            method=METHODS["least-loaded"],
            servers=f"    server 127.0.0.1:{engine_port} weight=1 max_fails=0;",
        )
        for name, engine_port in (
            (ENGINES, long_port),
            (SHORT_ENGINES, short_port),
        )
    )
    return CONFIG.format(
        modules="",
        upstreams=upstreams + length_map(LIMIT),
        gate=gate("k") if paths == GATED_PATHS else "",
        doors=DOOR.format(port=port, health=200, paths=divided_paths(paths)),
    )


@pytest.mark.enable_socket
@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on PATH")
@pytest.mark.parametrize("paths", [ALL_PATHS, KEYED_PATHS, GATED_PATHS])
def test_a_real_proxy_divides_requests_at_the_border(
    tmp_path: Path, paths: str
) -> None:
    port = free_port()
    short, long = NamedEngine("short", 25_000), NamedEngine("long", 200_000)
    config = divided(port, short.port, long.port, paths)
    with running(short, long), real_proxy(tmp_path, config):
        wait_for(port)
        for length in (1, 999, 1000, 9999, 10_000, 25_000):
            assert sent(port, b"x" * length) == (200, f"short {length}")
        # The border counts these as short, and the context of the engine does not take them.
        for length in (25_001, LIMIT):
            assert sent(port, b"x" * length) == (200, f"long {length}")
        for length in (LIMIT + 1, 30_000, 100_000, 200_000):
            assert sent(port, b"x" * length) == (200, f"long {length}")
        # Nobody states its length.
        parts = iter([b"x" * 100])
        assert sent(port, parts, chunked=True) == (200, "long 100")
        # What even the others refuse is refused to the client, in their words.
        assert sent(port, b"x" * 200_001) == (400, "long 200001")


@pytest.mark.enable_socket
@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on PATH")
def test_a_request_outlives_an_engine_that_has_just_ended(
    tmp_path: Path,
) -> None:
    port, closed_port = free_port(), free_port()
    long = NamedEngine("long", 200_000)
    config = divided(port, closed_port, long.port, ALL_PATHS)
    with running(long), real_proxy(tmp_path, config):
        wait_for(port)
        assert sent(port, b"x") == (200, "long 1")
