"""What a node asks of its cloud, over REST and as itself."""

from __future__ import annotations

import datetime as dt
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stacks.runtime.vm.node.host import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stacks.runtime.vm.node.host import Host

# Metadata servers refuse too many questions, and give tokens that end in five minutes at least.
TOKEN_KEPT_S = 60.0
# A service of logs that hangs must not hold up the agent.
TELL_TIMEOUT_S = 20.0


class Conflict(Exception):  # noqa: N818 - a race that was lost is no error of the program
    """Somebody else wrote the object first."""


class Stored(NamedTuple):
    """An object of the bucket with its version."""

    data: bytes
    version: str


class Kept:
    """A token that is asked for again after a minute, before it expires."""

    def __init__(self, machine: Host) -> None:
        self._machine = machine
        self._asked_s = -TOKEN_KEPT_S
        self._token: Any = None

    def get(self, ask: Callable[[], Any]) -> Any:
        """Return the token; `ask` brings a new one when it is old."""
        if self._machine.now_s() - self._asked_s >= TOKEN_KEPT_S:
            self._token = ask()
            self._asked_s = self._machine.now_s()
        return self._token


class Listed(NamedTuple):
    """An object of a listing."""

    key: str
    size: int
    version: str


class Line(NamedTuple):
    """A line of the journal.

    time_us  microseconds since 1970
    source   the unit or the container that wrote it
    level    DEBUG, INFO, WARNING, ERROR or CRITICAL; empty when it has none
    key      the same when the line is told again
    """

    time_us: int
    source: str
    level: str
    text: str
    key: str

    @property
    def timestamp(self) -> str:
        """Its time as in RFC 3339."""
        moment = dt.datetime.fromtimestamp(self.time_us / 1e6, dt.timezone.utc)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def block_notice(machine: Host, ends: str) -> str:
    """Return that a capacity block ends, once it does; `ends` is empty without one."""
    if ends and machine.utc() >= dt.datetime.fromisoformat(ends):
        return "the capacity block ends"
    return ""


class CloudApi(Protocol):
    """A cloud as a node sees it.

    Every call raises RequestError when the cloud refuses or does not answer. Keys are those of
    the bucket of the stack.
    """

    def node_name(self) -> str:
        """Return the name of this machine, which no other machine of the group ever has."""

    def address(self) -> str:
        """Return the address by which others of the group reach this machine."""

    def handle(self) -> str:
        """Return the name by which any machine of the group may give this one back."""

    def give_back(self, handle: str) -> None:
        """End a machine and lower the wished number of machines by one."""

    def size(self) -> int:
        """Return the wished number of machines of the group."""

    def resize(self, nodes: int) -> None:
        """Set the wished number of machines; those that are too many, the cloud chooses."""

    def replace(self) -> None:
        """End this machine; the cloud starts it anew on other hardware, or another one."""

    def notice(self) -> str:
        """Return what the cloud has announced to do with this machine; empty without news."""

    def show(self, phase: str) -> None:
        """Let the cloud see what the work does, where it asks the machine for its health."""

    def publish(self, metrics: Mapping[str, float]) -> None:
        """Add values of now to the metrics of the scaling group."""

    def tell(self, lines: Sequence[Line]) -> None:
        """Add lines, at most 500 with 500 kB of text, to the logs of the stack."""

    def secret(self, name: str) -> str:
        """Return the newest text of a secret of the cloud's store."""

    def home_disk(self) -> list[str]:
        """Attach a disk of the stack that is kept, and return the names of its device.

        It is the one that this machine has already, or else one that no machine has. Raises
        RequestError while all are taken.
        """

    def file_system(self) -> str:
        """Return what a node mounts as the parallel file system of the stack."""

    def fill_files(self) -> None:
        """Bring the dataset into the file system, where the cloud does not do so by itself."""

    def read(self, key: str, start: int = 0, size: int = 0) -> Stored | None:
        """Return an object, or `size` bytes of it from `start`; nothing when it is missing."""

    def write(
        self, key: str, data: bytes, *, version: str | None = None
    ) -> str:
        """Write an object and return its new version.

        With a `version` only when the object still has it; "" means that there is no object yet.
        Raises Conflict otherwise.
        """

    def write_file(
        self, key: str, path: str, pulse: Callable[[], None]
    ) -> None:
        """Write an object of any size from a file; `pulse` is called between its parts."""

    def delete(self, key: str) -> None:
        """Delete an object; one that is missing is deleted already."""

    def list(self, prefix: str) -> list[Listed]:
        """Return the objects whose keys begin with a prefix, by key."""


def notice_of(machine: Host, cloud: CloudApi) -> str:
    """Return what the cloud has announced; a cloud that does not answer has announced nothing."""
    try:
        return cloud.notice()
    except RequestError as error:
        machine.log(f"notices are not known: {error}")
        return ""


def open_cloud(machine: Host, settings: Mapping[str, Any]) -> CloudApi:
    """Return the cloud that the settings name; a machine has the module of its own one alone."""
    module = import_module(f"stacks.{settings['provider']}.node")
    cloud: CloudApi = module.open_cloud(machine, settings)
    return cloud
