"""Correction of predictions from a user's own benchmark.

For TTFT and TPOT the bias ln(measured / predicted) is fitted over batch and context: see
`perf.serving.correction`. The report compares each point with its prediction and has
warnings about points that do not fit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.errors import Place, Problem, UsageError
from planner.estimate import names
from planner.estimate.names import RefusedError
from planner.perf.common.layout import Node, ReplicaLayout
from planner.perf.common.memory import KV_ELEMENT_BYTES
from planner.perf.serving import load_shape
from planner.perf.serving.correction import (
    METRICS,
    BiasModel,
    Correction,
    feature_vector,
    posterior,
)
from planner.perf.serving.deployment import Demand, Deployment
from planner.perf.serving.engine import find_engine, kv_precision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.estimate.benchmark import BenchmarkPoint

OUTLIER_SPREADS: Final = 3.0  # spreads from what the other points say
HOST_GPUS: Final = 8
# A log ratio that says that the point is of something else.
MAX_LOG_RATIO: Final = 1.6


class PointComparison(Struct, frozen=True):
    """One point: measured and predicted times by metric (tpot, ttft), s.

    measured_s  mean of the benchmark, s
    before_s    prediction without correction, s
    after_s     prediction corrected by the other points only, s
    is_outlier  more than `OUTLIER_SPREADS` standard deviations from the corrected prediction
    """

    point: BenchmarkPoint
    measured_s: dict[str, float]
    before_s: dict[str, float]
    after_s: dict[str, float]
    is_outlier: bool


class CalibrationReport(Struct, frozen=True):
    """Correction of a deployment, with the comparison of each point and warnings.

    correction   posterior of all points that were used
    comparisons  points that were used, in the order of the files
    """

    correction: Correction
    comparisons: tuple[PointComparison, ...]
    warnings: tuple[str, ...]


class _PointRatios(Struct, frozen=True):
    """How far one point is from its prediction.

    log_ratios  ln(measured / predicted seconds) by metric
    """

    point: BenchmarkPoint
    point_features: tuple[float, ...]
    log_ratios: dict[str, float]
    predicted_s: dict[str, float]

    @property
    def is_far_off(self) -> bool:
        """Whether a ratio of this size means a wrong deployment, not a model bias."""
        return (
            max(abs(log_ratio) for log_ratio in self.log_ratios.values())
            > MAX_LOG_RATIO
        )


class _PointGroup(Struct, frozen=True, order=True):
    """What the points of one deployment have in common."""

    model: str
    gpu: str
    tp: int
    precision: str
    framework: str


def calibrate(
    bench_points: Sequence[BenchmarkPoint], overrides: Mapping[str, str]
) -> CalibrationReport:
    """Return the correction that the points of one deployment give.

    `overrides` has model, gpu, tp, precision and framework. It takes precedence over files.
    Two sorts of points are excluded with a warning:
        points of another model, accelerator, tp, precision or engine than the most frequent ones
        points with |ln(measured / predicted)| > MAX_LOG_RATIO
    Raises UsageError when a point does not state its model or accelerator, does not fit in
    memory, or when no point remains.
    """
    completed_points = [
        _complete_point(raw_point, overrides) for raw_point in bench_points
    ]
    main_points, other_points = _split_groups(completed_points)
    deployments = [_point_deployment(point) for point in main_points]
    point_rows = [
        _point_ratios(point, deployment)
        for point, deployment in zip(main_points, deployments, strict=True)
    ]
    used_rows = [
        point_row for point_row in point_rows if not point_row.is_far_off
    ]
    if not used_rows:
        step = "check --model, --gpu, --tp and --precision"
        raise _point_error(
            bench_points[0],
            "has no point that its deployment could have measured",
            step,
        )
    # Leave-one-out: each point is predicted from the others only.
    comparisons = tuple(
        _compare_point(point_index, used_rows)
        for point_index in range(len(used_rows))
    )
    return CalibrationReport(
        _learned_correction(deployments[0], used_rows),
        comparisons,
        (
            *(_group_warning(point) for point in other_points),
            *_distance_warnings(point_rows),
            *_outlier_warnings(comparisons),
        ),
    )


def _split_groups(
    bench_points: Sequence[BenchmarkPoint],
) -> tuple[list[BenchmarkPoint], list[BenchmarkPoint]]:
    """Return the points of the deployment that most are of, and the others."""
    point_groups = [_point_group(bench_point) for bench_point in bench_points]
    # Most frequent deployment; equal counts are decided by name.
    main_group = max(
        set(point_groups),
        key=lambda point_group: (point_groups.count(point_group), point_group),
    )
    main_points = []
    other_points = []
    for bench_point, point_group in zip(
        bench_points, point_groups, strict=True
    ):
        if point_group == main_group:
            main_points.append(bench_point)
        else:
            other_points.append(bench_point)
    return main_points, other_points


def _point_group(point: BenchmarkPoint) -> _PointGroup:
    return _PointGroup(
        point.model, point.gpu, point.tp, point.precision, point.framework
    )


def _group_warning(point: BenchmarkPoint) -> str:
    return (
        f"{point.place} is of {point.model or 'an unnamed model'} on {point.gpu} tp {point.tp} "
        f"in {point.precision} with {point.framework}: it is left out"
    )


def _distance_warnings(point_rows: Sequence[_PointRatios]) -> list[str]:
    return [
        f"{point_row.point.place} is more than {math.exp(MAX_LOG_RATIO):.0f} times off: "
        "it is left out"
        for point_row in point_rows
        if point_row.is_far_off
    ]


def _outlier_warnings(comparisons: Sequence[PointComparison]) -> list[str]:
    return [
        f"{comparison.point.place} is far from what the other points say"
        for comparison in comparisons
        if comparison.is_outlier
    ]


def _learned_correction(
    deployment: Deployment, used_rows: Sequence[_PointRatios]
) -> Correction:
    """Return what the points teach about their deployment: all of them count."""

    def learned(metric: str) -> BiasModel:
        return posterior(
            metric,
            [
                (point_row.point_features, point_row.log_ratios[metric])
                for point_row in used_rows
            ],
        )

    return Correction(
        model=deployment.llm.model,
        accelerator=deployment.node.accelerator.accelerator,
        precision=deployment.layout.precision,
        engine=deployment.engine.kind,
        tp=deployment.layout.tp,
        points=len(used_rows),
        tpot=learned("tpot"),
        ttft=learned("ttft"),
    )


def _complete_point(
    point: BenchmarkPoint, overrides: Mapping[str, str]
) -> BenchmarkPoint:
    """Return the point with missing fields filled in and canonical names.

    An override takes precedence over the file, the file over the default.
    """
    completed_point = replace(
        point,
        model=overrides.get("model") or point.model,
        gpu=overrides.get("gpu") or point.gpu,
        tp=int(overrides.get("tp") or point.tp or 1),
        precision=overrides.get("precision") or point.precision or "",
        framework=overrides.get("framework") or point.framework or "vllm",
    )
    for field_name in ("model", "gpu"):
        if not getattr(completed_point, field_name):
            raise _point_error(
                point, f"does not say its {field_name}", f"add --{field_name}"
            )
    try:
        language_model = names.resolve_model(completed_point.model)
        # Without a stated precision the model runs as it was released.
        weight_precision = completed_point.precision or language_model.precision
        return replace(
            completed_point,
            model=language_model.model,
            gpu=names.resolve_gpu(completed_point.gpu).accelerator,
            precision=names.resolve_precision(weight_precision),
            framework=names.resolve_engine(completed_point.framework),
        )
    except RefusedError as lookup_error:
        raise _point_error(
            point,
            str(lookup_error),
            "name it with --model, --gpu or --precision",
        ) from None


def _point_error(
    point: BenchmarkPoint, message: str, next_step: str
) -> UsageError:
    point_place = Place(point.place)
    return UsageError(
        Problem(
            code="benchmark",
            message=message,
            place=point_place,
            next_step=next_step,
        )
    )


def _point_deployment(point: BenchmarkPoint) -> Deployment:
    language_model = names.resolve_model(point.model)
    accelerator = names.resolve_gpu(point.gpu)
    weight_precision = point.precision
    # Files label released MXFP4 weights as fp4 or fp8.
    if language_model.precision == "mxfp4" and weight_precision in (
        "fp4",
        "fp8",
    ):
        weight_precision = language_model.precision
    replica_layout = ReplicaLayout(
        precision=weight_precision,
        kv_precision=point.kv_precision
        if point.kv_precision in KV_ELEMENT_BYTES
        else kv_precision(point.framework, language_model, weight_precision),
        tp=point.tp,
    )
    # Accelerators without a scale-up link communicate over PCIe.
    scaleup_link = "pcie" if accelerator.link == "none" else accelerator.link
    host_node = Node(
        accelerator=accelerator,
        accelerator_count=max(HOST_GPUS, point.tp),
        memory_gib=accelerator.memory_gib,
        compute_fraction=1.0,
        scaleup_link=scaleup_link,
        # Not used: the only replica is inside one node.
        network_gb_s=1.0,
    )
    point_demand = Demand(
        load_kind="closed" if point.user_count else "open",
        prompt_tokens=point.prompt_tokens,
        answer_tokens=point.answer_tokens,
        user_count=point.user_count,
        rate_per_s=point.rate_per_s,
        # Synthetic prompts differ less in length than those of a dataset.
        length_keys=("spread",),
    )
    return Deployment(
        llm=language_model,
        layout=replica_layout,
        node=host_node,
        engine=find_engine(point.framework),
        demand=point_demand,
    )


def _point_ratios(
    point: BenchmarkPoint, deployment: Deployment
) -> _PointRatios:
    replica_rates = deployment.replica_rates()
    if replica_rates.max_batch < 1:
        next_step = "check --gpu, --tp and --precision"
        raise _point_error(
            point, "does not fit on what it is said to have run on", next_step
        )
    # A concurrency is a closed loop, a rate is a Poisson process.
    mean_load = (
        load_shape.closed_latency(replica_rates, point.user_count)
        if point.user_count
        else load_shape.poisson_latency(replica_rates, point.rate_per_s)
    )
    predicted_s = {"tpot": mean_load.tpot_s, "ttft": mean_load.ttft_s}
    measured_s = {"tpot": point.tpot_s, "ttft": point.ttft_s}
    log_ratios = {
        # The bias is a factor on time, so it is additive in ln.
        metric: math.log(measured_s[metric] / predicted_s[metric])
        for metric in METRICS
    }
    return _PointRatios(
        point,
        feature_vector(
            # Mean context during decode: half of the answer exists.
            mean_load.batch_size,
            point.prompt_tokens + point.answer_tokens / 2,
        ),
        log_ratios,
        predicted_s,
    )


def _compare_point(
    point_index: int, point_rows: Sequence[_PointRatios]
) -> PointComparison:
    """Compare one point with its prediction from all other points.

    The point itself is left out, so the error is that of an unseen point:
        after = before * exp(mean log ratio at the point's features)
    """
    point_row = point_rows[point_index]
    bench_point = point_row.point
    other_rows = [
        other_row
        for row_index, other_row in enumerate(point_rows)
        if row_index != point_index
    ]
    after_s = {}
    is_outlier = False
    for metric in METRICS:
        bias_model = posterior(
            metric,
            [
                (other_row.point_features, other_row.log_ratios[metric])
                for other_row in other_rows
            ],
        )
        # Posterior mean of the bias at the batch and context of the point.
        after_s[metric] = point_row.predicted_s[metric] * math.exp(
            bias_model.mean(point_row.point_features)
        )
        # Residual in standard deviations, with the noise of one point.
        deviation = abs(
            point_row.log_ratios[metric]
            - bias_model.mean(point_row.point_features)
        ) / bias_model.deviation(point_row.point_features)
        is_outlier = is_outlier or deviation > OUTLIER_SPREADS
    measured_s = {"tpot": bench_point.tpot_s, "ttft": bench_point.ttft_s}
    return PointComparison(
        bench_point, measured_s, point_row.predicted_s, after_s, is_outlier
    )
