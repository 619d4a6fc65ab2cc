"""The file that keeps what a benchmark taught: JSON with a correction and its sources."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from planner.errors import Place, Problem, UsageError
from planner.estimate.calibrate import HOST_GPUS
from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.perf.serving.correction import (
    METRICS,
    BiasModel,
    Correction,
    feature_vector,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA: Final = "tonnage.calibration/1"
DIGITS: Final = 9
MAX_LOG_WEIGHT: Final = 3.0  # a logarithm that no correction reaches


def dump_correction(
    correction: Correction, source_hashes: Mapping[str, str]
) -> str:
    """Return the calibration as JSON; `source_hashes` maps each file to its SHA-256."""
    document = {
        "schema": SCHEMA,
        "model": correction.model,
        "accelerator": correction.accelerator,
        "precision": correction.precision,
        "engine": correction.engine,
        "tp": correction.tp,
        "points": correction.points,
        "sources": dict(source_hashes),
        # Normal distribution of the weights, for each metric.
        "beliefs": {
            metric: _bias_document(correction.bias_model(metric))
            for metric in METRICS
        },
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _bias_document(bias_model: BiasModel) -> dict[str, Any]:
    return {
        "weights": _round_numbers(bias_model.weights),
        "noise": bias_model.noise_sigma,
        "covariance": [
            _round_numbers(covariance_row)
            for covariance_row in bias_model.covariance
        ],
    }


def _round_numbers(numbers: Sequence[float]) -> list[float]:
    return [round(number, DIGITS) for number in numbers]


def parse_correction(file_bytes: bytes, source_path: str) -> Correction:
    """Return the correction of a calibration file; raises UsageError."""
    try:
        document: dict[str, Any] = json.loads(file_bytes)
        # Another schema raises KeyError, like any other malformed file.
        schema_document = {SCHEMA: document}[document["schema"]]
        beliefs = schema_document["beliefs"]
        field_names = ("model", "accelerator", "precision", "tp", "points")
        correction = Correction(
            tpot=_parse_bias(beliefs["tpot"]),
            ttft=_parse_bias(beliefs["ttft"]),
            # Calibrations of before there was a choice are of that engine.
            engine=schema_document.get("engine", DEFAULT_ENGINE),
            **{
                field_name: schema_document[field_name]
                for field_name in field_names
            },
        )
        _check_counts(correction)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as parse_error:
        problem = Problem(
            code="calibration",
            message="is no calibration of this program",
            place=Place(source_path),
            next_step="make one: tonnage calibrate BENCH -o FILE",
        )
        raise UsageError(problem) from parse_error
    # The plan records which calibration file it used.
    return replace(correction, sha256=hashlib.sha256(file_bytes).hexdigest())


def _parse_bias(bias_document: Mapping[str, Any]) -> BiasModel:
    """Return the bias model of a document; raises ValueError on impossible numbers.

    It checks the number of features, the size of weights, covariance and noise, and that no
    variance is negative.
    """
    weights = tuple(
        float(coefficient) for coefficient in bias_document["weights"]
    )
    covariance = tuple(
        tuple(float(coefficient) for coefficient in matrix_row)
        for matrix_row in bias_document["covariance"]
    )
    feature_count = len(feature_vector(1, 1))
    is_square = len(covariance) == feature_count and all(
        len(matrix_row) == feature_count for matrix_row in covariance
    )
    is_small = all(
        abs(coefficient) < MAX_LOG_WEIGHT
        for coefficient in (
            *weights,
            *(
                coefficient
                for matrix_row in covariance
                for coefficient in matrix_row
            ),
        )
    )
    if not (
        is_square
        and is_small
        and len(weights) == feature_count
        and 0 < float(bias_document["noise"]) < MAX_LOG_WEIGHT
    ):
        raise ValueError(weights)
    if any(
        covariance[feature_index][feature_index] < 0
        for feature_index in range(feature_count)
    ):
        raise ValueError(covariance)
    return BiasModel(weights, covariance, float(bias_document["noise"]))


def _check_counts(correction: Correction) -> None:
    """Raise ValueError when `tp` or `points` is out of range."""
    if not (
        1 <= int(correction.tp) <= HOST_GPUS**2 and int(correction.points) >= 1
    ):
        raise ValueError(correction.tp)
