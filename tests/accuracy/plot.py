"""SVG plots of the accuracy page: predicted against measured, and errors by model and GPU."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from tests.accuracy.cross import Scheme
from tests.accuracy.least import Array
from tests.accuracy.sample import Batch, Sample

UNITS: Final = {
    "throughput": "output tokens/s",
    "tpot": "TPOT, ms",
    "ttft": "TTFT, ms",
}
FIFTH: Final = float(np.log(1.2))
SETTINGS: Final[dict[Any, object]] = {
    "svg.hashsalt": "tonnage",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLORS: Final = ("#2f6f9f", "#c2603d", "#5b8c3a", "#7a5c99", "#a08a2c")


def scatter(batch: Batch, scheme: Scheme, target: str, path: Path) -> None:
    """Draw predicted against measured, one color for each kind of load; the lines are 20 % off."""
    ratio = scheme.ratio(target)
    measured = getattr(batch, target) * (1 if target == "throughput" else 1000)
    here = np.isfinite(ratio) & (batch.quality == "A")
    with mpl.rc_context(SETTINGS):
        figure, axes = plt.subplots(figsize=(5.2, 4.2))
        for color, group in zip(
            COLORS, sorted(set(batch.group[here])), strict=False
        ):
            rows = here & (batch.group == group)
            axes.loglog(
                measured[rows],
                measured[rows] * np.exp(ratio[rows]),
                ".",
                color=color,
                markersize=4,
                alpha=0.7,
                label=f"{group} ({int(rows.sum())})",
            )
        ends = np.array([measured[here].min(), measured[here].max()])
        axes.loglog(ends, ends, color="#444444", linewidth=0.8)
        for factor in (1.2, 1 / 1.2):
            axes.loglog(ends, ends * factor, color="#bbbbbb", linewidth=0.8)
        axes.set_xlabel(f"measured {UNITS[target]}")
        axes.set_ylabel("predicted")
        axes.legend(frameon=False, loc="upper left")
        _save(figure, path)


def strips(
    batch: Batch, scheme: Scheme, by: Callable[[Sample], str], path: Path
) -> None:
    """Draw ln(predicted / measured) of throughput and TPOT, one strip for each model or GPU."""
    found: dict[str, list[float]] = defaultdict(list)
    for target in ("throughput", "tpot"):
        ratio: Array = scheme.ratio(target)
        for place in np.flatnonzero(
            np.isfinite(ratio) & (batch.quality == "A")
        ):
            found[by(batch.samples[place])].append(float(ratio[place]))
    names = sorted(found, reverse=True)
    with mpl.rc_context(SETTINGS):
        figure, axes = plt.subplots(figsize=(6.4, 0.6 + 0.32 * len(names)))
        for height, name in enumerate(names):
            values = np.array(found[name])
            spread = (
                np.linspace(-0.25, 0.25, len(values))
                if len(values) > 1
                else np.zeros(1)
            )
            axes.plot(
                values,
                height + spread,
                ".",
                color=COLORS[0],
                markersize=3,
                alpha=0.5,
            )
            axes.plot(
                np.median(values), height, "|", color=COLORS[1], markersize=14
            )
        for line in (-FIFTH, 0.0, FIFTH):
            axes.axvline(
                line, color="#bbbbbb" if line else "#444444", linewidth=0.8
            )
        axes.set_yticks(
            range(len(names)), [f"{n} ({len(found[n])})" for n in names]
        )
        axes.set_xlabel(
            "ln(predicted / measured); lines at 20 %, bar at the median"
        )
        axes.set_xlim(-1.0, 1.0)
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    # Coordinates to a tenth of a point: smaller files that differ less.
    drawn = re.sub(r"(\d+\.\d)\d+", r"\1", path.read_text(encoding="utf-8"))
    path.write_text(
        "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n",
        encoding="utf-8",
    )
