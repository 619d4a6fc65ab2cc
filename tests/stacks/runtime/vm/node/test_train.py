"""Machines that train together, and go on when some of them are lost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    Container,
    SandboxMachine,
    World,
    seated,
    settings_of,
    state_of,
)

TRACKER = "latest_checkpointed_iteration.txt"
STEP_S = 10.0


@dataclass
class Job:
    """A job over some nodes that saves every some steps, as Megatron does.

    Every rank writes its own shard; the first one alone writes where the newest is.
    """

    nodes: int
    save_every: int = 60
    last_step: int = 600
    folder: str = "/models/checkpoints"
    is_hung: bool = False
    # By machine and start: the step from which it went on.
    resumed: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, machine: SandboxMachine, container: Container) -> None:
        world = machine.world
        now_s = world.timeline.now_s
        members = {
            m.containers["tonnage-train"].option("--node-rank"): m
            for m in world.machines
            if m.is_up
            and "tonnage-train" in m.containers
            and m.containers["tonnage-train"].is_running
        }
        if container.base is None:
            container.base = self.base(machine)
        if len(members) < int(container.option("--nnodes")):
            if now_s - container.started_s > 2 * MINUTE:
                container.is_running, container.code = False, 1
                container.log = "a rank is gone"
            return
        containers = [m.containers["tonnage-train"] for m in members.values()]
        if self.is_hung or any(member.base is None for member in containers):
            return
        began_s = max(member.started_s for member in containers) + MINUTE
        step = container.base + max(0, int((now_s - began_s) / STEP_S))
        first = container.base // self.save_every + 1
        last = min(step, self.last_step) // self.save_every
        # All ranks step, save and end together.
        for rank, member in members.items():
            member_container = member.containers["tonnage-train"]
            for saved in range(
                max(first, member_container.saved + 1), last + 1
            ):
                self.save(member, int(rank), saved * self.save_every)
            member_container.saved = max(member_container.saved, last)
        # The log of most jobs is that of one rank.
        members["0"].containers["tonnage-train"].log = f"step {step}"
        if step >= self.last_step:
            for member_container in containers:
                member_container.is_running = False

    def base(self, machine: SandboxMachine) -> int:
        """The step from which a machine goes on; all shards of it must be here."""
        tracker = machine.path(self.folder) / TRACKER
        step = int(tracker.read_text()) if tracker.exists() else 0
        if step:
            shards = list((tracker.parent / f"iter_{step:07d}").glob("rank*"))
            whole = machine.world.objects[f"checkpoints/iter_{step:07d}/.whole"]
            assert len(shards) == len(json.loads(whole[0])), "lacks shards"
        self.resumed.append((machine.name, step))
        return step

    def save(self, machine: SandboxMachine, rank: int, step: int) -> None:
        shard = machine.path(self.folder) / f"iter_{step:07d}" / f"rank{rank}"
        if shard.exists():
            return
        shard.parent.mkdir(parents=True, exist_ok=True)
        shard.write_text(f"{step} of {rank}")
        if rank == 0:
            (shard.parent.parent / TRACKER).write_text(str(step))


def training(provider: str, nodes: int, **changes: Any) -> dict[str, Any]:
    settings = settings_of(provider, "train")
    settings["work"] |= {
        "nodes": nodes,
        "last_step": 600,
        "keep_last": 2,
        "span_steps": 300,
        "hung_s": 600,
        **changes,
    }
    return settings


def gang(
    world: World, job: Job, machines: int, **changes: Any
) -> list[SandboxMachine]:
    world.upload("job/", ["train.py"])
    settings = training(world.provider, job.nodes, **changes)
    return [world.add("train", settings, job=job) for _ in range(machines)]


def elastic_gang(
    world: World, job: Job, base: int
) -> tuple[list[SandboxMachine], list[SandboxMachine]]:
    """Machines of a base, and the others of the job, which are on spot."""
    told = base_told(base)
    return gang(world, job, base, base=told), gang(
        world, job, job.nodes - base, base=told, is_spot=True
    )


def base_told(nodes: int) -> dict[str, Any]:
    return {"nodes": nodes, "words": ["train.py", "--base"], "hung_s": 600}


def launches(world: World) -> set[tuple[str, bool]]:
    """Of each machine that trains: how many nodes it was told of, and whether as a base."""
    running = (
        m.containers["tonnage-train"]
        for m in world.machines
        if m.is_up and "tonnage-train" in m.containers
    )
    return {
        (container.option("--nnodes"), "--base" in container.words)
        for container in running
    }


def whole_steps(world: World) -> list[int]:
    return sorted(
        int(key.split("/")[1].removeprefix("iter_"))
        for key in world.objects
        if key.endswith("/.whole")
    )


def reasons(world: World) -> set[str]:
    return {
        json.loads(data)["reason"]
        for key, (data, _) in world.objects.items()
        if key.startswith("released/")
    }


def test_a_job_runs_to_its_end_and_all_machines_are_given_back(
    world: World,
) -> None:
    machines = gang(world, Job(nodes=3), machines=3)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    # 600 steps of 10 s, a minute of start, and some looks.
    assert world.timeline.now_s < 600 * STEP_S + 10 * MINUTE
    assert reasons(world) == {"its work is done"}
    # The newest two, and the newest of each span of 300 steps.
    assert whole_steps(world) == [240, 540, 600]
    shards = [key for key in world.objects if "iter_0000600/rank" in key]
    assert len(shards) == 3


def test_a_lost_machine_is_replaced_and_all_go_on_from_one_checkpoint(
    world: World,
) -> None:
    job = Job(nodes=3)
    machines = gang(world, job, machines=3)
    world.run(40 * MINUTE)
    saved = whole_steps(world)[-1]
    assert saved > 0
    world.end(machines[1], replaced=True)
    job.resumed.clear()
    [late] = gang(world, job, machines=1)
    world.run(70 * MINUTE)
    assert {step for _, step in job.resumed} == {saved}
    assert late.name in dict(job.resumed)
    world.run(DAY, lambda: not any(m.is_up for m in world.machines))
    assert reasons(world) == {"its work is done"}
    assert whole_steps(world)[-1] == 600


def test_a_torn_checkpoint_is_not_gone_on_from(world: World) -> None:
    """Rank 2 is lost when it has saved and not yet brought its shard to the bucket."""
    job = Job(nodes=3)
    machines = gang(world, job, machines=3)
    lost = machines[2]

    def is_saved() -> bool:
        folder = lost.path("/models/checkpoints")
        return any(folder.glob("iter_0000180/*"))

    world.run(DAY, is_saved)
    assert whole_steps(world)[-1] == 120
    world.end(lost, replaced=True)
    job.resumed.clear()
    gang(world, job, machines=1)
    world.run(world.timeline.now_s + 15 * MINUTE)
    assert {step for _, step in job.resumed} == {120}
    world.run(DAY, lambda: not any(m.is_up for m in world.machines))
    assert reasons(world) == {"its work is done"}
    # No part of another epoch became part of a checkpoint.
    for step in whole_steps(world):
        whole = world.objects[f"checkpoints/iter_{step:07d}/.whole"][0]
        assert sorted(json.loads(whole)) == ["rank0", "rank1", "rank2"]


def test_a_spare_stands_by_and_takes_the_place_of_a_lost_machine(
    world: World,
) -> None:
    job = Job(nodes=2, last_step=1200)
    machines = gang(world, job, machines=3, last_step=1200)
    world.run(2 * HOUR)
    [spare] = [m for m in machines if state_of(m)["phase"] == "spare"]
    # Two hours of nothing are not idle: the run lives.
    assert spare.is_up
    lost = next(m for m in machines if m is not spare)
    world.end(lost, replaced=False)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert spare.name in dict(job.resumed)
    assert reasons(world) == {"its work is done"}


def test_spares_are_given_back_when_the_job_is_done(world: World) -> None:
    machines = gang(world, Job(nodes=2), machines=4)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert reasons(world) == {"its work is done"}
    assert world.timeline.now_s < 600 * STEP_S + 10 * MINUTE


def test_a_machine_that_reboots_goes_on_with_the_others(world: World) -> None:
    job = Job(nodes=2)
    machines = gang(world, job, machines=2)
    places = None
    world.run(40 * MINUTE)
    places = {
        m.name: m.containers["tonnage-train"].option("--node-rank")
        for m in machines
    }
    saved = whole_steps(world)[-1]
    job.resumed.clear()
    machines[0].reboot()
    world.run(60 * MINUTE)
    assert {step for _, step in job.resumed} == {saved}
    assert places == {
        m.name: m.containers["tonnage-train"].option("--node-rank")
        for m in machines
    }


def test_a_job_that_hangs_is_started_again_from_its_checkpoint(
    world: World,
) -> None:
    job = Job(nodes=2)
    machines = gang(world, job, machines=2)
    world.run(30 * MINUTE)
    job.is_hung = True
    job.resumed.clear()
    world.run(42 * MINUTE)
    job.is_hung = False
    assert job.resumed
    assert {step for _, step in job.resumed} == {whole_steps(world)[-1]}
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert reasons(world) == {"its work is done"}


def test_a_job_that_always_hangs_ends_its_machines(world: World) -> None:
    """At full utilization, which is no progress."""
    machines = gang(world, Job(nodes=2, is_hung=True), machines=2)
    for machine in machines:
        machine.utilization = 100.0
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert world.timeline.now_s < 2 * HOUR
    assert all("has said nothing" in reason for reason in reasons(world))


def test_a_job_that_always_fails_ends_its_machines_and_says_why(
    world: World,
) -> None:
    def fails(_: SandboxMachine, container: Container) -> None:
        container.is_running, container.code = False, 2
        container.log = "no module named train"

    world.upload("job/", ["train.py"])
    settings = training(world.provider, 2)
    machines = [world.add("train", settings, job=fails) for _ in range(2)]
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert world.timeline.now_s < HOUR
    assert world.replaced == []
    assert all("no module named train" in reason for reason in reasons(world))


def test_a_gang_that_lacks_a_machine_waits_and_then_leaves(
    world: World,
) -> None:
    machines = gang(world, Job(nodes=3), machines=2)
    world.run(1.9 * HOUR)
    assert all(m.is_up for m in machines)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert world.timeline.now_s < 2.5 * HOUR
    assert reasons(world) == {"it waited too long: 2 of 3 nodes are here"}


def test_a_machine_that_is_taken_back_saves_and_frees_its_seat(
    world: World,
) -> None:
    job = Job(nodes=2)
    machines = gang(world, job, machines=3, is_spot=True)
    world.run(40 * MINUTE)
    [spare] = [m for m in machines if state_of(m)["phase"] == "spare"]
    leaving = next(m for m in machines if m is not spare)
    leaving.notice = True
    world.run(41 * MINUTE)
    assert leaving.name not in seated(world)
    world.end(leaving, replaced=False)
    world.run(50 * MINUTE)
    # It did not have to wait until the seat was free by age.
    assert state_of(spare)["phase"] == "working"


def test_checkpoints_that_a_cloud_refuses_for_an_hour_are_saved_later(
    world: World,
) -> None:
    job = Job(nodes=2, last_step=1200)
    machines = gang(world, job, machines=2, last_step=1200)
    world.is_online = lambda: not HOUR < world.timeline.now_s < 1.1 * HOUR
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert reasons(world) == {"its work is done"}
    assert whole_steps(world)[-1] == 1200


def test_nodes_with_one_file_system_leave_the_bucket_to_the_first(
    world: World,
) -> None:
    job = Job(nodes=2, folder="/data/checkpoints")
    world.stack = settings_of(world.provider, "train")["cloud"]["stack"]
    machines = gang(
        world,
        job,
        machines=2,
        checkpoints="/data/checkpoints",
        shares_files=True,
        fills_files=True,
        file_system={
            "key_url": "https://keys",
            "repository": "https://packages {codename} main",
            "packages": ["lustre-client-{kernel}"],
        },
    )
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert reasons(world) == {"its work is done"}
    assert whole_steps(world)[-1] == 600
    marks = [key for key in world.objects if "iter_0000600/.of-" in key]
    assert len(marks) == 1


def test_a_base_trains_on_while_machines_on_spot_are_away(world: World) -> None:
    job = Job(nodes=3)
    lasting, [on_spot] = elastic_gang(world, job, base=2)
    world.run(40 * MINUTE)
    assert launches(world) == {("3", False)}
    job.resumed.clear()
    on_spot.notice = True
    world.run(41 * MINUTE)
    world.end(on_spot, replaced=False)
    world.run(50 * MINUTE)
    assert launches(world) == {("2", True)}
    # From the checkpoint that the notice left time for.
    [resumed] = {step for _, step in job.resumed}
    assert resumed >= 180
    world.run(DAY, lambda: not any(m.is_up for m in lasting))
    assert reasons(world) == {"its work is done"}
    assert whole_steps(world)[-1] == 600


def test_machines_that_come_back_join_the_base_at_a_checkpoint(
    world: World,
) -> None:
    job = Job(nodes=3)
    lasting, [on_spot] = elastic_gang(world, job, base=2)
    world.run(40 * MINUTE)
    world.end(on_spot, replaced=False)
    world.run(55 * MINUTE)
    assert launches(world) == {("2", True)}
    job.resumed.clear()
    [back] = gang(world, job, 1, base=base_told(2), is_spot=True)
    # The seat of the lost machine is free by its age.
    world.run(63 * MINUTE)
    assert back.name in seated(world)
    before = whole_steps(world)[-1]
    # It costs nothing that was done to wait for the next checkpoint.
    assert state_of(back)["phase"] == "spare"
    assert launches(world) == {("2", True)}
    world.run(DAY, lambda: bool(job.resumed))
    assert whole_steps(world)[-1] == before + job.save_every
    world.run(world.timeline.now_s + 5 * MINUTE)
    assert launches(world) == {("3", False)}
    assert {step for _, step in job.resumed} == {before + job.save_every}
    world.run(DAY, lambda: not any(m.is_up for m in [*lasting, back]))
    assert reasons(world) == {"its work is done"}


def test_a_base_begins_without_machines_that_do_not_come(world: World) -> None:
    job = Job(nodes=4)
    lasting = gang(world, job, 2, base=base_told(2))
    world.run(14 * MINUTE)
    assert launches(world) == set()
    world.run(25 * MINUTE)
    assert launches(world) == {("2", True)}
    world.run(DAY, lambda: not any(m.is_up for m in lasting))
    assert reasons(world) == {"its work is done"}


def test_a_machine_on_spot_takes_no_seat_of_the_base(world: World) -> None:
    """The base would go with it, and with the base the job."""
    job = Job(nodes=3)
    lasting, [on_spot] = elastic_gang(world, job, base=2)
    world.run(40 * MINUTE)
    world.end(lasting[0], replaced=False)
    world.run(60 * MINUTE)
    assert launches(world) == set()
    assert state_of(on_spot)["phase"] == "waiting"
    gang(world, job, 1, base=base_told(2))
    world.run(75 * MINUTE)
    assert launches(world) == {("3", False)}
