"""A benchmark that is carried out: its machine, how long it may take, and what it costs at most.

Pure: who applies it, and who waits for it, is the matter of the command.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import MACHINE_KIND
from planner.cost.lifetime import release_time
from planner.facts.cloud import clouds
from planner.perf.common import memory
from planner.spec.model import (
    AcceleratorRule,
    Batch,
    Inference,
    PurchaseRule,
    ShutdownRule,
    Traffic,
)
from planner.spec.stack_name import LONGEST_NAME
from planner.units import (
    BYTES_PER_BILLED_GB,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)
from planner.workload.fallback import cheapest_among

if TYPE_CHECKING:
    from planner.estimate.benchmark_sweep import BenchmarkSweep
    from planner.market.offer import Offer
    from planner.plan.types import Plan
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import SizedPool, Solution

NAME_ENDING: Final = "-bench"
# The sweep is predicted, so it has twice the time that it is to take.
TIME_FACTOR: Final = 2
# A machine that is broken is replaced once, and the next one fetches everything again.
MOST_STARTS: Final = 2
FETCH_LINE: Final = "nat_data"
IMAGE_USAGE: Final = "container_image_gb"


class RunTime(Struct, frozen=True, kw_only=True):
    """How long a benchmark takes, seconds.

    expected_s  from the request of the machine to the last result, as predicted
    usual_s     that it is given where no cost limits it
    """

    expected_s: float
    usual_s: float


class RunCost(Struct, frozen=True, kw_only=True):
    """What a benchmark costs at most, USD.

    usd_hour       of everything, while the machine runs
    left_usd_hour  of what stays when the machine is gone, until the stack is deleted
    start_usd      of what its starts fetch, as often as a machine may start
    """

    usd_hour: Decimal
    left_usd_hour: Decimal
    start_usd: Decimal

    def most_usd(self, seconds: float) -> Decimal:
        """Return what so many seconds cost at most: start + hours * USD an hour."""
        hours = Decimal(seconds) / SECONDS_PER_HOUR
        return self.start_usd + hours * self.usd_hour

    def seconds_for(self, most_usd: Decimal) -> float:
        """Return the seconds that an amount pays for, the inverse of `most_usd`."""
        if self.usd_hour <= 0:
            return 0.0
        hours = (most_usd - self.start_usd) / self.usd_hour
        return max(0.0, float(hours * SECONDS_PER_HOUR))


def benchmark_name(name: str) -> str:
    """Return the name of the stack of a benchmark of a spec, within the longest that there is."""
    room = LONGEST_NAME - len(NAME_ENDING)
    return f"{name[:room].rstrip('-')}{NAME_ENDING}"


def benchmark_spec(
    spec: Inference | Batch,
    sweep: BenchmarkSweep,
    labels: dict[str, str],
    ttl_s: int,
) -> Batch:
    """Return what the stack of a benchmark is built of: one batch on demand that ends by itself.

    Where, model, network and encryption are those of the spec. Nobody calls it, nothing of it is
    kept, and nobody is told of it: whoever runs it sees how it goes. `labels` are its own.
    """
    traffic = Traffic(
        place=spec.traffic.place,
        total_requests=sum(step.request_count for step in sweep.steps),
        input_tokens=spec.traffic.input_tokens,
        output_tokens=spec.traffic.output_tokens,
    )
    accelerators = AcceleratorRule(allow=(sweep.accelerator,))
    return Batch(
        place=spec.place,
        name=benchmark_name(spec.name),
        labels=labels,
        where=replace(spec.where, accelerators=accelerators),
        buy=PurchaseRule(spot="never"),
        shutdown=ShutdownRule(ttl=Decimal(ttl_s)),
        protect=False,
        network=spec.network,
        encryption=spec.encryption,
        usage=spec.usage,
        model=spec.model,
        traffic=traffic,
        deadline=Decimal(ttl_s),
        # One machine is measured, which has the requests of its pool alone.
        serving=replace(spec.serving, classes="none"),
    )


def benchmark_fleet(
    spec: Batch, settings: SolveSettings, pool: SizedPool
) -> Solution | None:
    """Return the cheapest machine on demand that holds one replica as a pool has it.

    None where nobody sells one. Groups beside the first would only save hours of what all share,
    and measure nothing.
    """
    planned = pool.instance

    def is_alike(offer: Offer) -> bool:
        return (
            offer.provider in clouds()
            and offer.purchase == "on_demand"
            and offer.instance.accelerator == planned.accelerator
            # A smaller part of one is slower, and holds fewer requests.
            and offer.instance.fraction == planned.fraction
        )

    alike = replace(settings, layout=pool.layout)
    found = cheapest_among(spec, alike, is_alike)
    if found is None or found.pools[0].nodes == found.pools[0].nodes_per_group:
        return found
    one_request = replace(spec.traffic, total_requests=1)
    return cheapest_among(replace(spec, traffic=one_request), alike, is_alike)


def run_time(sweep: BenchmarkSweep, solution: Solution) -> RunTime:
    """Return how long a benchmark takes.

    expected = start-up + sweep + reserve
    usual    = start limit + bytes to load / load_bytes_s + TIME_FACTOR * sweep + reserve
    """
    [pool] = solution.pools
    sweep_s = SECONDS_PER_MINUTE * sum(step.minutes for step in sweep.steps)
    loaded_bytes = _weight_bytes(solution)
    start_limit_s = float(release_time("start_limit_s")) + loaded_bytes / float(
        release_time("load_bytes_s")
    )
    reserve_s = float(release_time("bench_reserve_s"))
    return RunTime(
        expected_s=pool.startup_s + sweep_s + reserve_s,
        usual_s=max(pool.startup_s, start_limit_s)
        + TIME_FACTOR * sweep_s
        + reserve_s,
    )


def time_to_live_s(allowed_s: float) -> int:
    """Return when the machines of a benchmark end at the latest: time allowed - reserve."""
    return max(1, int(allowed_s - float(release_time("bench_reserve_s"))))


def run_cost(plan: Plan, solution: Solution) -> RunCost | None:
    """Return what a benchmark costs at most, by the bill of its plan; None without a price.

    USD an hour = machines + other lines of the bill / hours of the machine that they are for
    start       = starts * (container image + weights) * USD of a fetched GB
    """
    life = plan.cost.life
    lines = plan.cost.lines
    if life is None or not all(line.price_found for line in lines):
        return None
    machines_usd_hour = sum(
        (pool.usd_per_hour * pool.nodes for pool in plan.solution.pools),
        Decimal(0),
    )
    # Lines are rounded to the cent, which is much of a short run.
    others_usd = sum(
        (
            line.quantity * (line.unit_price or Decimal(0))
            for line in lines
            if line.kind != MACHINE_KIND
        ),
        Decimal(0),
    )
    others_usd_hour = others_usd / Decimal(life.hours)
    return RunCost(
        usd_hour=machines_usd_hour + others_usd_hour,
        left_usd_hour=others_usd_hour,
        start_usd=MOST_STARTS * _start_usd(plan, solution),
    )


def _start_usd(plan: Plan, solution: Solution) -> Decimal:
    """Return what all machines fetch when they start once, USD: the image and the weights."""
    fetch_prices = [
        line.unit_price or Decimal(0)
        for line in plan.cost.lines
        if line.kind == FETCH_LINE
    ]
    image_sizes_gb = [
        used.amount for used in plan.cost.usage if used.name == IMAGE_USAGE
    ]
    weights_gb = Decimal(_weight_bytes(solution)) / BYTES_PER_BILLED_GB
    return (
        solution.pools[0].nodes
        * (sum(image_sizes_gb, Decimal(0)) + weights_gb)
        * sum(fetch_prices, Decimal(0))
    )


def _weight_bytes(solution: Solution) -> float:
    """Return the bytes of the weights that a machine loads."""
    [pool] = solution.pools
    if solution.llm is None or pool.layout is None:
        return 0.0
    return float(memory.checkpoint_bytes(solution.llm, pool.layout))
