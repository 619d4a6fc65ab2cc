"""Prompts that one engine computes and another one answers: the script, and a real proxy."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stacks.runtime.vm.node import hand_over
from stacks.runtime.vm.node.router import (
    ALL_PATHS,
    CONFIG,
    DOOR,
    GATED_PATHS,
    gate,
    upstream,
)
from tests.stacks.runtime.vm.node.test_router import (
    free_port,
    leaders,
    proxy,
    real_proxy,
    service,
    talk,
    wait_for,
)
from tests.stacks.runtime.vm.sandbox import HOUR, MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stacks.runtime.vm.sandbox import SandboxMachine, World

CHAT = "/v1/chat/completions"
SLOW_S = 0.3
# Beyond what a number of JavaScript holds.
SEED = 2**60 + 1


def with_parts(
    world: World, prompts: int, answers: int
) -> list[SandboxMachine]:
    """Machines of a service of two pools."""
    machines = [
        *service(world, prompts, part="prompts"),
        *service(world, answers, part="answers"),
    ]
    world.run(HOUR)
    return machines


def listed(machine: SandboxMachine, name: str) -> int:
    """How many engines a proxy picks from for a part."""
    _, _, rest = proxy(machine).partition(f"upstream {name} {{")
    return rest.partition("keepalive 256")[0].count("weight=1 ")


def test_every_proxy_knows_both_pools_and_one_that_answers_leads(
    world: World,
) -> None:
    machines = with_parts(world, 2, 3)
    assert all(listed(machine, "prompts") == 2 for machine in machines)
    assert all(listed(machine, "engines") == 3 for machine in machines)
    [leader] = leaders(world)
    assert leader in {machine.name for machine in machines[2:]}


def test_engines_tell_each_other_where_caches_are(world: World) -> None:
    for machine in with_parts(world, 1, 1):
        words = machine.containers["tonnage-serve"].words
        address = f"--env=VLLM_NIXL_SIDE_CHANNEL_HOST={machine.address}"
        assert address in words


def test_without_prompts_the_others_go_on(world: World) -> None:
    prompts, answers = with_parts(world, 1, 1)
    world.timeline.at(HOUR, lambda: world.end(prompts, replaced=False))
    world.run(HOUR + 10 * MINUTE)
    assert leaders(world) == [answers.name]
    assert not listed(answers, "prompts")


def test_without_an_engine_that_answers_nobody_is_well(world: World) -> None:
    with_parts(world, 2, 0)
    assert not leaders(world)


class PartEngine(ThreadingHTTPServer):
    """An engine that follows the protocol of vLLM's connector, and keeps what it was asked."""

    def __init__(self, part: str, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), PartHandler)
        self.part = part
        self.status = status
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class PartHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PartEngine

    def do_GET(self) -> None:
        self._send(200, {"part": self.server.part})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            asked = json.loads(body)
        except ValueError:
            self._send(400, {"error": body.decode()})
            return
        self.server.asked.append((self.path, asked))
        self.server.headers.append(dict(self.headers))
        if self.server.part == "prompts":
            self._send(self.server.status, self._prompt(asked))
        elif asked.get("stream"):
            self._stream()
        else:
            self._send(200, {"handed": asked["kv_transfer_params"]})

    def _prompt(self, asked: dict[str, Any]) -> dict[str, Any]:
        handed = asked["kv_transfer_params"]
        is_first_step = (
            handed["do_remote_decode"] is True
            and handed["do_remote_prefill"] is False
            and asked["max_tokens"] == 1
            and asked["stream"] is False
        )
        return {
            "choices": [{"finish_reason": "length"}],
            "kv_transfer_params": {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_block_ids": [list(range(9000))],
                "remote_engine_id": "engine",
                "remote_request_id": "request",
                "remote_host": "10.0.0.7",
                "remote_port": 5600,
                "tp_size": 8,
            }
            if is_first_step
            else None,
        }

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(3):
            event = f"data: {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
            time.sleep(SLOW_S)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def script_module() -> Path | None:
    """The module of the proxy that runs scripts, where the machine of the tests has it."""
    program = shutil.which("nginx")
    if program is None:
        return None
    near = Path(program).resolve().parents[1] / "lib/nginx/modules"
    folders = (near, Path("/usr/lib/nginx/modules"))
    return next(
        (
            folder
            for folder in folders
            if (folder / "ngx_http_js_module.so").exists()
        ),
        None,
    )


@contextlib.contextmanager
def proxied(
    folder: Path, *engines: PartEngine, key: str = "", routing: str = "random"
) -> Iterator[int]:
    """A real proxy before engines of both parts; yields its port."""
    module = script_module()
    assert module is not None
    (folder / "modules").symlink_to(module)
    (folder / hand_over.SCRIPT_NAME).write_text(hand_over.SCRIPT)
    for engine in engines:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
    port = free_port()
    paths = GATED_PATHS if key else ALL_PATHS
    config = CONFIG.format(
        modules=hand_over.MODULES,
        upstreams="\n".join(
            upstream(
                name,
                routing,
                [
                    f"127.0.0.1:{engine.port} weight=1"
                    for engine in engines
                    if engine.part == part
                ],
                1,
            )
            for name, part in (("engines", "answers"), ("prompts", "prompts"))
        ),
        gate=hand_over.imports(str(folder)) + (gate(key) if key else ""),
        doors=DOOR.format(
            port=port,
            health=200,
            paths=hand_over.paths(paths, has_gate=bool(key)),
        ),
    )
    try:
        with real_proxy(folder, config):
            wait_for(port)
            yield port
    finally:
        for engine in engines:
            engine.shutdown()
            engine.server_close()


needs_proxy = pytest.mark.skipif(
    script_module() is None, reason="no nginx with njs on PATH"
)


def handed(port: int, asked: dict[str, Any], path: str = CHAT) -> Any:
    status, text = talk(port, "POST", path, json.dumps(asked))
    assert status == 200
    return json.loads(text)["handed"]


@pytest.mark.enable_socket
@needs_proxy
@pytest.mark.parametrize("routing", ["least-loaded", "random", "round-robin"])
def test_a_prompt_is_computed_by_one_engine_and_answered_by_another(
    tmp_path: Path, routing: str
) -> None:
    prompts, answers = PartEngine("prompts"), PartEngine("answers")
    asked = {
        "model": "m",
        "messages": [{"role": "user", "content": 'Grüß {dich} \\"}'}],
        "max_tokens": 200,
        "min_tokens": 5,
        "seed": SEED,
        "stream_options": {"include_usage": True},
    }
    with proxied(tmp_path, prompts, answers, routing=routing) as port:
        told = handed(port, asked)
        assert told["remote_host"] == "10.0.0.7"
        assert len(told["remote_block_ids"][0]) == 9000
        completed = handed(
            port, {"prompt": [1, 2], "max_tokens": 9}, "/v1/completions"
        )
        assert completed == told
    (path, first), (other_path, _) = prompts.asked
    assert (path, other_path) == (CHAT, "/v1/completions")
    assert first["seed"] == SEED
    assert (first["max_tokens"], first["min_tokens"]) == (1, 0)
    assert first["messages"] == asked["messages"]
    (_, whole), _ = answers.asked
    # All but where the cache lies is what the client has sent.
    del whole["kv_transfer_params"]
    assert whole == asked


@pytest.mark.enable_socket
@needs_proxy
def test_tokens_come_one_by_one(tmp_path: Path) -> None:
    with proxied(
        tmp_path, PartEngine("prompts"), PartEngine("answers")
    ) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with contextlib.closing(client):
            body = json.dumps({"messages": [], "stream": True})
            client.request("POST", CHAT, body)
            answer = client.getresponse()
            assert answer.headers["content-type"] == "text/event-stream"
            came_s = []
            while answer.readline():
                came_s.append(time.monotonic())
                answer.readline()
    assert len(came_s) == 3
    assert came_s[-1] - came_s[0] > SLOW_S


@pytest.mark.enable_socket
@needs_proxy
@pytest.mark.parametrize(
    "asked",
    [
        {"n": 2, "messages": []},
        {"prompt": ["one", "two"]},
        {"prompt": "one", "echo": True},
    ],
)
def test_what_is_more_than_a_prompt_and_an_answer_is_answered_alone(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    prompts = PartEngine("prompts")
    with proxied(tmp_path, prompts, PartEngine("answers")) as port:
        assert handed(port, asked) is None
    assert not prompts.asked


@pytest.mark.enable_socket
@needs_proxy
@pytest.mark.parametrize("engines", [[], [503], [400]])
def test_without_an_engine_for_prompts_answers_still_come(
    tmp_path: Path, engines: list[int]
) -> None:
    lost = [PartEngine("prompts", status) for status in engines]
    with proxied(tmp_path, *lost, PartEngine("answers")) as port:
        assert handed(port, {"messages": []}) is None


@pytest.mark.enable_socket
@needs_proxy
def test_no_client_says_where_a_cache_lies(tmp_path: Path) -> None:
    """What it sends of that is replaced, by what an engine says or by nothing."""
    stolen = {"kv_transfer_params": {"remote_host": "10.0.0.9"}, "n": 2}
    with proxied(
        tmp_path, PartEngine("prompts"), PartEngine("answers")
    ) as port:
        assert handed(port, stolen) is None
        assert handed(port, {**stolen, "n": 1})["remote_host"] == "10.0.0.7"
        # Nobody reaches the pool of prompts by itself.
        status, _ = talk(port, "POST", f"/prompts{CHAT}", "{}")
        assert status == 404


@pytest.mark.enable_socket
@needs_proxy
@pytest.mark.parametrize("body", ["", "[1]", "no json", '"}"', "{}"])
def test_what_is_no_request_is_answered_by_the_engine(
    tmp_path: Path, body: str
) -> None:
    answers = PartEngine("answers")
    with proxied(tmp_path, PartEngine("prompts"), answers) as port:
        status, _ = talk(port, "POST", CHAT, body)
        _, models = talk(port, "GET", "/v1/models", "")
    assert status >= 400 or body in ("[1]", '"}"', "{}")
    assert json.loads(models) == {"part": "answers"}


@pytest.mark.enable_socket
@needs_proxy
def test_the_key_is_asked_before_any_engine(tmp_path: Path) -> None:
    prompts = PartEngine("prompts")
    with proxied(tmp_path, prompts, PartEngine("answers"), key="k$e'y") as port:
        status, _ = talk(port, "POST", CHAT, '{"messages": []}')
        assert status == 401
        assert not prompts.asked
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with contextlib.closing(client):
            sent = {"Authorization": "Bearer k$e'y"}
            client.request("POST", CHAT, '{"messages": []}', sent)
            assert client.getresponse().status == 200
    assert prompts.headers[0]["Authorization"] == "Bearer k$e'y"


@pytest.mark.enable_socket
@needs_proxy
def test_a_long_prompt_passes(tmp_path: Path) -> None:
    """Four million bytes are a million tokens, and more than the proxy keeps by itself."""
    long = {"prompt": "word " * 800_000}
    with proxied(
        tmp_path, PartEngine("prompts"), PartEngine("answers")
    ) as port:
        assert handed(port, long)["remote_port"] == 5600


@pytest.mark.skipif(not shutil.which("node"), reason="no node on PATH")
@pytest.mark.parametrize(
    ("body", "is_handed"),
    [
        ('{"prompt": "a"}', True),
        ('{"prompt": [1, 2], "n": 1}', True),
        ('{"messages": [], "n": null}', True),
        ('{"messages": [], "n": 2}', False),
        ('{"prompt": [[1], [2]]}', False),
        ('{"prompt": "a", "use_beam_search": true}', False),
    ],
)
def test_the_script_keeps_a_request_as_it_is(
    tmp_path: Path, body: str, *, is_handed: bool
) -> None:
    """Read by another JSON parser, a request has one more key, or its last value."""
    script = tmp_path / "hand_over.mjs"
    script.write_text(hand_over.SCRIPT)
    program = (
        f"import h from {json.dumps(str(script))};"
        f"const body = {json.dumps(body)};"
        "console.log(h.isHandedOver(h.read(body)));"
        'console.log(h.withKeys(body, {n: 7, kv: "}"}));'
    )
    run = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    told, changed = run.stdout.splitlines()
    assert told == str(is_handed).lower()
    assert json.loads(changed) == {**json.loads(body), "n": 7, "kv": "}"}
