"""Machines in memory that run the program of a node as it is, on a clock that takes no time.

Clouds, disks, accelerators, containers and people are simulated; the program, its settings and the
requests that it sends are those of a real machine.
"""

from __future__ import annotations

import base64
import bz2
import datetime as dt
import fnmatch
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from planner.estimate.benchmark_sweep import BenchmarkSweep, SweepStep
from planner.plan.layout import Layout
from providers.catalog.load import load_catalog
from stacks import registry
from stacks.runtime.vm.node import __main__ as program
from stacks.runtime.vm.node.host import (
    Answer,
    CommandError,
    Host,
    RequestError,
)
from stacks.spec.stack import StackSpec, derive_stack
from stacks.user_data import NodeBoot
from tests.conftest import find, only, spec_of
from tests.stacks.runtime.vm import clouds, engines
from tests.stacks.runtime.vm.mig import MigDevice
from tests.stacks.runtime.vm.timeline import Killed, Program, Timeline

START = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
ARRAY = "/dev/md/tonnage"
FABRIC_SERVICE = "tonnage-rxdm"
# The port of the first engine, where a machine has a router.
FIRST_ENGINE = 8001
LOCAL_NAMES = {
    "aws": "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS{}",
    "gcp": "google-local-nvme-ssd-{}",
    "azure": "nvme-Microsoft_NVMe_Direct_Disk_v2_{}",
}

SERVE = """apiVersion: tonnage/v1
kind: Inference
name: chat
model: {name: llama-3.1-8b}
sla: {ttft_p95: 2s}
traffic: {peak_rps: 1, input_tokens: {mean: 500}, output_tokens: {mean: 100}}
shutdown: {idle: 1h}
"""
BATCH = """apiVersion: tonnage/v1
kind: Batch
name: batch
model: {name: llama-3.1-8b}
traffic: {total_requests: 1M, input_tokens: {mean: 500}, output_tokens: {mean: 100}}
deadline: 3d
buy: {spot: never}
shutdown: {idle: 1h}
"""
TRAIN = """apiVersion: tonnage/v1
kind: Training
name: run
model: {name: llama-3.1-8b}
data: {tokens: 20B, location: "s3://bucket/tokens"}
train: {method: pretrain, deadline: 9d}
buy: {spot: never}
shutdown: {idle: 1h}
"""
WORKSPACE = """apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 20GiB, count: 1}
disk: 100GiB
shutdown: {idle: 1h, ttl: 3d}
"""
SPECS = {
    "serve": SERVE,
    "sglang": f"{SERVE}serving: {{engine: sglang}}\n",
    "trtllm": f"{SERVE}serving: {{engine: tensorrt-llm}}\n",
    "batch": BATCH,
    "bench": BATCH.replace("name: batch", "name: bench"),
    "train": TRAIN,
    "workspace": WORKSPACE,
}
# What machines measure that are bought for that.
SWEEP = BenchmarkSweep(
    model_name="llama-3.1-8b",
    instance_type="g6.xlarge",
    accelerator="l4",
    layout=Layout(
        precision="fp8",
        kv_precision="bf16",
        tp=1,
        pp=1,
        ep=1,
        dp=1,
        cp=1,
        max_batch=64,
    ),
    prompt_tokens=500,
    answer_tokens=100,
    steps=tuple(SweepStep(users, 20, 1.0) for users in (1, 4, 16)),
    minutes=3.0,
    usd=Decimal(1),
)
MACHINES = {
    "aws": "p5.48xlarge",
    "gcp": "a3-megagpu-8g",
    "azure": "Standard_ND96isr_H100_v5",
}


@cache
def stack_of(provider: str, role: str, machine: str = "") -> StackSpec:
    text = SPECS[role] + f"where: {{clouds: [{provider}]}}\n"
    if role == "train":
        machine = machine or MACHINES[provider]
    catalog = only(
        load_catalog(None),
        lambda o: not machine or o.instance.instance_type == machine,
    )
    spec = spec_of(text)
    stack = derive_stack(spec, find(catalog, text, keep=0), spec.name)
    return replace(stack, benchmark=SWEEP) if role == "bench" else stack


@cache
def boot_of(provider: str, role: str) -> tuple[NodeBoot, str]:
    """What a machine of a role is given on a cloud, and the settings in it."""
    stack = stack_of(provider, role)
    fleet, group = stack.scaling_groups[0]
    cloud = registry.cloud(provider)
    boot = registry.runtime("vm").node_boot(
        stack, fleet, group, cloud.node_cloud(stack, fleet)
    )
    packed = boot.script.partition('"""')[2].partition('"""')[0]
    node_files = json.loads(bz2.decompress(base64.b85decode(packed)))
    return boot, node_files["/etc/tonnage/node.json"]


def settings_of(provider: str, role: str) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(boot_of(provider, role)[1])
    return settings


@dataclass
class Container:
    """A container that was started."""

    words: list[str]
    started_s: float
    is_running: bool = True
    is_ending: bool = False
    code: int = 0
    log: str = "begun"
    # Of a job: the step from which it went on, and the last one that it has saved.
    base: int | None = None
    saved: int = 0

    def option(self, name: str) -> str:
        return next(
            word.partition("=")[2]
            for word in self.words
            if word.startswith(f"{name}=")
        )


@dataclass
class Home:
    """A disk that outlives machines: what it holds, its label, and who has it."""

    contents: tuple[str, str] = ("", "")
    holder: SandboxMachine | None = None


@dataclass
class World:
    """One cloud, its bucket, and the machines of a group."""

    provider: str
    folder: Path
    stack: str = "chat"
    timeline: Timeline = field(default_factory=Timeline)
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    # Of a bucket that the account has already.
    foreign: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    machines: list[SandboxMachine] = field(default_factory=list)
    metrics: list[tuple[float, str, dict[str, float]]] = field(
        default_factory=list
    )
    replaced: list[str] = field(default_factory=list)
    homes: dict[str, Home] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    # What the hub has, by repository, and the token that it wants.
    hub: dict[str, list[str]] = field(default_factory=dict)
    hub_token: str = ""
    # Installers of drivers, by their places.
    drivers: dict[str, bytes] = field(default_factory=dict)
    # Lines of the service of logs: machine, then source and text.
    told: list[tuple[str, str]] = field(default_factory=list)
    told_keys: set[str] = field(default_factory=set)
    log_streams: set[str] = field(default_factory=set)
    # What the service of logs answers instead, where it refuses.
    log_refusal: Callable[[], RequestError | None] = lambda: None
    is_online: Callable[[], bool] = lambda: True
    # Whether two machines, by their addresses, do not reach each other.
    cut_off: Callable[[str, str], bool] = lambda _a, _b: False
    # Whether requests come at a time.
    has_traffic: Callable[[float], bool] = lambda _: False
    # Whether they come to engines beside the first one.
    has_beside_traffic: Callable[[float], bool] = lambda _: False
    # How many requests there are in all, spread over the machines that answer.
    requests: Callable[[float], float] | None = None
    load_s: float = 300.0
    version: int = 0
    # The size of the group.
    wished: int = 0

    def put(self, key: str, data: bytes) -> int:
        self.version += 1
        self.objects[key] = (data, self.version)
        return self.version

    def store(self, key: str, text: str) -> None:
        """Write an object, as an event of the timeline."""
        self.put(key, text.encode())

    def come(self, role: str, settings: Mapping[str, Any]) -> None:
        """Boot another machine that was asked for, as an event of the timeline."""
        self.add(role, settings)
        self.wished -= 1

    def publish(
        self, machine: SandboxMachine, values: dict[str, float]
    ) -> None:
        self.metrics.append((self.timeline.now_s, machine.name, values))

    def take_lines(self, call: clouds.Call, lines: list[str]) -> None:
        refusal = self.log_refusal()
        if refusal is not None:
            raise refusal
        self.told += [(call.machine.name, line) for line in lines]

    def end(self, machine: SandboxMachine, *, replaced: bool) -> None:
        """Take a machine away. A program of it that asked for that ends at once."""
        machine.ended_s = self.timeline.now_s
        machine.shut_down()
        machine.drop_homes()
        if not replaced:
            self.wished -= 1
        if replaced:
            self.replaced.append(machine.name)
        current = self.timeline.current()
        if current is not None and current in machine.programs:
            raise Killed

    def resize(self, machine: SandboxMachine, nodes: int) -> None:
        """Bring what is missing, two minutes later, like the machine that asks."""
        assert nodes >= self.wished, "the cloud would choose who goes"
        for _ in range(nodes - self.wished):
            self.timeline.at(
                self.timeline.now_s + 2 * MINUTE,
                lambda: self.come(machine.role, machine.settings),
            )
        self.wished = nodes

    def answering(self) -> list[SandboxMachine]:
        """The machines whose engine answers."""
        return [
            machine
            for machine in self.machines
            if machine.is_up
            and (engine := machine.containers.get("tonnage-serve")) is not None
            and engine.is_running
            and self.timeline.now_s - engine.started_s >= self.load_s
        ]

    def move(self, machine: SandboxMachine) -> None:
        """Boot a machine on other hardware, ten minutes after that was announced."""
        self.replaced.append(machine.name)
        self.timeline.at(
            self.timeline.now_s + 10 * MINUTE,
            lambda: machine.reboot(wipes_disks=True),
        )

    def add(
        self, role: str, settings: Mapping[str, Any] | None = None, **state: Any
    ) -> SandboxMachine:
        """Boot another machine of the group."""
        self.wished += 1
        number = len(self.machines) + 1
        machine = SandboxMachine(
            self, f"chat_{number}", f"10.0.0.{number}", role
        )
        for name, value in state.items():
            setattr(machine, name, value)
        machine.settings = dict(settings or settings_of(self.provider, role))
        boot = boot_of(self.provider, role)[0]
        if boot.program_key:
            self.put(boot.program_key, boot.program_text.encode())
        self.machines.append(machine)
        if role == "workspace" and not self.homes:
            names = machine.settings["cloud"].get("homes", ["vol-1"])
            self.homes = {name: Home() for name in names}
        machine.attach_disks(int(state.get("local_disks", 2)))
        machine.boot()
        return machine

    def run(
        self, until_s: float, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.timeline.run(until_s, stop)

    def upload(self, prefix: str, names: list[str]) -> None:
        for name in names:
            self.put(prefix + name, name.encode() * 10)


class SandboxMachine(Host):
    """A machine with a disk, accelerators and containers, all of them made up."""

    def __init__(
        self, world: World, name: str, address: str, role: str
    ) -> None:
        self.world = world
        self.name = name
        self.address = address
        self.role = role
        self.root = world.folder / name
        self.settings: dict[str, Any] = {}
        self.programs: list[Program] = []
        self.booted_s = world.timeline.now_s
        self.ended_s: float | None = None
        self.notice = False
        # Stopped by its cloud; its group starts it again when it can.
        self.is_stopped = False
        self.log_lines: list[str] = []
        # What the program answers, by the port.
        self.doors: dict[int, Callable[[], tuple[int, bytes]]] = {}
        self.journal: list[str] = []
        self.commands: list[tuple[str, ...]] = []
        # Commands that fail, by their first word, while the function says so.
        self.failures: dict[str, Callable[[], bool]] = {}
        self.accelerators = 0
        # Whether a driver answers, and whether the free one is loaded first.
        self.has_driver = True
        self.has_free_driver = False
        self.free_driver_stays = False
        self.boots = 0
        self.utilization = 0.0
        # When somebody saved a file at last, and used a kernel.
        self.edited_s = -DAY
        self.kernel_s = -DAY
        self.kernel_state = "idle"
        self.disk_gb_s = 2.0
        self.bus_gb_s = 480.0
        # Watts, watts by default, and whether the hardware slows an accelerator down.
        self.limits: Callable[[], str] = lambda: "700.00, 700.00, Not Active\n"
        self.messages = ""
        self.containers: dict[str, Container] = {}
        self.images: set[str] = set()
        self.missing_modules: set[str] = set()
        self.packages = {"docker", "nvidia-ctk"}
        self.runtimes = "runc"
        # By device: what it holds, and its label.
        self.disks: dict[str, tuple[str, str]] = {}
        self.array_is_up = False
        self.mounts: set[str] = set()
        self.enabled: list[str] = []
        self.mig = MigDevice()
        self.has_image_mount = False
        self.wall_jump_s = 0.0
        self.job: Callable[[SandboxMachine, Container], None] = lambda _m, _c: (
            None
        )

    # The machine itself.

    @property
    def is_up(self) -> bool:
        return self.ended_s is None

    def attach_disks(self, count: int) -> None:
        folder = self.path("/dev/disk/by-id")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            device = self.path(f"/dev/nvme{number}n1")
            device.write_text("")
            self.disks[str(device)] = ("", "")
            name = LOCAL_NAMES[self.world.provider].format(number)
            (folder / name).symlink_to(device)
            if self.world.provider == "aws":
                # The same disk by the name of its namespace.
                (folder / f"{name}-ns-1").symlink_to(device)

    def attach_home(self, name: str, link: str) -> None:
        """A disk that is kept appears under the link that its cloud gives it."""
        home = self.world.homes[name]
        if home.holder is not None:
            raise RequestError(400, f"{name} is in use")
        home.holder = self
        device = self.path("/dev/nvme9n1")
        device.write_text("")
        self.disks[str(device)] = home.contents
        self.path(link).parent.mkdir(parents=True, exist_ok=True)
        self.path(link).symlink_to(device)

    def drop_homes(self) -> None:
        device = str(self.path("/dev/nvme9n1"))
        for home in self.world.homes.values():
            if home.holder is self:
                home.contents, home.holder = self.disks[device], None

    def home(self) -> str:
        """The name of the disk that this machine has, empty without one."""
        return next(
            (n for n, h in self.world.homes.items() if h.holder is self), ""
        )

    def _attach_pci(self, devices: list[list[str]]) -> None:
        """Eight devices of each identity, and one of another."""
        for identity, _ in [*devices, ["0x10de:0x2330", ""]]:
            vendor, _, device = identity.partition(":")
            for number in range(8):
                name = f"{vendor[-2:]}{device[-2:]}:{number:02x}:00.1"
                folder = self.path(f"/sys/bus/pci/devices/{name}")
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "vendor").write_text(f"{vendor}\n")
                (folder / "device").write_text(f"{device}\n")
                (folder / "resource0").touch(mode=0o600)

    def boot(self) -> None:
        self.booted_s = self.world.timeline.now_s
        self.boots += 1
        self._load_free_driver()
        self.accelerators = (
            self.accelerators or self.settings["health"]["accelerators"]
        )
        fabric = self.path("/sys/class/infiniband")
        fabric.mkdir(parents=True, exist_ok=True)
        for number in range(self.settings["health"]["fabric_devices"]):
            (fabric / f"rdma{number}").touch()
        if "devices" in self.settings["work"].get("fabric", {}):
            self._attach_pci(self.settings["work"]["fabric"]["devices"])
        self.path("/proc").mkdir(exist_ok=True)
        self.path("/proc/loadavg").write_text("0.00 0.00 0.00 1/100 1\n")
        for unit in self.enabled:
            self._mount_unit(unit)
        self.programs = [
            self.world.timeline.start(self._unit(program.run_agent)),
            self.world.timeline.start(self._unit(program.run_work)),
        ]

    def _load_free_driver(self) -> None:
        module = self.path("/sys/module/nouveau")
        if module.exists():
            module.rmdir()
        if self.has_free_driver:
            module.mkdir(parents=True)

    def _unit(
        self, main: Callable[[Host, Mapping[str, Any]], None]
    ) -> Callable[[], None]:
        """A unit of systemd: what ends is started again."""

        def run() -> None:
            while True:
                main(self, self.settings)
                self.sleep(15)

        return run

    def shut_down(self) -> None:
        for running in self.programs:
            self.world.timeline.kill(running)
        for container in self.containers.values():
            container.is_running = False

    def reboot(self, *, wipes_disks: bool = False) -> None:
        """Restart the system: what is in memory is gone, and what is on disks is not."""
        self.shut_down()
        self.mounts.clear()
        self.array_is_up = False
        for shown in self.path("/dev").glob("aperture_devices/*"):
            shown.unlink()
        for path in sorted(self.path("/run").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        if wipes_disks:
            kept = str(self.path("/dev/nvme9n1"))
            self.disks = {
                name: held if name == kept else ("", "")
                for name, held in self.disks.items()
            }
        self.boot()

    def kill_agent(self) -> None:
        self.world.timeline.kill(self.programs[0])

    # What the program asks of it.

    def now_s(self) -> float:
        return self.world.timeline.now_s - self.booted_s

    def utc(self) -> dt.datetime:
        return START + dt.timedelta(
            seconds=self.world.timeline.now_s + self.wall_jump_s
        )

    def sleep(self, seconds: float) -> None:
        current = self.world.timeline.current()
        if current is None:
            # A worker of a program, which waits for it.
            self.world.timeline.now_s += seconds
        else:
            current.sleep(seconds)

    def path(self, path: str) -> Path:
        if path.startswith(str(self.root)):
            return Path(path)
        return self.root / path.lstrip("/")

    def log(self, text: str) -> None:
        self.log_lines.append(text)
        self.write("_SYSTEMD_UNIT", "tonnage-agent.service", text)

    def write(self, field_name: str, writer: str, message: Any) -> None:
        """Add an entry to the journal, of a unit or of a container."""
        entry = {
            "__CURSOR": f"c{len(self.journal) + 1}",
            "__REALTIME_TIMESTAMP": str(int(self.utc().timestamp() * 1e6)),
            field_name: writer,
            "MESSAGE": message,
        }
        self.journal.append(json.dumps(entry))

    def _journalctl(self, *words: str) -> str:
        options = dict(
            word.removeprefix("--").split("=", 1)
            for word in words
            if word.startswith("--") and "=" in word
        )
        count = int(options["lines"])
        cursor = options.get("after-cursor")
        entries = (
            self.journal[int(cursor[1:]) :][:count]
            if cursor
            else self.journal[-count:]
        )
        return "".join(f"{entry}\n" for entry in entries)

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float = 30,
    ) -> Answer:
        if url.startswith("http://127.0.0.1:8888/api/"):
            return self._notebook(url.rpartition("/")[2].partition("?")[0])
        if re.match(r"http://[\d.]+:800\d/", url):
            return self._engine(url, body)
        if url.endswith(".run"):
            if url not in self.world.drivers:
                raise RequestError(404, "NoSuchKey")
            return Answer(200, {}, self.world.drivers[url])
        if url.endswith(("key", ".gpg", ".asc")):
            return Answer(200, {}, b"key")
        is_metadata = "169.254.169.254" in url or "metadata.google" in url
        if not (self.world.is_online() or is_metadata):
            raise RequestError(0, "no route to host")
        return clouds.answer(
            self.world, self, method, url, headers or {}, body or b""
        )

    def _notebook(self, kind: str) -> Answer:
        """JupyterLab, with a kernel that somebody has used, and no terminal."""
        found = self.containers.get("tonnage-notebook")
        if found is None or not found.is_running:
            raise RequestError(0, "connection refused")
        used_at = START + dt.timedelta(seconds=self.kernel_s)
        kernel = {
            "execution_state": self.kernel_state,
            "last_activity": used_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        entries = [kernel] if kind == "kernels" else []
        return Answer(200, {}, json.dumps(entries).encode())

    def _find(self, folder: str, *_: str) -> str:
        """The files of /work that were written in the last five minutes."""
        age_s = self.world.timeline.now_s - self.edited_s
        return f"{folder}/notebook.ipynb\n" if age_s < 300 else ""

    def _engine(self, url: str, body: bytes | None) -> Answer:
        address = url.removeprefix("http://").partition(":")[0]
        host = self
        if address != "127.0.0.1":
            there = [
                m
                for m in self.world.machines
                if m.address == address and m.is_up
            ]
            if not there or self.world.cut_off(self.address, address):
                raise RequestError(0, "no route to host")
            [host] = there
        beside = max(0, int(url.split(":")[2][:4]) - FIRST_ENGINE)
        name = f"tonnage-serve-{beside}" if beside else "tonnage-serve"
        container = host.containers.get(name)
        running_at = self._running
        if beside:
            running_at = self._running_beside
        if (
            container is None
            or not container.is_running
            or self.world.timeline.now_s - container.started_s
            < self.world.load_s
            or host.role == "hung"
        ):
            raise RequestError(0, "connection refused")
        if "/v1/" in url:
            return Answer(
                200, {}, json.dumps({"echo": json.loads(body or b"")}).encode()
            )
        now_s = self.world.timeline.now_s
        if url.endswith("/health") and container.is_ending:
            raise RequestError(503, "shuts down")
        if engines.never_answers(container.words, url, running_at(now_s)):
            raise RequestError(0, "timed out")
        text = engines.told_metrics(
            container.words,
            url,
            running_at,
            lambda at_s: int(at_s) if running_at(at_s) else 0,
            now_s,
        )
        if text is None:
            raise RequestError(404, "not found")
        return Answer(200, {}, text.encode())

    def _running_beside(self, at_s: float) -> float:
        """Requests of each engine beside the first one."""
        return 1.0 if self.world.has_beside_traffic(at_s) else 0.0

    def _running(self, at_s: float) -> float:
        """Requests of the engine of a machine at a time."""
        if self.world.requests is None:
            return 1.0 if self.world.has_traffic(at_s) else 0.0
        return self.world.requests(at_s) / len(self.world.answering())

    def run(
        self,
        *words: str,
        timeout_s: float = 300,
        env: Mapping[str, str] | None = None,
        with_errors: bool = False,
    ) -> str:
        self.commands.append(words)
        fails = self.failures.get(words[0])
        if fails is not None and fails():
            raise CommandError(f"{words[0]} ended with 1: made to fail")
        handler = getattr(
            self, "_" + words[0].replace("-", "_").replace(".", "_")
        )
        found: str = handler(*words[1:])
        return found

    # Commands.

    def _fail(self, condition: bool) -> str:
        if condition:
            raise CommandError("ended with 1")
        return ""

    def _mountpoint(self, _: str, path: str) -> str:
        return self._fail(path not in self.mounts)

    def _systemctl(self, verb: str, *words: str) -> str:
        if verb == "cat":
            return self._fail(not self.has_image_mount)
        if verb == "enable" and words[-1].endswith(".mount"):
            if words[-1] not in self.enabled:
                self.enabled.append(words[-1])
            self._mount_unit(words[-1])
        if verb == "restart":
            self.runtimes = "nvidia runc"
        if verb == "reboot":
            self.world.timeline.at(self.world.timeline.now_s + 2, self.reboot)
        return ""

    def _mount(self, _: str, source: str, folder: str) -> str:
        """A bind: what lies in one folder is seen in the other."""
        self.path(folder).rmdir()
        self.path(folder).symlink_to(self.path(source))
        self.mounts.add(folder)
        return ""

    def _mount_unit(self, unit: str) -> None:
        text = self.path(f"/etc/systemd/system/{unit}").read_text()
        values = dict(
            line.split("=", 1) for line in text.splitlines() if "=" in line
        )
        _, is_label, wanted = values["What"].partition("/dev/disk/by-label/")
        if not is_label or self._labelled(wanted):
            self.mounts.add(values["Where"])
            folder = self.path(values["Where"])
            if values["Where"] == "/work" and not folder.is_symlink():
                # The next machine sees what this one has written.
                kept = self.world.folder / "homes" / self.home()
                kept.mkdir(parents=True, exist_ok=True)
                folder.symlink_to(kept)
            if values["Type"] == "lustre":
                # Machines share it, and one that is up sees what others write.
                shared = self.world.folder / "shared"
                shared.mkdir(exist_ok=True)
                folder.rmdir()
                folder.symlink_to(shared)
            folder.mkdir(parents=True, exist_ok=True)

    def _labelled(self, wanted: str) -> bool:
        return any(
            label == wanted and (device != ARRAY or self.array_is_up)
            for device, (_, label) in self.disks.items()
        )

    def _blkid(self, option: str, word: str) -> str:
        if option == "-L":
            return self._fail(not self._labelled(word))
        if not self.disks[word][0]:
            raise CommandError("nothing found", 2)
        return ""

    def _lsblk(self, *words: str) -> str:
        return Path(words[-1]).name + "\n"

    def _mdadm(self, verb: str, *words: str) -> str:
        if verb == "--assemble":
            self.array_is_up = ARRAY in self.disks and any(
                kind == "raid" for kind, _ in self.disks.values()
            )
            return self._fail(not self.array_is_up)
        if verb in ("--detail", "--version"):
            return self._fail(verb == "--detail" and not self.array_is_up)
        members = [word for word in words if word in self.disks]
        for member in members:
            self.disks[member] = ("raid", "")
        self.disks[ARRAY] = ("", "")
        self.array_is_up = True
        return ""

    def _mkfs_ext4(self, *words: str) -> str:
        assert self.disks[words[-1]] == ("", ""), "formats what holds something"
        self.disks[words[-1]] = ("ext4", words[words.index("-L") + 1])
        return ""

    def _update_initramfs(self, *_: str) -> str:
        """What is kept out stays out from the next boot on."""
        self._fail(not list(self.path("/etc/modprobe.d").glob("*nouveau*")))
        self.has_free_driver = self.free_driver_stays
        return ""

    def _sh(self, installer: str, *words: str) -> str:
        assert words == ("--silent",)
        assert self.path(installer).read_bytes() in self.world.drivers.values()
        self._fail("gcc" not in self.packages)
        self.has_driver = True
        return ""

    def _nvidia_smi(self, *words: str) -> str:
        has_free = self.path("/sys/module/nouveau").exists()
        self._fail(has_free or not self.has_driver)
        if not words:
            return "NVIDIA-SMI"
        if self.mig.is_asked(words):
            return self.mig.answer(words, self.boots)
        if "power.draw" in words[0]:
            return f"{self._utilization()}, 350.5\n" * self.accelerators
        if "utilization" in words[0]:
            return f"{self._utilization()}\n" * self.accelerators
        if "power.limit" in words[0]:
            return self.limits() * self.accelerators
        return "16, 16, 0\n" * self.accelerators

    def _utilization(self) -> float:
        """Per cent at which the accelerators work: on requests, where they show nothing else."""
        container = self.containers.get("tonnage-serve")
        if container is None or not engines.is_trtllm(container.words):
            return self.utilization
        now_s = self.world.timeline.now_s
        is_working = container.is_running and self._running(now_s)
        return engines.WORKING_UTILIZATION if is_working else 0.0

    def _dmesg(self, *_: str) -> str:
        return self.messages

    def _lsb_release(self, *_: str) -> str:
        return "noble\n"

    def _dd(self, *words: str) -> str:
        """Write a gibibyte past the memory of the system."""
        assert "oflag=direct" in words
        self.sleep(2**30 / (self.disk_gb_s * 1e9))
        return ""

    def _uname(self, *_: str) -> str:
        return "6.11.0-1016-gcp\n"

    def _apt_get(self, *words: str) -> str:
        if "docker.io" in words:
            self.packages.add("docker")
        # Packages of the modules that an image lacks.
        if "update" not in words and not {"docker.io", "mdadm"} & set(words):
            self.missing_modules.clear()
        if {"gcc", "make", f"linux-headers-{self._uname().strip()}"} <= {
            *words
        }:
            self.packages.add("gcc")
        if "nvidia-container-toolkit" in words:
            self.packages.add("nvidia-ctk")
        return ""

    def _modprobe(self, module: str) -> str:
        return self._fail(module in self.missing_modules)

    def _chmod(self, *_: str) -> str:
        return ""

    def _azcopy(self, *_: str) -> str:
        return ""

    def _nvidia_ctk(self, *_: str) -> str:
        return self._fail("nvidia-ctk" not in self.packages)

    def _docker(self, verb: str, *words: str) -> str:
        self._fail("docker" not in self.packages)
        if verb == "info":
            return self.runtimes
        if verb == "image":
            return self._fail(words[-1] not in self.images)
        if verb == "pull":
            self.images.add(words[-1])
        if verb == "run" and words[0] == "--detach":
            container = Container(list(words), self.world.timeline.now_s)
            name = container.option("--name")
            self.containers[name] = container
            if name == "tonnage-router":
                container.log = self._router_config()
            if name == FABRIC_SERVICE:
                container.log = "Buffer manager initialization complete."
        if verb == "run" and "--name=tonnage-hub" in words:
            self._fetch_from_hub(words)
        if verb == "run" and "--name=tonnage-speed" in words:
            self.sleep(40)
            return f"busbw {self.bus_gb_s}\n"
        if verb == "kill":
            # The proxy reads its configuration again.
            self.containers[words[-1]].log = self._router_config()
        if verb in ("stop", "rm") and words[-1] in self.containers:
            self._end(verb, self.containers[words[-1]], words[0])
            self.containers[words[-1]].is_running = False
            if verb == "rm":
                del self.containers[words[-1]]
        if verb in ("inspect", "logs"):
            return self._look_into(words)
        return ""

    def _end(self, verb: str, container: Container, grace: str) -> None:
        """Some engines answer what they have begun when they are told to end; others drop it."""
        if verb != "stop" or not engines.drains(container.words):
            return
        container.is_ending = True
        deadline_s = self.world.timeline.now_s + float(grace.partition("=")[2])
        while (
            self._running(self.world.timeline.now_s)
            and self.world.timeline.now_s < deadline_s
        ):
            self.sleep(engines.DRAIN_LOOK_S)

    def _router_config(self) -> str:
        return self.path("/run/tonnage/router/nginx.conf").read_text()

    def _fetch_from_hub(self, words: tuple[str, ...]) -> None:
        """What snapshot_download does: the files of a repository, for who may have them."""
        repository, _, folder, *patterns = words[words.index("-c") + 2 :]
        env_files = [
            word.partition("=")[2]
            for word in words
            if word.startswith("--env-file=")
        ]
        tokens = [self.path(name).read_text() for name in env_files]
        assert all(
            self.path(name).stat().st_mode & 0o077 == 0 for name in env_files
        )
        if self.world.hub_token and tokens != [
            f"HF_TOKEN={self.world.hub_token}\n"
        ]:
            raise CommandError("docker ended with 1: GatedRepoError: 401")
        if not self.world.is_online():
            raise CommandError("docker ended with 1: LocalEntryNotFoundError")
        for name in self.world.hub[repository]:
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                (self.path(folder) / name).write_text(name)

    def _look_into(self, words: tuple[str, ...]) -> str:
        container = self.containers.get(words[-1])
        if container is None:
            raise CommandError("no such container")
        if container.is_running and words[-1] != FABRIC_SERVICE:
            self.job(self, container)
        if "{{.State.Running}}" in words:
            return str(container.is_running).lower()
        if "{{.State.ExitCode}}" in words:
            return str(container.code)
        return container.log


def seated(world: World) -> set[str]:
    """The machines that have a seat, by what the bucket says."""
    return {
        json.loads(data)["node"]
        for key, (data, _) in world.objects.items()
        if key.startswith("groups/") and not key.endswith("/epoch")
    }


def state_of(machine: SandboxMachine) -> dict[str, Any]:
    document = machine.path("/run/tonnage/work.json")
    found: dict[str, Any] = json.loads(document.read_text())
    return found
