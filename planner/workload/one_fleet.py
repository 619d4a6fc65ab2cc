"""Services that would cost less with an engine of each on the accelerators of one fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import SpecError
from planner.spec.beside import MOST_NEIGHBORS, neighbor_specs
from planner.spec.conflict import conflict_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from decimal import Decimal

    from planner.solve.solution import FleetSummary, Solution
    from planner.spec.model import Inference


# Accelerators, a choice of ours: of two that share one each has half of its time, and bursts need
# some of that. Without it, fifty busy services took minutes.
MOST_BUSY: Final = 1 / 3


class ApartService(Struct, frozen=True, kw_only=True):
    """A service with machines of its own: its spec, the bytes of its file, and its bill, USD.

    `busy_accelerators` are those that it keeps busy at its peak, such as 0.2 of one.
    `read_file` opens the files that its spec names.
    """

    spec: Inference
    file_bytes: bytes
    usd: Decimal
    busy_accelerators: float
    read_file: Callable[[str], bytes]


class OneFleet(Struct, frozen=True, kw_only=True):
    """Services on one fleet: their names, the host's first, its machines, USD in the period."""

    names: tuple[str, ...]
    fleet: FleetSummary
    usd: Decimal
    apart_usd: Decimal

    @property
    def saved_usd(self) -> Decimal:
        """What one fleet costs less than several, USD in the period."""
        return self.apart_usd - self.usd


def one_fleets(
    services: Sequence[ApartService],
    find: Callable[[Inference, Callable[[str], bytes]], Solution],
) -> Iterator[OneFleet]:
    """Yield groups of services that cost less on one fleet, each service in one group at most.

    `find` returns the answer to a spec whose files a function reads. A group has a host, and as
    many others as may be beside it: what they say of place, purchase and network is the same.
    Hosts and groups are in the order of names. What keeps much of an accelerator busy is left out.
    """
    # The order of the files decides nothing.
    left = sorted(
        (each for each in services if each.busy_accelerators < MOST_BUSY),
        key=lambda service: service.spec.name,
    )
    while left:
        host, *others = left
        group = [
            other for other in others if _host_spec(host, [other]) is not None
        ][:MOST_NEIGHBORS]
        taken = (host, *group)
        left = [service for service in left if service not in taken]
        found = _one_fleet(host, group, find)
        if found is not None and found.saved_usd > 0:
            yield found


def _one_fleet(
    host: ApartService,
    others: Sequence[ApartService],
    find: Callable[[Inference, Callable[[str], bytes]], Solution],
) -> OneFleet | None:
    """Return the fleet of a host with others beside it, None where there is none."""
    spec = _host_spec(host, others)
    if not others or spec is None:
        return None
    solution = find(spec, _reader(host, others))
    if solution.bill is None or not solution.pools:
        return None
    return OneFleet(
        names=tuple(each.spec.name for each in (host, *others)),
        fleet=solution.pools[0].summary,
        usd=solution.bill.total,
        apart_usd=sum((each.usd for each in others), host.usd),
    )


def _host_spec(
    host: ApartService, others: Sequence[ApartService]
) -> Inference | None:
    """Return the spec of a host with others beside it, None where a rule is against that."""
    names = tuple(_file_name(number) for number in range(len(others)))
    spec = replace(host.spec, serving=replace(host.spec.serving, beside=names))
    if host.spec.serving.beside or conflict_problems(spec):
        return None
    try:
        neighbor_specs(spec, _reader(host, others))
    except SpecError:
        return None
    return spec


def _reader(
    host: ApartService, others: Sequence[ApartService]
) -> Callable[[str], bytes]:
    files = {
        _file_name(number): each.file_bytes
        for number, each in enumerate(others)
    }

    def read(name: str) -> bytes:
        return files[name] if name in files else host.read_file(name)

    return read


def _file_name(number: int) -> str:
    return f"beside-{number}.yaml"
