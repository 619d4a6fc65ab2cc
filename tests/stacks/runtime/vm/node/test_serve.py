"""Machines that serve, from their first boot to their last request, when things go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    seated,
    settings_of,
    state_of,
)

MODEL = "models/llama-3.1-8b/"
WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]
INDEX = "model.safetensors.index.json"
SHARDS = ["model-1.safetensors", "model-2.safetensors"]
# 45 minutes, 16 GB of weights at 0.2 GB/s, and the last look.
START_LIMIT = 45 * MINUTE + 80 + MINUTE


def serving(world: World, **state: Any) -> SandboxMachine:
    """A machine whose weights are there before it is."""
    world.upload(MODEL, WEIGHTS)
    return world.add("serve", **state)


def released(world: World, folder: str = "released") -> list[str]:
    """Why machines were given back, as the bucket says."""
    return [
        json.loads(data)["reason"]
        for key, (data, _) in world.objects.items()
        if key.startswith(f"{folder}/")
    ]


def always(_: float) -> bool:
    return True


def test_a_service_without_requests_is_given_back(world: World) -> None:
    world.has_traffic = lambda now_s: now_s < 3 * HOUR
    machine = serving(world)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    # An hour after the last request, and not before.
    assert 4 * HOUR <= machine.ended_s <= 4 * HOUR + 10 * MINUTE
    assert released(world) == ["nobody asked for anything"]


def test_requests_right_after_a_long_load_are_no_hung_engine(
    world: World,
) -> None:
    world.has_traffic = always
    world.load_s = 20 * MINUTE
    machine = serving(world)
    world.run(2 * HOUR)
    runs = [
        w for w in machine.commands if w[:3] == ("docker", "run", "--detach")
    ]
    assert len(runs) == 1


def test_a_service_with_few_requests_stays(world: World) -> None:
    """One request in 40 minutes moves few bytes, and is a request."""
    world.has_traffic = lambda now_s: now_s % (40 * MINUTE) < MINUTE
    machine = serving(world)
    world.run(DAY / 2)
    assert machine.is_up
    assert state_of(machine)["phase"] == "working"


def test_the_server_starts_when_all_weights_are_there(world: World) -> None:
    machine = world.add("serve")
    manifest = json.dumps(
        {"weight_map": {f"layer{n}": name for n, name in enumerate(SHARDS)}}
    )
    world.timeline.at(MINUTE, lambda: world.upload(MODEL, ["config.json"]))
    world.timeline.at(2 * MINUTE, lambda: world.store(MODEL + INDEX, manifest))
    world.timeline.at(5 * MINUTE, lambda: world.upload(MODEL, SHARDS[:1]))
    world.run(20 * MINUTE)
    assert machine.containers == {}
    assert "model-2.safetensors is missing" in state_of(machine)["problem"]
    world.upload(MODEL, SHARDS[1:])
    world.run(23 * MINUTE)
    assert "tokenizer* is missing" in state_of(machine)["problem"]
    world.upload(MODEL, ["tokenizer.json"])
    world.run(31 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    folder = machine.path(f"/{MODEL}")
    assert {path.name for path in folder.glob("*.safetensors")} == set(SHARDS)


def test_a_manifest_is_what_its_files_are_compared_with(world: World) -> None:
    manifest = {"files": [{"name": "a", "bytes": 3, "sha256": "0" * 64}]}
    world.put(MODEL + "a", b"abc")
    world.put(MODEL + "tonnage-manifest.json", json.dumps(manifest).encode())
    machine = world.add("serve")
    world.run(10 * MINUTE)
    assert machine.containers == {}
    assert "not what its manifest says" in state_of(machine)["problem"]


def test_new_weights_are_fetched_at_the_next_start(world: World) -> None:
    machine = serving(world)
    world.run(10 * MINUTE)
    world.put(MODEL + "model.safetensors", b"newer")
    machine.reboot()
    world.run(20 * MINUTE)
    weights = machine.path(f"/{MODEL}model.safetensors")
    assert weights.read_bytes() == b"newer"
    assert state_of(machine)["phase"] == "working"


def test_weights_that_never_come_end_the_machine(world: World) -> None:
    machine = world.add("serve")
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= START_LIMIT
    assert "upload what is missing" in released(world)[0]


@pytest.mark.parametrize(
    ("command", "minutes"),
    [("apt-get", 10), ("docker", 10), ("systemctl", 5), ("mkfs.ext4", 5)],
)
def test_a_command_that_fails_for_a_while_is_tried_again(
    world: World, command: str, minutes: int
) -> None:
    machine = serving(
        world,
        packages=set(),
        failures={command: lambda: world.timeline.now_s < minutes * MINUTE},
    )
    world.run(25 * MINUTE)
    assert state_of(machine)["phase"] == "working"


@pytest.mark.parametrize("command", ["apt-get", "systemctl", "mkfs.ext4"])
def test_a_command_that_always_fails_ends_the_machine(
    world: World, command: str
) -> None:
    machine = serving(world, packages=set(), failures={command: lambda: True})
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= START_LIMIT
    assert "made to fail" in released(world)[0]


def test_a_boot_without_network_waits_for_it(world: World) -> None:
    world.is_online = lambda: world.timeline.now_s > 10 * MINUTE
    machine = serving(world)
    world.run(20 * MINUTE)
    assert state_of(machine)["phase"] == "working"


def test_a_network_that_goes_and_comes_back_ends_nothing(world: World) -> None:
    world.has_traffic = always
    machine = serving(world)
    world.is_online = lambda: not HOUR < world.timeline.now_s < 2 * HOUR
    world.run(3 * HOUR)
    assert machine.is_up
    assert state_of(machine)["phase"] == "working"


@pytest.mark.parametrize("minute", [0.5, 1, 3, 5, 6, 20, 90])
def test_a_reboot_at_any_time_comes_back_to_work(
    world: World, minute: float
) -> None:
    world.has_traffic = always
    world.load_s = 240
    machine = serving(world)
    world.timeline.at(minute * MINUTE, machine.reboot)
    world.run((minute + 12) * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert "/models" in machine.mounts
    formats = [words for words in machine.commands if words[0] == "mkfs.ext4"]
    assert len(formats) == 1


def test_disks_that_lost_their_content_are_made_anew(world: World) -> None:
    machine = serving(world)
    world.run(10 * MINUTE)
    machine.reboot(wipes_disks=True)
    world.run(20 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert "/models" in machine.mounts


@pytest.mark.parametrize("count", [1, 2, 8])
def test_disks_of_the_machine_become_one(world: World, count: int) -> None:
    machine = serving(world, local_disks=count)
    world.run(10 * MINUTE)
    assert "/models" in machine.mounts
    joined = [kind for kind, _ in machine.disks.values() if kind == "raid"]
    assert len(joined) == (count if count > 1 else 0)


def test_a_disk_with_something_on_it_is_never_formatted(world: World) -> None:
    world.upload(MODEL, WEIGHTS)
    machine = world.add("serve", disks={})
    device = next(iter(machine.disks))
    machine.disks[device] = ("xfs", "mine")
    world.run(DAY, lambda: not machine.is_up)
    assert machine.disks[device] == ("xfs", "mine")
    assert "holds something that was not made here" in released(world)[0]


def test_the_disk_that_an_image_has_mounted_is_waited_for(
    world: World,
) -> None:
    machine = serving(world, has_image_mount=True)
    mount = "/opt/dlami/nvme"
    world.timeline.at(MINUTE, lambda: machine.mounts.add(mount))
    world.run(10 * MINUTE)
    unit = machine.path("/etc/systemd/system/models.mount").read_text()
    assert f"What={mount}/models" in unit
    assert state_of(machine)["phase"] == "working"
    assert not any(words[0] == "mkfs.ext4" for words in machine.commands)


def test_a_broken_machine_is_replaced_once(world: World) -> None:
    first = serving(world, accelerators=7)
    # Azure moves the machine; the others start another one, which is as broken here.
    if world.provider != "azure":
        world.run(10 * MINUTE, lambda: not first.is_up)
        assert not first.is_up
        world.add("serve", accelerators=7)
    last = world.machines[-1]
    world.run(HOUR, lambda: not last.is_up)
    assert not last.is_up
    assert world.replaced == [first.name]
    assert all("7 of" in reason for reason in released(world, "broken"))


@pytest.mark.parametrize("world", ["azure"], indirect=True)
def test_a_scale_set_that_rolls_hears_when_a_machine_is_well(
    world: World,
) -> None:
    machine = serving(world)
    settings = machine.settings["cloud"]
    world.run(MINUTE)
    tell = machine.doors[settings["health_port"]]
    # A start is no sickness: the extension waits for another answer.
    assert state_of(machine)["phase"] == "starting"
    assert tell() == (503, b"")
    world.run(HOUR, lambda: tell()[0] == 200)
    assert tell() == (200, b'{"ApplicationHealthState": "Healthy"}')


@pytest.mark.parametrize("world", ["azure"], indirect=True)
def test_a_machine_on_other_hardware_works(world: World) -> None:
    world.has_traffic = always
    machine = serving(world, accelerators=7)
    settings = machine.settings
    world.timeline.at(
        9 * MINUTE,
        lambda: setattr(
            machine, "accelerators", settings["health"]["accelerators"]
        ),
    )
    world.run(30 * MINUTE)
    assert world.replaced == [machine.name]
    assert machine.is_up
    assert state_of(machine)["phase"] == "working"
    world.run(2 * HOUR)
    assert machine.is_up


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:53:00): 48, pid=1, DBE",
    ],
)
def test_a_machine_that_breaks_later_is_found_within_the_hour(
    world: World, message: str
) -> None:
    world.has_traffic = always
    machine = serving(world)

    def breaks() -> None:
        machine.messages = f"boring\n{message}\n"

    world.timeline.at(30 * MINUTE, breaks)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < 2 * HOUR
    assert "Xid" in released(world, "broken")[0]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ("700.00, 700.00, Active\n", "slowed down"),
        ("350.00, 700.00, Not Active\n", "may take 350.00 of 700.00 W"),
    ],
)
def test_a_machine_that_is_slow_for_good_is_replaced(
    world: World, limits: str, why: str
) -> None:
    serving(world, limits=lambda: limits)
    world.run(HOUR)
    assert why in released(world, "broken")[0]


@pytest.mark.parametrize(
    "limits",
    [
        "650.00, 700.00, Not Active\n",
        # An accelerator of a virtual machine that says nothing.
        "[N/A], [N/A], [N/A]\n",
    ],
)
def test_a_machine_that_says_nothing_of_limits_is_well(
    world: World, limits: str
) -> None:
    machine = serving(world, limits=lambda: limits)
    world.run(HOUR)
    assert machine.is_up
    assert released(world, "broken") == []


def test_a_machine_that_is_slow_for_a_moment_is_well(world: World) -> None:
    looks = iter(["700.00, 700.00, Active\n"])
    machine = serving(
        world, limits=lambda: next(looks, "700.00, 700.00, Not Active\n")
    )
    world.run(HOUR)
    assert machine.is_up
    assert released(world, "broken") == []


def test_errors_of_programs_are_no_broken_machine(world: World) -> None:
    world.has_traffic = always
    machine = serving(world, messages="NVRM: Xid (PCI:0000:53:00): 31, fault\n")
    world.run(3 * HOUR)
    assert machine.is_up


def test_an_engine_that_dies_again_and_again_ends_the_machine(
    world: World,
) -> None:
    def dies(_: SandboxMachine, container: Any) -> None:
        container.is_running, container.code = False, 1
        container.log = "out of memory"

    machine = serving(world, job=dies)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < START_LIMIT
    assert "fails again and again" in released(world, "broken")[0]


def test_an_engine_that_dies_once_is_started_again(world: World) -> None:
    world.has_traffic = always
    machine = serving(world)

    def dies() -> None:
        machine.containers["tonnage-serve"].is_running = False

    world.timeline.at(HOUR, dies)
    world.run(HOUR + 10 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert machine.containers["tonnage-serve"].started_s > HOUR


def test_an_engine_that_never_answers_ends_the_machine(world: World) -> None:
    world.load_s = 2 * DAY
    machine = serving(world)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= START_LIMIT
    assert "load the model" in released(world)[0]


@pytest.mark.parametrize(
    ("answered_s", "stopped_s"),
    [
        # Nothing new comes, and the last answer is done after 40 seconds.
        (40, 40),
        # Answers that never end are dropped before the machine is taken away.
        (DAY, 100),
    ],
)
def test_a_notice_lets_the_engine_finish(
    world: World, answered_s: float, stopped_s: float
) -> None:
    world.has_traffic = lambda now_s: now_s < HOUR + answered_s
    machine = serving(world)

    def announce() -> None:
        machine.notice = True

    world.timeline.at(HOUR, announce)
    engine = "tonnage-serve"
    world.run(HOUR + stopped_s - 5)
    assert machine.containers[engine].is_running
    world.run(HOUR + stopped_s + 30)
    assert not machine.containers[engine].is_running
    stops = [
        words for words in machine.commands if words[:2] == ("docker", "stop")
    ]
    assert len(stops) == 1


@pytest.mark.parametrize("jump_s", [-DAY, 30 * DAY])
def test_a_clock_that_is_set_ends_nothing(world: World, jump_s: float) -> None:
    world.has_traffic = always
    settings = settings_of(world.provider, "serve")
    settings["agent"]["limits"]["ttl"] = 4 * HOUR
    world.upload(MODEL, WEIGHTS)
    machine = world.add("serve", settings)

    def jump() -> None:
        machine.wall_jump_s = jump_s

    world.timeline.at(HOUR, jump)
    world.run(3.9 * HOUR)
    assert machine.is_up
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 4 * HOUR <= machine.ended_s <= 4 * HOUR + 2 * MINUTE


def test_a_reboot_does_not_lengthen_a_life(world: World) -> None:
    world.has_traffic = always
    settings = settings_of(world.provider, "serve")
    settings["agent"]["limits"]["ttl"] = 4 * HOUR
    world.upload(MODEL, WEIGHTS)
    machine = world.add("serve", settings)
    for hour in (1, 2, 3):
        world.timeline.at(hour * HOUR, machine.reboot)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 4 * HOUR <= machine.ended_s <= 4 * HOUR + 5 * MINUTE


def test_a_refused_release_is_asked_for_again(world: World) -> None:
    machine = serving(world)
    world.is_online = lambda: (
        world.timeline.now_s < HOUR or (world.timeline.now_s > 3 * HOUR)
    )
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < 3 * HOUR + 10 * MINUTE


# Replicas over several machines.


def grouped(provider: str, groups: int = 2, span: int = 2) -> dict[str, Any]:
    settings = settings_of(provider, "serve")
    settings["work"] |= {"group_count": groups, "span": span}
    settings["agent"]["limits"]["idle"] = 0
    return settings


def words_of(machine: SandboxMachine) -> dict[str, str]:
    words = machine.containers["tonnage-serve"].words
    pairs = (word.partition("=") for word in words if word.startswith("--"))
    return {name: text for name, _, text in pairs}


def ranks(machines: list[SandboxMachine]) -> dict[str, list[str]]:
    """The ranks of each leader's group, by its address."""
    groups: dict[str, list[str]] = {}
    for machine in machines:
        words = words_of(machine)
        groups.setdefault(words["--master-addr"], []).append(
            words["--node-rank"]
        )
    return {leader: sorted(found) for leader, found in groups.items()}


def test_machines_that_come_late_make_whole_groups(world: World) -> None:
    """Two of four nodes boot ten minutes before the others."""
    world.upload(MODEL, WEIGHTS)
    settings = grouped(world.provider)
    for minute in (0, 0, 10, 10):
        world.timeline.at(
            minute * MINUTE, lambda: world.come("serve", settings)
        )
    world.run(30 * MINUTE)
    assert len(world.machines) == 4
    assert sorted(ranks(world.machines).values()) == [["0", "1"], ["0", "1"]]
    assert all(state_of(m)["phase"] == "working" for m in world.machines)
    headless = [m for m in world.machines if "--headless" in words_of(m)]
    assert {words_of(m)["--node-rank"] for m in headless} == {"1"}


def test_a_replaced_machine_takes_the_place_of_the_lost_one(
    world: World,
) -> None:
    world.upload(MODEL, WEIGHTS)
    settings = grouped(world.provider)
    machines = [world.add("serve", settings) for _ in range(4)]
    world.run(20 * MINUTE)
    lost = machines[1]
    partner = next(
        m
        for m in machines
        if m is not lost
        and words_of(m)["--master-addr"] == words_of(lost)["--master-addr"]
    )
    others = [m for m in machines if m not in (lost, partner)]
    began = {m.name: m.containers["tonnage-serve"].started_s for m in others}
    rank = words_of(lost)["--node-rank"]
    world.end(lost, replaced=True)
    spare = world.add("serve", settings)
    world.run(60 * MINUTE)
    assert words_of(spare)["--node-rank"] == rank
    group = words_of(partner)["--master-addr"]
    assert words_of(spare)["--master-addr"] == group
    assert all(state_of(m)["phase"] == "working" for m in [spare, *others])
    # The other group was not touched.
    assert began == {
        m.name: m.containers["tonnage-serve"].started_s for m in others
    }


def test_a_member_that_restarts_takes_its_group_along(world: World) -> None:
    world.upload(MODEL, WEIGHTS)
    settings = grouped(world.provider, groups=1)
    machines = [world.add("serve", settings) for _ in range(2)]
    world.run(20 * MINUTE)
    places = [words_of(m)["--node-rank"] for m in machines]
    machines[0].reboot()
    world.run(40 * MINUTE)
    assert [words_of(m)["--node-rank"] for m in machines] == places
    assert all(state_of(m)["phase"] == "working" for m in machines)
    assert all(
        m.containers["tonnage-serve"].started_s >= 20 * MINUTE for m in machines
    )


def test_a_group_that_is_never_complete_does_not_wait_for_ever(
    world: World,
) -> None:
    world.upload(MODEL, WEIGHTS)
    machine = world.add("serve", grouped(world.provider, groups=1))
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 2 * HOUR <= machine.ended_s < 2 * HOUR + 15 * MINUTE
    assert released(world) == ["it waited too long: 1 of 2 nodes are here"]


def test_a_group_that_waits_is_not_saved_by_a_network_that_flaps(
    world: World,
) -> None:
    """A look that fails is no new start of the waiting."""
    world.upload(MODEL, WEIGHTS)
    machine = world.add("serve", grouped(world.provider, groups=1))
    world.is_online = lambda: world.timeline.now_s % HOUR > MINUTE
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < 2.5 * HOUR


def test_a_machine_too_many_stands_by_without_a_seat(world: World) -> None:
    world.upload(MODEL, WEIGHTS)
    settings = grouped(world.provider, groups=1)
    machines = [world.add("serve", settings) for _ in range(3)]
    world.run(20 * MINUTE)
    phases = sorted(state_of(m)["phase"] for m in machines)
    assert phases == ["spare", "working", "working"]
    assert len(seated(world)) == 2


def guarded(world: World) -> tuple[SandboxMachine, str]:
    """A machine whose clients need a key, and the name of its secret."""
    name = "team/key" if world.provider == "azure" else "key"
    world.upload(MODEL, WEIGHTS)
    settings: dict[str, Any] = settings_of(world.provider, "serve")
    work = {**settings["work"], "api_key": name}
    return world.add("serve", {**settings, "work": work}), name


def test_the_key_of_clients_reaches_the_engine_and_stays_nowhere(
    world: World,
) -> None:
    world.has_traffic = always
    machine, name = guarded(world)
    world.secrets[name] = "sk-clients\n"
    handed_over: list[str] = []
    run = machine.run

    def watched(*words: str, **options: Any) -> str:
        handed_over.extend(
            Path(word.partition("=")[2]).read_text()
            for word in words
            if word.startswith("--env-file=")
        )
        return run(*words, **options)

    machine.run = watched  # type: ignore[method-assign]
    world.run(15 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert handed_over == ["VLLM_API_KEY=sk-clients\n"]
    assert not any("sk-clients" in " ".join(w) for w in machine.commands)
    assert "sk-clients" not in "".join(machine.journal)
    assert not any(
        "sk-clients" in path.read_text()
        for path in machine.root.rglob("*")
        if path.is_file() and path.suffix != ".part"
    )


def test_a_service_without_its_key_answers_nobody(world: World) -> None:
    machine, name = guarded(world)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= START_LIMIT + 10 * MINUTE
    assert not [
        words
        for words in machine.commands
        if words[:2] == ("docker", "run") and "--detach" in words
    ]
    assert f"the secret {name} cannot be read" in released(world)[0]
