"""What machines write reaches the logs of their cloud: all of it, once, and without secrets."""

from __future__ import annotations

import json
from functools import partial

import pytest

from planner.facts import table
from planner.spec.beside import MOST_NEIGHBORS
from stacks.runtime.vm.node import (
    agent,
    beside,
    hub,
    journal,
    router,
    serve,
    train,
    workspace,
)
from stacks.runtime.vm.node.host import RequestError
from stacks.runtime.vm.node.journal import LINES_A_MINUTE, clean
from tests.stacks.runtime.vm.sandbox import (
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
)

WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]
ENGINE = "tonnage-serve"


def serving(world: World) -> SandboxMachine:
    world.upload("models/llama-3.1-8b/", WEIGHTS)
    return world.add("serve")


def say(machine: SandboxMachine, *texts: str) -> None:
    for text in texts:
        machine.write("CONTAINER_NAME", ENGINE, text)


def told(world: World, source: str = ENGINE) -> list[str]:
    return [
        line.removeprefix(f"{source}: ")
        for _, line in world.told
        if line.startswith(f"{source}: ")
    ]


def test_agent_and_engine_are_told_in_their_order(world: World) -> None:
    machine = serving(world)
    world.timeline.at(600, lambda: say(machine, "one", "two"))
    world.timeline.at(900, lambda: say(machine, "three"))
    world.run(20 * MINUTE)
    assert told(world) == ["one", "two", "three"]
    assert "working: serve" in told(world, "tonnage-agent")


def test_the_last_word_of_a_machine_is_told_before_it_goes(
    world: World,
) -> None:
    machine = serving(world)
    world.run(30 * HOUR, lambda: not machine.is_up)
    assert told(world, "tonnage-agent")[-1] == (
        "gives the node back: nobody asked for anything"
    )


@pytest.mark.parametrize("status", [403, 429, 500])
def test_a_service_that_refuses_for_half_an_hour_loses_nothing(
    world: World, status: int
) -> None:
    machine = serving(world)
    texts = [f"line {number}" for number in range(60)]
    for number, text in enumerate(texts):
        world.timeline.at(number * 30, partial(say, machine, text))
    world.log_refusal = lambda: (
        RequestError(status, "not now")
        if world.timeline.now_s < 30 * MINUTE
        else None
    )
    world.run(45 * MINUTE)
    assert told(world) == texts
    complaints = [x for x in machine.log_lines if "journal is not told" in x]
    assert len(complaints) == 1


def test_a_machine_that_was_offline_or_restarted_goes_on_where_it_was(
    world: World,
) -> None:
    machine = serving(world)
    world.is_online = lambda: not 600 <= world.timeline.now_s < 1200
    for time_s in range(300, 1800, 60):
        world.timeline.at(time_s, partial(say, machine, f"at {time_s}"))
    world.timeline.at(900, machine.reboot)
    world.run(40 * MINUTE)
    assert told(world) == [f"at {time_s}" for time_s in range(300, 1800, 60)]


def test_a_flood_is_cut_and_said_so(world: World) -> None:
    machine = serving(world)
    world.timeline.at(605, lambda: say(machine, *["flood"] * 1000))
    world.timeline.at(700, lambda: say(machine, "calm"))
    world.run(20 * MINUTE)
    assert told(world) == [
        *["flood"] * LINES_A_MINUTE,
        f"{1000 - LINES_A_MINUTE} lines of a minute are not told",
        "calm",
    ]


def test_what_is_refused_for_an_hour_is_given_up_for_what_is_new(
    world: World,
) -> None:
    machine = serving(world)
    say(machine, "poison")
    world.log_refusal = lambda: (
        RequestError(400, "InvalidParameterException")
        if world.timeline.now_s < 2 * HOUR
        else None
    )
    world.has_traffic = lambda _: True
    for hour in range(1, 4):
        world.timeline.at(
            hour * HOUR + 1, partial(say, machine, f"hour {hour}")
        )
    world.run(4 * HOUR)
    assert told(world)[-1] == "hour 3"
    assert "an hour of the journal is given up" in machine.log_lines


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            "plain: 12 tokens, token: 1234567",
            "plain: 12 tokens, token: 1234567",
        ),
        ("\x1b[32mINFO\x1b[0m ready\r\n", "INFO ready"),
        (" 10%|#  |\r 50%|## |\r100%|###|", "100%|###|"),
        ([104, 195, 169, 255], "hé\ufffd"),
        (None, ""),
        ("a\x00b\tc\nd", "ab\tc\nd"),
        ("key AKIAIOSFODNN7EXAMPLE used", "key *** used"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "HF_TOKEN=***"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        (
            "https://a.blob/x?sv=1&sig=Ab%2F3&se=2",
            "https://a.blob/x?sv=1&sig=***&se=2",
        ),
        ("git clone https://me:pw@host/x", "git clone https://***@host/x"),
        ("password=hunter2", "password=***"),
        ('{"password": "hunter2222"}', '{"password": ***}'),
        ("password: hunter22", "password: ***"),
        ("run --password hunter22 --x", "run --password *** --x"),
        ("run --token abcdefgh", "run --token ***"),
        ("api_key=abcd1234", "api_key=***"),
        ("WANDB_API_KEY=abcd1234", "WANDB_API_KEY=***"),
        ("AWS_SECRET_ACCESS_KEY=wJal/rX+", "AWS_SECRET_ACCESS_KEY=***"),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic ***"),
        ("x-api-key: abcd1234", "x-api-key: ***"),
        ('client_secret="abc def"', "client_secret=***"),
        ("max_tokens=4096 token=12", "max_tokens=4096 token=12"),
        ("tokenizer: /models/llama", "tokenizer: /models/llama"),
        ("x" * 5000, "x" * 2000),
    ],
)
def test_lines_are_clean_and_without_secrets(message, text: str) -> None:
    assert clean(message) == text


def test_a_full_disk_keeps_no_machine_and_tells_no_line_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    machine = serving(world)
    world.run(10 * MINUTE)
    monkeypatch.setattr(agent, "write_whole", is_full)
    monkeypatch.setattr(journal, "write_whole", is_full)
    say(machine, "before the end")
    world.run(30 * HOUR, lambda: not machine.is_up)
    assert told(world) == ["before the end"]
    assert sum("life of the node" in x for x in machine.log_lines) == 1
    assert told(world, "tonnage-agent")[-1].startswith("gives the node back")


def test_a_torn_position_is_no_end(world: World) -> None:
    machine = serving(world)
    world.run(10 * MINUTE)
    machine.path("/var/lib/tonnage/journal.json").write_text('{"cursor": ')
    machine.reboot()
    say(machine, "after")
    world.run(12 * MINUTE)
    assert "after" in told(world)
    position = machine.path("/var/lib/tonnage/journal.json").read_text()
    assert json.loads(position)["cursor"]


@pytest.mark.parametrize("entry", ["{}", "[]", "3", '{"__CURSOR": "x"}'])
def test_an_entry_that_cannot_be_read_ends_no_agent(
    world: World, entry: str
) -> None:
    machine = serving(world)
    world.timeline.at(300, partial(machine.journal.append, entry))
    world.run(30 * HOUR, lambda: not machine.is_up)
    assert "gives the node back: nobody asked for anything" in machine.log_lines


def test_every_container_is_one_whose_lines_are_told() -> None:
    columns = dict.fromkeys(
        ("fabric", "image", "kind", "text", "meaning"), table.nonempty_text
    )
    rows = table.load_rows(
        "stacks", "containers.csv", {**columns, **table.SOURCE_COLUMNS}
    )
    services = {
        row["text"].split()[0] for row in rows if row["kind"] == "service"
    }
    assert services
    own = {module.NAME for module in (hub, router, serve, train, workspace)}
    neighbors = {
        beside.NAME.format(number=number)
        for number in range(1, MOST_NEIGHBORS + 1)
    }
    assert own | neighbors | services == set(journal.CONTAINERS)
