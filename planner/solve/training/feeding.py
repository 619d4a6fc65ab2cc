"""Whether the host cores of a cluster feed it: how long they take, and with how many workers.

time of the run >= work of the loaders / (machines * cores of a machine for loaders)

Samples are prepared once each, on all machines alike. A machine with more cores is never slower.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.numeric import Z_OF_90_PERCENT_BAND, normal_quantile
from planner.perf.training.loader import loader_cores, rank_workers
from planner.solve.cause import because
from planner.solve.solution import JobLoader
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Instance
    from planner.solve.cause import Cause
    from planner.solve.training.cluster import Cluster
    from planner.solve.training.requirement import TrainingRequirement


def machine_prepare_s(
    requirement: TrainingRequirement, instance: Instance
) -> float:
    """Return the time in which the cores of one machine prepare all data of a run, seconds.

    work / cores for loaders * exp(half width * z(confidence) / z(0.95)), with the half width of
    the 90 % band of the rate of the loader.
    """
    work = requirement.loader_work
    z_score = normal_quantile(requirement.confidence)
    margin_ln = work.loader.half_width_ln * z_score / Z_OF_90_PERCENT_BAND
    cores = loader_cores(instance.cores, instance.accelerators)
    return work.core_s / cores * math.exp(margin_ln)


def job_loader(cluster: Cluster) -> JobLoader | None:
    """Return how the loaders of a job run; None where its data need no preparation."""
    work = cluster.requirement.loader_work
    if work.loader.unit_rate is None:
        return None
    instance = cluster.offer.instance
    loading_ranks = cluster.requirement.framework.loading_ranks(
        instance.accelerators, cluster.timed_layout.job.layout.tp
    )
    cores = loader_cores(instance.cores, instance.accelerators)
    samples_of_machine = work.samples / cluster.nodes
    return JobLoader(
        form=work.loader.form,
        cores=cores,
        workers=rank_workers(
            cores,
            loading_ranks,
            _sample_copies(cluster) * cluster.prepare_s / cluster.steps_s,
        ),
        wanted_s=samples_of_machine / cluster.steps_s,
        given_s=samples_of_machine / cluster.prepare_s,
    )


def slow_cores(cluster: Cluster, price_book: PriceBook) -> Cause:
    """Return how long accelerators wait for host cores, how fast these are, and what helps.

    Hours and USD of the expected run on the same machines that its cores feed in time.
    """
    waiting_share = cluster.waiting_share
    loader = job_loader(cluster)
    if loader is None:
        # Cores may be too few to read what is packed already.
        return because("slow-read", waiting_share=waiting_share)
    fed_cluster = _fed_in_time(cluster)
    saved_hours = (
        cluster.expected_s - fed_cluster.expected_s
    ) / SECONDS_PER_HOUR
    extra_usd = (
        fed_cluster.expected_bill(price_book).total
        - cluster.expected_bill(price_book).total
    )
    if loader.form == "images":
        return because(
            "slow-images",
            waiting_share=waiting_share,
            cores=loader.cores,
            wanted_s=loader.wanted_s,
            given_s=loader.given_s,
            saved_hours=saved_hours,
            extra_usd=extra_usd,
        )
    return because(
        "slow-text",
        waiting_share=waiting_share,
        cores=loader.cores,
        wanted_s=loader.wanted_s,
        given_s=loader.given_s,
        saved_hours=saved_hours,
        extra_usd=extra_usd,
    )


def repeated_work(cluster: Cluster) -> Cause | None:
    """Return how often ranks prepare the same samples, where cores are too few for all of that."""
    requirement = cluster.requirement
    copies = _sample_copies(cluster)
    needed_share = copies * cluster.prepare_s / cluster.progress_s
    is_packed = requirement.loader_work.loader.unit_rate is None
    if is_packed or copies == 1 or needed_share <= 1:
        return None
    return because(
        "repeated-work",
        framework=requirement.framework.name,
        copies=copies,
        needed_share=needed_share,
    )


def _sample_copies(cluster: Cluster) -> int:
    """Return the ranks of a replica that prepare the same samples."""
    return cluster.requirement.framework.sample_copies(
        cluster.timed_layout.job.layout
    )


def _fed_in_time(cluster: Cluster) -> Cluster:
    """Return the cluster whose data need no preparation."""
    requirement = cluster.requirement
    packed_work = replace(requirement.loader_work, units=0.0)
    return replace(
        cluster, requirement=replace(requirement, loader_work=packed_work)
    )
