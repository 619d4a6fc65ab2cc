"""Serving: a container of the engine on every node, or one engine over the nodes of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node import activity, container
from stacks.runtime.vm.node.group import Membership, SeatPool
from stacks.runtime.vm.node.router import Router
from stacks.runtime.vm.node.secret import secret_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.activity import EngineCounts
    from stacks.runtime.vm.node.beside import BesideEngines
    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.group import Epoch, Seat
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

NAME = "tonnage-serve"
# So long the engine may take for what it has begun; then it is ended, and drops what is left.
DRAIN_S = 100.0
DRAIN_LOOK_S = 2.0
STOP_S = 10


class EngineProgram(NamedTuple):
    """What is the same of an engine on all machines.

    metrics           how it calls what it counts
    key_variable      has the key of clients: the engine then answers requests with it alone, and
                      is asked for its health without one; empty where the proxy asks for it
    address_variable  has the address of the machine: among many interfaces it would guess
    group_words       of every machine of a group, with {span}, {rank} and {leader}
    follower_words    of those that do not lead
    drains            whether it answers what it has begun when it is told to end
    hand_over_variable  has the address at which others fetch the caches of its prompts
    """

    metrics: activity.EngineMetrics
    key_variable: str
    address_variable: str
    group_words: tuple[str, ...]
    follower_words: tuple[str, ...] = ()
    drains: bool = False
    hand_over_variable: str = ""


ENGINES = {
    "vllm": EngineProgram(
        metrics=activity.EngineMetrics(
            gauges=("vllm:num_requests_running", "vllm:num_requests_waiting"),
            counters=(
                "vllm:prompt_tokens_total",
                "vllm:generation_tokens_total",
            ),
        ),
        key_variable="VLLM_API_KEY",
        address_variable="VLLM_HOST_IP",
        group_words=(
            "--nnodes={span}",
            "--node-rank={rank}",
            "--master-addr={leader}",
        ),
        follower_words=("--headless",),
        hand_over_variable="VLLM_NIXL_SIDE_CHANNEL_HOST",
    ),
    # python/sglang/srt of SGLang 0.5.7: metrics/collector.py, server_args.py, utils/common.py and
    # managers/tokenizer_manager.py.
    "sglang": EngineProgram(
        metrics=activity.EngineMetrics(
            gauges=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
            # Those of prompts and answers grow when a request ends: a long one would look hung.
            counters=("sglang:realtime_tokens_total",),
            label='pp_rank="0"',
        ),
        key_variable="SGLANG_API_KEY",
        address_variable="SGLANG_HOST_IP",
        group_words=(
            "--nnodes={span}",
            "--node-rank={rank}",
            "--dist-init-addr={leader}:20000",
        ),
        drains=True,
    ),
    # TensorRT-LLM 1.1.0: commands/trtllm-serve of its documentation, tensorrt_llm/serve/
    # openai_server.py and metrics/collector.py. Its /metrics gives each step away once, and only
    # when for two seconds there was none: under load it would not answer.
    "trtllm": EngineProgram(
        metrics=activity.EngineMetrics(
            gauges=(),
            counters=("request_success_total",),
            path="/prometheus/metrics",
        ),
        key_variable="",
        address_variable="",
        group_words=(),
        drains=True,
    ),
}
DEFAULT_ENGINE = "vllm"


class ServingNode:
    """The engine of this node.

    Settings: container, words, port (of the engine), pool, group_count, span; engine where it is
    not vLLM; router where machines route requests among each other; api_key, the secret with the
    key of clients; hands_over where prompts are computed by other machines than answers; beside,
    the engines of other services; slices, their MIG slices.
    """

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        work: Work,
        settings: Mapping[str, Any],
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._work = work
        self._settings = settings
        self._engine = ENGINES[settings.get("engine", DEFAULT_ENGINE)]
        self._failures = container.Failures(machine)
        self._was_started = False
        self._was_healthy = False
        self._sick_looks = 0
        self._traffic: EngineCounts | None = None
        self._moved_s = machine.now_s()
        self._counted_s = machine.now_s()
        self._membership = (
            Membership(
                SeatPool(
                    machine,
                    cloud,
                    settings["pool"],
                    group_count=settings["group_count"],
                    span=settings["span"],
                ),
                work,
                self._remove,
            )
            if settings["span"] > 1
            else None
        )
        self._router = (
            Router(machine, cloud, settings["router"])
            if "router" in settings
            else None
        )
        self._beside = (
            _beside_engines(machine, cloud, work, self._engine, settings)
            if "beside" in settings
            else None
        )
        # The place of this node in a group that works.
        self._place: tuple[Seat, Epoch] | None = None

    @property
    def leads(self) -> bool:
        """Whether requests come to this node: it serves alone, or leads its group."""
        return self._place is None or self._place[0].rank == 0

    @property
    def is_ready(self) -> bool:
        """Whether the engine has answered since it was started."""
        return (
            self._was_healthy
            and (self._membership is None or self._membership.epoch is not None)
            and (self._beside is None or self._beside.are_ready)
        )

    def look(self) -> bool:
        """Do what is due, and say how it stands. A service never ends by itself."""
        if self._failures.are_many or (
            self._beside is not None and self._beside.have_failed
        ):
            self._work.tell(
                "unhealthy", "serve", "the engine fails again and again"
            )
        elif self._membership is None:
            self._keep_up()
            if self._beside is not None:
                self._beside.look(may_start=self._was_healthy)
        else:
            self._place = self._membership.join()
            if self._place is not None:
                self._keep_up()
        if self._router is not None:
            self._router.look(is_ready=self.is_ready and self.leads)
        return True

    def leave(self) -> None:
        """Let the engine finish what it has begun; the balancer sends nothing to it then."""
        if self._router is not None:
            self._router.leave()
        if self._engine.drains:
            container.stop(self._machine, NAME, int(DRAIN_S))
        else:
            self._drain()
            container.stop(self._machine, NAME, STOP_S)
        if self._beside is not None:
            self._beside.stop()
        if self._router is not None:
            self._router.stop()
        if self._membership is not None:
            self._membership.leave()

    def _drain(self) -> None:
        """Wait until the engine has answered everything: it drops requests when it is stopped."""
        deadline_s = self._machine.now_s() + DRAIN_S
        while self._machine.now_s() < deadline_s:
            traffic = activity.engine_traffic(
                self._machine,
                "127.0.0.1",
                self._settings["port"],
                self._engine.metrics,
            )
            if traffic is None or not traffic.requests:
                break
            self._machine.sleep(DRAIN_LOOK_S)
        if self._beside is not None:
            self._beside.drain(deadline_s, DRAIN_LOOK_S)

    def _keep_up(self) -> None:
        """Start the engine when it does not run, and look at it when it does."""
        exit_ = container.ended(self._machine, NAME)
        if exit_ is not None:
            if self._was_started:
                self._fail(
                    f"the engine ended with {exit_.code}: {exit_.last_lines}"
                )
            elif self._beside is None or not self._beside.is_starting:
                self._start()
        else:
            self._look_at_engine()

    def _remove(self) -> None:
        container.remove(self._machine, NAME)
        self._was_started = self._was_healthy = False

    def _start(self) -> None:
        words, variables = list(self._settings["words"]), {}
        if self._place is not None:
            seat, epoch = self._place
            leader = epoch.members[0].address
            words += [
                word.format(
                    span=self._settings["span"], rank=seat.rank, leader=leader
                )
                for word in self._engine.group_words
            ]
            if not self.leads:
                words += self._engine.follower_words
            address = epoch.members[seat.rank].address
            variables[self._engine.address_variable] = address
        if self._settings.get("hands_over"):
            variables[self._engine.hand_over_variable] = self._cloud.address()
        with secret_words(
            self._machine,
            self._cloud,
            self._settings.get("api_key", ""),
            self._engine.key_variable,
        ) as key_words:
            container.start(
                self._machine,
                NAME,
                self._settings["container"],
                words,
                variables,
                more_options=key_words,
                devices=_devices(self._machine, self._settings),
            )
        self._was_started, self._was_healthy, self._sick_looks = True, False, 0
        self._traffic = None
        self._moved_s = self._machine.now_s()
        self._work.tell("starting", "load the model")

    def _look_at_engine(self) -> None:
        address = "127.0.0.1"
        if self._place is not None and not self.leads:
            address = self._place[1].members[0].address
        traffic = activity.engine_traffic(
            self._machine,
            address,
            self._settings["port"],
            self._engine.metrics,
        )
        # Nodes that follow have no port: they are as well as the one that leads.
        if traffic is not None and (
            not self.leads
            or activity.is_healthy(self._machine, self._settings["port"])
        ):
            self._sick_looks, self._was_healthy = 0, True
            self._judge(traffic)
            return
        self._sick_looks += 1
        if not self._was_healthy:
            self._work.tell("starting", "load the model")
        elif self.leads and self._sick_looks >= activity.SICK_LOOKS:
            self._fail("the engine does not answer")

    def _judge(self, traffic: EngineCounts) -> None:
        """Say whether there was work, and restart an engine that has some and does none."""
        before, self._traffic = self._traffic, traffic
        has_tokens = before is not None and traffic.tokens != before.tokens
        if not self._engine.metrics.gauges:
            # Nothing says what it has begun, but accelerators work on it.
            is_busy = has_tokens or activity.accelerators_work(self._machine)
            self._work.tell("working", "serve", is_busy=is_busy)
            return
        self._measure(before, traffic)
        # Requests may come before the first look at an engine that has loaded for long.
        if before is None or has_tokens or not traffic.requests:
            self._moved_s = self._machine.now_s()
        if self._machine.now_s() - self._moved_s >= activity.HUNG_S:
            self._fail("the engine has requests and makes no tokens")
            return
        is_busy = has_tokens or traffic.requests > 0
        if self._beside is not None:
            is_busy = is_busy or self._beside.are_busy
        self._work.tell("working", "serve", is_busy=is_busy)

    def _measure(self, before: EngineCounts | None, now: EngineCounts) -> None:
        """Keep the load for the charts; the nodes that follow have that of their leader."""
        now_s = self._machine.now_s()
        if self.leads:
            # An engine that was started again counts from zero.
            tokens = max(0.0, now.tokens - before.tokens) if before else 0.0
            self._work.measure(
                {
                    "Requests": now.requests
                    + (self._beside.requests if self._beside else 0.0),
                    "Tokens": tokens / max(1.0, now_s - self._counted_s),
                }
            )
        self._counted_s = now_s

    def _fail(self, problem: str) -> None:
        """Count a failure and clear the way for another start, of all nodes of the group."""
        self._failures.add()
        self._work.fail("serve", problem)
        if self._membership is None:
            self._remove()
        else:
            self._membership.fail()


# What only some machines do, only they have.
def _beside_engines(
    machine: Host,
    cloud: CloudApi,
    work: Work,
    engine: EngineProgram,
    settings: Mapping[str, Any],
) -> BesideEngines:
    from stacks.runtime.vm.node.beside import BesideEngines

    return BesideEngines(machine, cloud, work, engine, settings)


def _devices(machine: Host, settings: Mapping[str, Any]) -> str:
    """Return the accelerators that the engine sees: its slice, or all."""
    if "slices" not in settings:
        return container.ALL_DEVICES
    from stacks.runtime.vm.node.slices import slice_device

    return slice_device(machine, 0)
