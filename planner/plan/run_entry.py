"""Entry of a training run in the document of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.bill_line import CENT
from planner.perf.training.enumeration import recomputed_layers
from planner.plan import run as types
from planner.plan.number import optional_money, plain_money, rounded
from planner.plan.pool_entry import fleet_reference
from planner.sentence import describe
from planner.units import BYTES_PER_GB, BYTES_PER_MB, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.perf.training.layout_search import TimedLayout
    from planner.solve.solution import (
        JobLoader,
        JobStorage,
        KeptCheckpoints,
        MachineLife,
        RunBase,
        TradeOff,
        TrainingRun,
    )


def run_entry(training_run: TrainingRun | None) -> types.Run | None:
    """Return the entry of a training run; nothing where nothing is trained."""
    if training_run is None:
        return None
    # Median and 90th percentile of the simulated runs.
    hours_p50, hours_p90 = training_run.hours_p50_p90
    usd_p50, usd_p90 = training_run.usd_p50_p90
    return types.Run(
        method=training_run.method,
        tokens=rounded(training_run.total_tokens),
        steps=training_run.optimizer_steps,
        sequence=training_run.sequence_tokens,
        global_batch=training_run.global_batch,
        checkpoint_interval_s=rounded(training_run.checkpoint_interval_s),
        checkpoint_blocks_s=rounded(training_run.checkpoint_stall_s),
        checkpoint_gb=rounded(training_run.checkpoint_bytes / BYTES_PER_GB),
        checkpoints=_checkpoint_rule(training_run.checkpoints_kept),
        billed_hours=_billed_time(training_run.machine_life),
        stops=rounded(training_run.interruptions),
        spares=training_run.spare_nodes,
        base=_base(training_run.base),
        hours_p50=rounded(hours_p50),
        hours_p90=rounded(hours_p90),
        usd_p50=plain_money(usd_p50),
        usd_p90=plain_money(usd_p90),
        storage=_storage(training_run.storage),
        loader=_loader(training_run.loader),
        layouts=tuple(
            training_layout(timed_layout)
            for timed_layout in training_run.layouts
        ),
        ways=tuple(
            types.RunScenario(
                way=scenario.name,
                usd=optional_money(scenario.usd),
                hours_p90=None
                if scenario.duration_hours is None
                else rounded(scenario.duration_hours),
                remark="; ".join(map(describe, scenario.remarks)),
            )
            for scenario in training_run.scenarios
        ),
        curve=tuple(_curve_point(point) for point in training_run.curve),
    )


def _base(base: RunBase | None) -> types.BaseRun | None:
    if base is None:
        return None
    return types.BaseRun(
        nodes=base.nodes,
        speed=rounded(base.speed),
        layout=training_layout(base.layout),
    )


def _checkpoint_rule(kept: KeptCheckpoints) -> types.CheckpointRule:
    return types.CheckpointRule(
        last=kept.keep_last,
        every_s=rounded(kept.keep_every_s),
        left=kept.left,
        left_gb=rounded(kept.left_bytes / BYTES_PER_GB),
        left_usd_month=None
        if kept.left_usd_month is None
        else plain_money(kept.left_usd_month.quantize(CENT)),
    )


def _billed_time(life: MachineLife) -> types.BilledTime:
    return types.BilledTime(
        start=rounded(life.start_s / SECONDS_PER_HOUR),
        steps=rounded(life.steps_s / SECONDS_PER_HOUR),
        lost=rounded(life.lost_s / SECONDS_PER_HOUR),
        closing=rounded(life.closing_s / SECONDS_PER_HOUR),
        release=rounded(life.release_s / SECONDS_PER_HOUR),
        total=rounded(life.billed_s / SECONDS_PER_HOUR),
    )


def _curve_point(point: TradeOff) -> types.CurvePoint:
    return types.CurvePoint(
        fleet=fleet_reference(point.fleet),
        purchase=point.purchase,
        accelerators=point.accelerators,
        hours=rounded(point.duration_hours),
        usd=plain_money(point.usd),
        mfu=rounded(point.mfu),
        chosen=point.is_chosen,
        knee=point.is_knee,
        violates=point.violates or None,
    )


def _storage(storage: JobStorage) -> types.StorageSpeed:
    file_system = storage.file_system
    return types.StorageSpeed(
        # Without a file system the job reads and writes object storage.
        kind="object" if file_system is None else "parallel",
        gib=file_system.capacity_gib if file_system else None,
        mb_s_tib=file_system.mb_s_per_tib if file_system else None,
        wanted_mb_s=rounded(storage.required_bytes_per_s / BYTES_PER_MB),
        given_mb_s=rounded(storage.supplied_bytes_per_s / BYTES_PER_MB),
        checkpoint_write_s=rounded(storage.checkpoint_write_s),
        checkpoint_load_s=rounded(storage.checkpoint_load_s),
    )


def _loader(loader: JobLoader | None) -> types.LoaderSpeed | None:
    if loader is None:
        return None
    return types.LoaderSpeed(
        form=loader.form,
        cores=rounded(loader.cores),
        workers=loader.workers,
        wanted_s=rounded(loader.wanted_s),
        given_s=rounded(loader.given_s),
    )


def training_layout(timed_layout: TimedLayout) -> types.TrainingLayout:
    """Return a training layout with step time (s) and peak memory (GiB), rounded."""
    layout = timed_layout.job.layout
    return types.TrainingLayout(
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        cp=layout.cp,
        ep=layout.ep,
        dp=layout.dp,
        sharding=layout.sharding,
        shard=layout.shard_size,
        micro_batch=rounded(layout.micro),
        recompute=layout.recompute,
        recomputed_layers=recomputed_layers(
            layout, timed_layout.job.llm.layers
        ),
        precision=timed_layout.job.software.precision_text,
        step_time_s=rounded(timed_layout.step_time.total),
        peak_gib=rounded(timed_layout.peak_gib),
        limit=timed_layout.bottleneck,
    )
