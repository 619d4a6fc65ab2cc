"""Build the solution of a training job: cluster, predictions and alternatives."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.cost import capacity_block
from planner.cost.weekly_load import SpareGroups, weekly_load
from planner.numeric import BAND_END
from planner.perf.common.layout import ReplicaLayout
from planner.solve.cause import DEARER, because
from planner.solve.rival import RivalFleet, billed_rival
from planner.solve.solution import (
    JobStorage,
    PlanWarning,
    RunBase,
    SizedPool,
    Solution,
    TrainingRun,
    bought_offer,
    infeasible_solution,
)
from planner.solve.training.bill import data_disk_gb
from planner.solve.training.capacity import capacity_warnings, off_spot
from planner.solve.training.cluster import P50_SHARE, P90_SHARE
from planner.solve.training.curve import time_cost_curve
from planner.solve.training.feeding import job_loader, repeated_work, slow_cores
from planner.solve.training.lifetime import (
    kept_checkpoints,
    machine_life,
    step_pace_s,
)
from planner.solve.training.mixed_cluster import MixedCluster
from planner.solve.training.predict import predict_run
from planner.solve.training.relaxation import behind_nat, nearest_feasible
from planner.solve.training.scenario import compare_scenarios
from planner.solve.training.search import TrainSearch
from planner.solve.warning import (
    LOW_CONFIDENCE,
    moved_price_warnings,
    offer_warnings,
    unpriced_warnings,
)
from planner.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.service_price import PriceBook
    from planner.market.offer import Catalog, Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.cause import Cause
    from planner.solve.training.cluster import Cluster
    from planner.solve.training.ranking import (
        ClusterRanking,
        FeasibleCluster,
        RejectedOffer,
    )
    from planner.solve.training.requirement import TrainingRequirement

CENTURY_DAYS: Final = 36_500.0  # days


def solve_training(
    requirement: TrainingRequirement,
    market: OfferFilter,
    catalog: Catalog,
    alternative_count: int,
) -> Solution:
    """Return the cheapest cluster within the limits, or that of the knee where time is preferred.

    The search orders clusters by formula. The first of them whose simulated runs meet the time
    limit is selected. Without such a cluster the status is `infeasible`, and the bindings
    state the nearest feasible values.
    """
    cluster_search = preferred_search(requirement, catalog.price_book)
    allowed_offers = market.cheapest()
    ranking, selection = _select_cluster(
        cluster_search, allowed_offers, alternative_count
    )
    if selection is None:
        return infeasible_solution(
            (
                *off_spot(requirement, market, catalog),
                *behind_nat(requirement, market, catalog),
                *nearest_feasible(
                    requirement, allowed_offers, catalog.price_book
                ),
            ),
            week=weekly_load("flat", None),
            llm=requirement.llm,
            funnel=market.funnel,
            offers_considered=market.allowed_count,
            rejected=tuple(
                _rejected_alternatives(
                    ranking, cluster_search, alternative_count
                )
            ),
        )
    cluster = selection.cluster
    return Solution(
        status="optimal",
        pools=(_training_pool(cluster),),
        predictions=predict_run(cluster),
        bindings=(),
        alternatives=_alternatives(
            ranking, selection, cluster_search, alternative_count
        ),
        bill=selection.bill,
        warnings=(
            *_warnings(requirement, cluster, catalog.price_book),
            *capacity_warnings(cluster, catalog),
            *unpriced_warnings(
                selection.bill.unpriced_lines,
                requirement.budget_usd or requirement.monthly_budget_usd,
            ),
        ),
        week=weekly_load("flat", None),
        llm=requirement.llm,
        funnel=market.funnel,
        offers_considered=market.allowed_count,
        training_run=_run_summary(selection, market, catalog, cluster_search),
    )


def preferred_search(
    requirement: TrainingRequirement, price_book: PriceBook
) -> TrainSearch:
    """Return the search that minimizes what the spec prefers."""
    return TrainSearch(
        requirement,
        price_book,
        objective="knee" if requirement.prefers_time else "cost",
    )


def lost_by(cluster_search: TrainSearch, cluster: Cluster) -> Cause:
    """Return why a feasible cluster is not the chosen one.

    Its accelerators wait for its cores, or its price, or its price and time.
    """
    if cluster.waits_for_cores:
        return because("starved", waiting_share=cluster.waiting_share)
    return because("knee") if cluster_search.objective == "knee" else DEARER


def _select_cluster(
    cluster_search: TrainSearch,
    allowed_offers: list[Offer],
    alternative_count: int,
) -> tuple[ClusterRanking, FeasibleCluster | None]:
    """Return the ranking, and the first of its clusters whose simulated runs are in time."""
    # A short list is proved first; all offers only if none of it is in time.
    for cluster_limit in (alternative_count + 1, len(allowed_offers)):
        ranking = cluster_search.solve(allowed_offers, cluster_limit)
        selection = next(
            (
                candidate
                for candidate in ranking.feasible
                if _meets_deadline(candidate.cluster)
            ),
            None,
        )
        # A list shorter than its limit already holds every feasible offer.
        if selection is not None or len(ranking.feasible) < cluster_limit:
            break
    return ranking, selection


def _meets_deadline(cluster: Cluster) -> bool:
    """Whether the simulated runs meet the time limit.

    `end_quantile_s(confidence) <= time_limit_s`, over the simulated runs of the cluster.
    """
    return (
        cluster.end_quantile_s(cluster.requirement.confidence)
        <= cluster.requirement.time_limit_s
    )


def _training_pool(cluster: Cluster) -> SizedPool:
    return SizedPool(
        name="train",
        **bought_offer(cluster.offer, cluster.nodes + cluster.spares),
        # One synchronous job: all of its machines run, or none.
        min_nodes=cluster.nodes,
        nodes_per_group=cluster.nodes,
        replicas=1,
        role="train",
        layout=_pool_layout(cluster),
        max_batch=0,
        spares=SpareGroups(cluster.spares),
        context_tokens=cluster.requirement.sequence,
        run_window_s=0,
    )


def _pool_layout(cluster: Cluster) -> ReplicaLayout:
    parallel_layout = cluster.timed_layout.job.layout
    return ReplicaLayout(
        precision=cluster.timed_layout.job.software.precision_text,
        kv_precision="bf16",
        tp=parallel_layout.tp,
        pp=parallel_layout.pp,
        ep=parallel_layout.ep,
        dp=parallel_layout.dp,
        cp=parallel_layout.cp,
    )


def _run_summary(
    selection: FeasibleCluster,
    market: OfferFilter,
    catalog: Catalog,
    cluster_search: TrainSearch,
) -> TrainingRun:
    cluster = selection.cluster
    requirement = cluster.requirement
    median_cluster = cluster.at_median_speed
    p90_cluster = cluster.with_confidence(P90_SHARE)
    return TrainingRun(
        method=requirement.method,
        total_tokens=requirement.tokens,
        sequence_tokens=requirement.sequence,
        global_batch=requirement.global_batch,
        optimizer_steps=requirement.training_steps,
        step_pace_s=step_pace_s(cluster),
        checkpoint_interval_s=cluster.checkpoint_interval_s,
        checkpoint_stall_s=cluster.checkpoint_stall_s,
        checkpoint_bytes=cluster.checkpoint_bytes,
        checkpoints_kept=kept_checkpoints(cluster, cluster_search.price_book),
        machine_life=machine_life(cluster),
        interruptions=cluster.trials.mean_stops,
        spare_nodes=cluster.spares,
        data_disk_gb=int(data_disk_gb(cluster)),
        storage=_storage_summary(cluster),
        loader=job_loader(cluster),
        # Each quantile uses the step time of the same probability.
        hours_p50_p90=(
            median_cluster.end_quantile_s(P50_SHARE) / SECONDS_PER_HOUR,
            p90_cluster.end_quantile_s(P90_SHARE) / SECONDS_PER_HOUR,
        ),
        usd_p50_p90=(
            _usd_at(P50_SHARE, cluster, cluster_search.price_book),
            _usd_at(P90_SHARE, cluster, cluster_search.price_book),
        ),
        usd_band=(
            _usd_at(1 - BAND_END, cluster, cluster_search.price_book),
            _usd_at(BAND_END, cluster, cluster_search.price_book),
        ),
        layouts=cluster.best_layouts(),
        scenarios=compare_scenarios(cluster, market, catalog, cluster_search),
        curve=time_cost_curve(selection, cluster_search, market.cheapest()),
        base=_run_base(cluster),
    )


def _run_base(cluster: Cluster) -> RunBase | None:
    if not isinstance(cluster, MixedCluster):
        return None
    return RunBase(
        nodes=cluster.base_nodes,
        speed=cluster.base_speed,
        layout=cluster.base_layout,
    )


def _usd_at(share: float, cluster: Cluster, price_book: PriceBook) -> Decimal:
    """Return what so many of the runs cost at most, at the speed that holds as often, USD."""
    as_fast = cluster.with_confidence(share)
    return as_fast.bill_quantile(price_book, share).total


def _storage_summary(cluster: Cluster) -> JobStorage:
    return JobStorage(
        file_system=cluster.file_system,
        required_bytes_per_s=cluster.required_bytes_s,
        supplied_bytes_per_s=cluster.nodes * cluster.storage_bytes_s("read"),
        checkpoint_write_s=cluster.checkpoint_write_s,
        checkpoint_load_s=cluster.checkpoint_load_s,
    )


def _alternatives(
    ranking: ClusterRanking,
    selection: FeasibleCluster,
    cluster_search: TrainSearch,
    alternative_count: int,
) -> tuple[RivalFleet, ...]:
    """Return other feasible machine types, then the rejected offers.

    At most `alternative_count` of each group.
    """
    seen_types = {selection.cluster.offer.instance.instance_type}
    alternatives: list[RivalFleet] = []
    for candidate in ranking.feasible:
        instance_type = candidate.cluster.offer.instance.instance_type
        if (
            # One alternative for each machine type, its cheapest cluster.
            instance_type not in seen_types
            and len(alternatives) < alternative_count
        ):
            seen_types.add(instance_type)
            alternatives.append(
                _feasible_alternative(
                    candidate, lost_by(cluster_search, candidate.cluster)
                )
            )
    alternatives += _rejected_alternatives(
        ranking, cluster_search, alternative_count
    )
    return tuple(alternatives)


def _rejected_alternatives(
    ranking: ClusterRanking, cluster_search: TrainSearch, alternative_count: int
) -> Iterator[RivalFleet]:
    """Yield the rejected offers, with the lower bound of their cost, USD of the run.

    First those that are too slow or over a budget, then those without a layout that fits in
    memory; at most `alternative_count` of each.
    """
    # A finite duration: a layout fits, but a time limit or budget is violated.
    late_offers = [
        (cluster_search.bound_usd(ranked_offer.offer), ranked_offer)
        for ranked_offer in ranking.rejected
        if ranked_offer.duration_s < math.inf
    ]
    # An infinite duration: no layout fits in the memory of the accelerators.
    unfit_offers = [
        (cluster_search.bound_usd(ranked_offer.offer), ranked_offer)
        for ranked_offer in ranking.rejected
        if ranked_offer.duration_s == math.inf
    ]
    for offer_group in (late_offers, unfit_offers):
        for bound_usd, rejected_offer in sorted(
            offer_group,
            key=lambda ranked_offer: (
                ranked_offer[0],
                ranked_offer[1].offer.key,
            ),
        )[:alternative_count]:
            yield _late_alternative(rejected_offer, bound_usd)


def _feasible_alternative(
    candidate: FeasibleCluster, rejected_by: Cause
) -> RivalFleet:
    cluster = candidate.cluster
    return billed_rival(
        cluster.offer, cluster.nodes, candidate.bill, rejected_by
    )


def _late_alternative(
    rejected_offer: RejectedOffer, bound_usd: Decimal
) -> RivalFleet:
    rejected_by = rejected_offer.reason
    if rejected_offer.duration_s < math.inf:
        duration_days = rejected_offer.duration_s / SECONDS_PER_DAY
        rejected_by = (
            because("earliest-end", rejected_by.key, best_days=duration_days)
            if duration_days < CENTURY_DAYS
            else because("never", rejected_by.key)
        )
    return RivalFleet(
        offer=rejected_offer.offer,
        # 0 nodes stand for an offer that no machine count was timed for.
        nodes=max(1, rejected_offer.nodes),
        usd=bound_usd.quantize(Decimal("0.01")),
        rejected_by=rejected_by,
        is_bound=True,
    )


def _warnings(
    requirement: TrainingRequirement, cluster: Cluster, price_book: PriceBook
) -> tuple[PlanWarning, ...]:
    warnings = [
        PlanWarning(code="assumed", reason=assumption)
        for assumption in requirement.assumptions
    ]
    warnings += _data_path_warnings(cluster, price_book)
    correction = requirement.correction
    if correction is not None and not correction.applies_to(
        cluster.timed_layout.job
    ):
        elsewhere = because(
            "other-calibration",
            model=correction.kind.model,
            accelerator=correction.kind.accelerator,
        )
        warnings.append(PlanWarning(code="calibration", reason=elsewhere))
    if "spot" in cluster.offer.purchases:
        warnings.append(PlanWarning(code="spot", reason=_spot_reason(cluster)))
        warnings += moved_price_warnings(cluster.offer)
    block_limit = capacity_block.max_nodes(cluster.offer.provider)
    total_nodes = cluster.nodes + cluster.spares
    # The largest block that is sold stands for what a cloud has on request.
    if block_limit is not None and total_nodes > block_limit:
        too_many = because(
            "block-size", nodes=total_nodes, block_nodes=block_limit
        )
        warnings.append(PlanWarning(code="size", reason=too_many))
    # The egress is in the bill; the bandwidth between clouds is not modeled.
    data_cloud = requirement.data_cloud
    if data_cloud is not None and data_cloud != cluster.offer.provider:
        elsewhere = because(
            "moved-data", data_cloud=data_cloud, cloud=cluster.offer.provider
        )
        warnings.append(PlanWarning(code="moved", reason=elsewhere))
    if cluster.offer.confidence == LOW_CONFIDENCE:
        unsure = because(
            "low-confidence", machine=cluster.offer.instance.instance_type
        )
        warnings.append(PlanWarning(code="price", reason=unsure))
    return (*warnings, *offer_warnings(cluster.offer))


def _spot_reason(cluster: Cluster) -> Cause:
    if not isinstance(cluster, MixedCluster):
        return because("spot")
    return because(
        "spot-job",
        nodes=cluster.nodes,
        base_nodes=cluster.base_nodes,
        speed_share=cluster.base_speed,
    )


def _slow_data(cluster: Cluster, price_book: PriceBook) -> Cause:
    """Return how long accelerators wait for data, and what a parallel file system would change.

    Hours that it saves and its extra cost in USD, where one shortens the expected run.
    """
    # Reading limits progress, so accelerators wait for the difference.
    waiting_share = cluster.waiting_share
    parallel_requirement = replace(cluster.requirement, storage_kind="parallel")
    faster_clusters = [
        candidate
        for candidate in replace(
            cluster, requirement=parallel_requirement, file_system=None
        ).storage_options()
        # Only a shorter expected run makes the extra cost worth stating.
        if candidate.expected_s < cluster.expected_s
    ]
    if not faster_clusters:
        return because("slow-data", waiting_share=waiting_share)
    cheapest = min(
        faster_clusters,
        key=lambda candidate: candidate.expected_bill(price_book).total,
    )
    return because(
        "slow-data-files",
        waiting_share=waiting_share,
        saved_hours=(cluster.expected_s - cheapest.expected_s)
        / SECONDS_PER_HOUR,
        extra_usd=cheapest.expected_bill(price_book).total
        - cluster.expected_bill(price_book).total,
    )


def _data_path_warnings(
    cluster: Cluster, price_book: PriceBook
) -> list[PlanWarning]:
    """Return warnings about CPU cores, storage bandwidth and host memory."""
    warnings = []
    if cluster.waits_for_cores:
        warnings.append(
            PlanWarning(code="data", reason=slow_cores(cluster, price_book))
        )
    elif cluster.read_s > cluster.steps_s:
        warnings.append(
            PlanWarning(code="data", reason=_slow_data(cluster, price_book))
        )
    repeated = repeated_work(cluster)
    if repeated is not None:
        warnings.append(PlanWarning(code="loaders", reason=repeated))
    # Without a staged copy training waits for the whole write.
    if not cluster.stages_checkpoints:
        warnings.append(
            PlanWarning(
                code="staging",
                reason=because("staging", stall_s=cluster.checkpoint_stall_s),
            )
        )
    return warnings
