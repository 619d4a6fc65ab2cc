"""Requests that machines route among each other, in the sandbox and by a real proxy."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stacks.runtime.vm.node.length_rule import ENGINES
from stacks.runtime.vm.node.router import (
    ALL_PATHS,
    CONFIG,
    DOOR,
    GATED_PATHS,
    KEYED_PATHS,
    METHODS,
    TLS_DOORS,
    gate,
    upstream,
)
from tests.stacks.runtime.vm.node.test_hub import secret_name
from tests.stacks.runtime.vm.sandbox import (
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
    state_of,
)

MODEL = "models/llama-3.1-8b/"
WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]


def service(
    world: World,
    count: int,
    certificate: str = "",
    weight: int = 0,
    body_limit: int = 0,
    part: str = "",
) -> list[SandboxMachine]:
    """Machines of a service with a router, which have requests all the time."""
    world.has_traffic = lambda _: True
    world.upload(MODEL, WEIGHTS)
    settings: dict[str, Any] = settings_of(world.provider, "serve")
    router = {
        "image": "nginx",
        "routing": "least-loaded",
        "port": 8000,
        "engine_port": 8001,
        "tls_port": 443 if certificate else 0,
        "certificate": certificate,
        "is_public": False,
        **({"weight": weight} if weight else {}),
        **({"body_limit": body_limit} if body_limit else {}),
        **({"part": part} if part else {}),
    }
    work = {**settings["work"], "port": 8001, "router": router}
    if part:
        work["hands_over"] = True
    return [
        world.add("serve", {**settings, "work": work}) for _ in range(count)
    ]


def leaders(world: World) -> list[str]:
    """The machines whose proxy tells the balancer that it is well."""
    return [
        machine.name
        for machine in world.machines
        if machine.is_up and "return 200" in proxy(machine)
    ]


def proxy(machine: SandboxMachine) -> str:
    """What the proxy of a machine has read."""
    container = machine.containers.get("tonnage-router")
    return container.log if container and container.is_running else ""


def engines(machine: SandboxMachine) -> list[str]:
    return re.findall(
        r"server ([\d.]+):8001 weight=\d+ max_fails", proxy(machine)
    )


def addresses(world: World) -> list[str]:
    return sorted(m.address for m in world.machines if m.is_up)


def test_one_machine_takes_all_requests_and_routes_to_all(
    world: World,
) -> None:
    service(world, 3)
    world.run(20 * MINUTE)
    assert leaders(world) == ["chat_1"]
    for machine in world.machines:
        assert sorted(engines(machine)) == addresses(world)


def test_machines_of_two_types_have_their_weights_in_every_proxy(
    world: World,
) -> None:
    service(world, 1, weight=10_000)
    service(world, 2, weight=830)
    world.run(20 * MINUTE)
    assert len(leaders(world)) == 1
    for machine in world.machines:
        weights = re.findall(r":8001 weight=(\d+) ", proxy(machine))
        assert sorted(weights) == ["10000", "830", "830"]


def test_nobody_is_routed_to_an_engine_that_is_not_ready(world: World) -> None:
    service(world, 2)

    def another() -> None:
        service(world, 1)

    world.timeline.at(30 * MINUTE, another)
    world.run(33 * MINUTE)
    # The third one still loads.
    assert [len(engines(m)) for m in world.machines[:2]] == [2, 2]
    world.run(HOUR)
    assert [len(engines(m)) for m in world.machines] == [3, 3, 3]


def test_the_next_machine_leads_when_the_first_one_is_lost(
    world: World,
) -> None:
    first, *_ = service(world, 3)
    world.timeline.at(HOUR, lambda: world.end(first, replaced=False))
    world.run(HOUR + MINUTE)
    assert leaders(world) == ["chat_2"]
    assert all(first.address not in engines(m) for m in world.machines[1:])
    world.run(2 * HOUR)
    # What a lost machine has left is cleared away.
    routes = [key for key in world.objects if key.startswith("routes/")]
    assert routes == ["routes/chat_2", "routes/chat_3"]


def test_a_broken_engine_is_left_out_and_comes_back(world: World) -> None:
    first, second = service(world, 2)

    def die() -> None:
        first.containers["tonnage-serve"].is_running = False

    world.timeline.at(HOUR, die)
    world.run(HOUR + MINUTE)
    assert leaders(world) == [second.name]
    assert engines(second) == [second.address]
    world.run(HOUR + 15 * MINUTE)
    # It comes back as the one that has been ready for less long.
    assert leaders(world) == [second.name]
    assert sorted(engines(second)) == addresses(world)


def test_a_certificate_is_awaited_and_renewed(world: World) -> None:
    """It is a secret of the store, and reaches nobody but the proxy."""
    secret = secret_name(world)
    [machine] = service(world, 1, secret)
    path = machine.path("/run/tonnage/router/tls.pem")
    world.run(20 * MINUTE)
    assert (proxy(machine), path.exists()) == ("", False)
    world.secrets[secret] = "first"
    world.run(25 * MINUTE)
    assert "listen 443 ssl;" in proxy(machine)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("first", 0o600)
    world.secrets[secret] = "second"
    world.run(2 * HOUR)
    assert path.read_text() == "second"
    # A store that is away for a day does not end a service.
    del world.secrets[secret]
    world.run(8 * HOUR)
    assert leaders(world) == [machine.name]
    assert "second" not in "".join(line for _, line in world.told)


def test_a_key_is_awaited_and_stands_in_no_file_that_others_read(
    world: World,
) -> None:
    """Of an engine that asks nobody for it: the proxy does, and only it knows the key."""
    secret = secret_name(world)
    [machine] = service(world, 1)
    machine.settings["work"]["router"]["key"] = secret
    world.run(20 * MINUTE)
    assert proxy(machine) == ""
    world.secrets[secret] = "sk-clients\n"
    world.run(25 * MINUTE)
    assert "return 401" in proxy(machine)
    assert "sk\\\\-clients$" in proxy(machine)
    path = machine.path("/run/tonnage/router/nginx.conf")
    assert path.stat().st_mode & 0o777 == 0o600
    world.secrets[secret] = "sk-later"
    world.run(2 * HOUR)
    assert "later$" in proxy(machine)
    assert "clients" not in proxy(machine)
    # A store that is away for a day does not end a service.
    del world.secrets[secret]
    world.run(8 * HOUR)
    assert leaders(world) == [machine.name]
    told = "".join(line for _, line in world.told)
    assert "sk-" not in told
    assert not any("sk-" in " ".join(words) for words in machine.commands)


def test_a_machine_with_a_notice_leads_no_more_and_drains(
    world: World,
) -> None:
    first, second = service(world, 2)

    def announce() -> None:
        first.notice = True

    world.timeline.at(HOUR, announce)
    world.run(HOUR + MINUTE)
    assert leaders(world) == [second.name]
    assert engines(second) == [second.address]
    # Answers never end here, so the engine has all the time that there is for them.
    world.run(HOUR + 3 * MINUTE)
    stops = [w for w in first.commands if w[:2] == ("docker", "stop")]
    # The proxy outlives the engine: what it has begun comes back through it.
    assert [w[-1] for w in stops] == ["tonnage-serve", "tonnage-router"]


def test_a_machine_that_was_cut_off_is_routed_to_again(world: World) -> None:
    """For an hour the second machine reaches nobody, and nobody reaches it."""
    first, second = service(world, 2)
    cut = second.address
    world.cut_off = lambda a, b: (
        HOUR < world.timeline.now_s < 2 * HOUR and (a == cut) != (b == cut)
    )
    world.run(1.5 * HOUR)
    assert engines(first) == [first.address]
    world.run(3 * HOUR)
    assert sorted(engines(first)) == addresses(world)
    assert leaders(world) == [first.name]


def test_one_question_that_is_missed_changes_nothing(world: World) -> None:
    first, second = service(world, 2)
    world.run(30 * MINUTE)
    now_s = world.timeline.now_s
    world.cut_off = lambda a, b: a != b and world.timeline.now_s < now_s + 14
    reloads = len(first.commands)
    world.run(now_s + 10 * MINUTE)
    kills = [w for w in first.commands[reloads:] if w[:2] == ("docker", "kill")]
    assert kills == []
    assert sorted(engines(first)) == sorted([first.address, second.address])


def test_a_proxy_that_ends_is_started_again(world: World) -> None:
    first, _ = service(world, 2)

    def die() -> None:
        first.containers["tonnage-router"].is_running = False

    world.timeline.at(HOUR, die)
    world.run(HOUR + MINUTE)
    assert leaders(world) == [first.name]
    assert state_of(first)["phase"] == "working"


class Engine(ThreadingHTTPServer):
    """An engine that answers after a time, and knows how much it had to do at once."""

    def __init__(self, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seconds = seconds
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.answered = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        with self.server.lock:
            self.server.running += 1
            self.server.most = max(self.server.most, self.server.running)
        time.sleep(self.server.seconds)
        with self.server.lock:
            self.server.running -= 1
            self.server.answered += 1
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def slow_and_fast() -> Iterator[list[Engine]]:
    """Three engines, one of which takes ten times as long."""
    servers = [Engine(0.5), Engine(0.05), Engine(0.05)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.enable_socket
@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on PATH")
@pytest.mark.parametrize("routing", sorted(METHODS))
def test_a_real_proxy_takes_the_configuration_and_routes_so(
    tmp_path: Path, slow_and_fast: list[Engine], routing: str
) -> None:
    port = free_port()
    config = configured(
        routing,
        slow_and_fast,
        DOOR.format(port=port, health=200, paths=ALL_PATHS),
    )
    with real_proxy(tmp_path, config), ThreadPoolExecutor(12) as clients:
        wait_for(port)
        answers = list(clients.map(lambda n: ask(port, n), range(240)))
    assert answers == list(range(240))
    slow, *fast = (engine.answered for engine in slow_and_fast)
    if routing == "least-loaded":
        # By turns the slow one would have a third, and everybody would wait for it.
        assert slow < 60
        assert slow_and_fast[0].most <= 6
    elif routing == "random":
        assert 40 <= slow <= 120
    else:
        assert slow == pytest.approx(80, abs=8)
    assert slow + sum(fast) == 240


@pytest.mark.enable_socket
@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on PATH")
def test_a_real_proxy_sends_each_machine_its_share(
    tmp_path: Path, slow_and_fast: list[Engine]
) -> None:
    """At random by weight: 1 of 12 requests to the first, 3 and 8 of 12 to the others."""
    port = free_port()
    door = DOOR.format(port=port, health=200, paths=ALL_PATHS)
    config = configured("random", slow_and_fast, door, (1000, 3000, 8000))
    with real_proxy(tmp_path, config), ThreadPoolExecutor(12) as clients:
        wait_for(port)
        list(clients.map(lambda n: ask(port, n), range(600)))
    answered = [engine.answered for engine in slow_and_fast]
    assert sum(answered) == 600
    for found, expected in zip(answered, (50, 150, 400), strict=True):
        # Four standard deviations of a binomial number.
        assert abs(found - expected) <= 4 * expected**0.5


@pytest.mark.enable_socket
@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on PATH")
def test_the_internet_reaches_what_the_key_protects_and_nothing_else(
    tmp_path: Path, slow_and_fast: list[Engine]
) -> None:
    port = free_port()
    door = DOOR.format(port=port, health=200, paths=KEYED_PATHS)
    with real_proxy(tmp_path, configured("random", slow_and_fast, door)):
        wait_for(port)
        answers = {
            path: talk(port, "POST", path, "1")[0]
            for path in (
                "/v1/completions",
                "/metrics",
                "/tokenize",
                "/v1/../metrics",
                "/v1/%2e%2e/metrics",
                "//metrics",
            )
        }
    assert answers.pop("/v1/completions") == 200
    assert set(answers.values()) == {404}


@pytest.mark.enable_socket
@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on PATH")
@pytest.mark.parametrize(
    "key", ["sk-1", "Ab+/9=", "a.b*c", "a'b\"c$d #e", "x\\y", "{z};", "~^|[]()"]
)
def test_a_real_proxy_lets_in_who_has_the_key_and_nobody_else(
    tmp_path: Path, slow_and_fast: list[Engine], key: str
) -> None:
    port = free_port()
    door = DOOR.format(port=port, health=200, paths=GATED_PATHS)
    config = configured("random", slow_and_fast, door, key=key)
    with real_proxy(tmp_path, config):
        wait_for(port)
        answers = {
            sent: talk(port, "POST", "/v1/completions", "1", sent)[0]
            for sent in (
                f"Bearer {key}",
                f"Bearer {key.swapcase()}",
                f"Bearer {key}x",
                f"Bearer x{key}",
                f"bearer {key}",
                "Bearer ",
                "Bearer sk.1",
                "Bearer a-b-c",
                key,
                None,
            )
        }
        others = {
            path: talk(port, "GET", path, "", f"Bearer {key}")[0]
            for path in ("/metrics", "/prometheus/metrics", "/v1/../metrics")
        }
        assert talk(port, "GET", "/health", "")[0] == 200
    expected = {f"Bearer {key}"}
    assert {sent for sent, code in answers.items() if code == 200} == expected
    assert set(answers.values()) == {200, 401}
    assert set(others.values()) == {404}


@pytest.mark.enable_socket
@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx on PATH")
def test_a_real_proxy_ends_the_encryption_of_clients(
    tmp_path: Path, slow_and_fast: list[Engine]
) -> None:
    """With a file of key and certificate, as a vault gives it; the open port tells its health."""
    port, tls_port = free_port(), free_port()
    pem = tmp_path / "tls.pem"
    pem.write_text(pem_for("chat.example.com"))
    doors = TLS_DOORS.format(
        port=port,
        tls_port=tls_port,
        certificate=pem,
        health=200,
        paths=ALL_PATHS,
    )
    context = ssl.create_default_context(cafile=str(pem))
    with real_proxy(tmp_path, configured("random", slow_and_fast, doors)):
        wait_for(port)
        status, _ = talk(port, "POST", "/v1/completions", "1")
        assert status == 403
        with (
            socket.create_connection(("127.0.0.1", tls_port)) as plain,
            context.wrap_socket(
                plain, server_hostname="chat.example.com"
            ) as encrypted,
        ):
            assert encrypted.version() in ("TLSv1.2", "TLSv1.3")
            encrypted.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: chat.example.com\r\n"
                b"Content-Length: 1\r\nConnection: close\r\n\r\n7"
            )
            answer = b"".join(iter(lambda: encrypted.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"7")


def pem_for(host: str) -> str:
    """A key and a certificate that it has signed itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return (
        private + certificate.public_bytes(serialization.Encoding.PEM)
    ).decode()


def configured(
    routing: str,
    engines: list[Engine],
    doors: str,
    weights: tuple[int, ...] = (1, 1, 1),
    *,
    key: str = "",
) -> str:
    servers = [
        f"127.0.0.1:{engine.port} weight={weight}"
        for engine, weight in zip(engines, weights, strict=True)
    ]
    return CONFIG.format(
        modules="",
        upstreams=upstream(ENGINES, routing, servers, 1),
        gate=gate(key) if key else "",
        doors=doors,
    )


@contextlib.contextmanager
def real_proxy(folder: Path, config: str) -> Iterator[None]:
    path = folder / "nginx.conf"
    path.write_text(config.replace("/tmp/nginx.pid", str(folder / "nginx.pid")))
    process = subprocess.Popen(
        ["nginx", "-p", str(folder), "-c", str(path), "-g", "daemon off;"],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            status, _ = talk(port, "GET", "/health", "")
        except OSError:
            time.sleep(0.05)
        else:
            assert status == 200
            return
    raise AssertionError("the proxy does not answer")


def ask(port: int, number: int) -> int:
    _, body = talk(port, "POST", "/v1/completions", json.dumps(number))
    answer: int = json.loads(body)
    return answer


def talk(
    port: int, method: str, path: str, body: str, sent: str | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {} if sent is None else {"Authorization": sent}
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        with connection.getresponse() as response:
            return response.status, response.read()
