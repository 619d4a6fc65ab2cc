"""Scores the model: `python -m tests.accuracy` writes the page, with `--check` it only judges."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np

from planner.perf.serving.coefficients import SERVING
from tests.accuracy import (
    amd,
    apart_page,
    bars,
    cross,
    least,
    over_pcie,
    page,
    plot,
    sparse,
    training,
    training_apart,
    training_bars,
)

DOCS: Final = Path(__file__).parents[2] / "docs"
# Tables of deployments that no fit sees.
KEPT: Final = (over_pcie.TABLE, sparse.TABLE, amd.TABLE)


def main(arguments: list[str]) -> int:
    """Return 1 when a committed bar is missed."""
    with np.errstate(all="ignore"):
        batch, refused = cross.load()
        now = least.current(SERVING)
        sys.stderr.write(
            "leaving out one family, accelerator and source at a time\n"
        )
        schemes = [
            cross.whole(batch, now),
            *(cross.leave(batch, n) for n in cross.SCHEMES),
        ]
        found = list(
            bars.bars(batch, schemes, [row["quality"] for row, _ in refused])
        )
        found += apart_page.bars()
        runs, left_out_runs, refused_runs = training.now()
        found += training_bars.bars(runs, left_out_runs, len(refused_runs))
        kept = [(table, table.read()) for table in KEPT]
        for table, samples in kept:
            found += table.bars(samples)
        apart = training_apart.read_apart()
        found += training_apart.bars(apart)
    for bar in found:
        mark = "ok    " if bar.met else "MISSED"
        print(f"{mark}  {bar.reached:6.1f} {bar.unit}  {bar.name}")  # noqa: T201
    if "--check" in arguments:
        broken = [
            bar.name
            for bar in found
            if not bar.met and bar.name not in bars.NOT_YET
        ]
        for name in broken:
            sys.stderr.write(f"a bar that was met is missed: {name}\n")
        return 1 if broken else 0
    with np.errstate(all="ignore"):
        text = page.page(
            batch, schemes, found, [reason for _, reason in refused]
        )
        text += "\n" + apart_page.page()
        for table, samples in kept:
            text += "\n" + table.page(samples)
        text += "\n" + training_bars.page(runs, left_out_runs)
        text += "\n" + training_apart.page(apart)
        (DOCS / "accuracy.md").write_text(text, encoding="utf-8")
        left_out = next(s for s in schemes if s.name == "GPU")
        for target in plot.UNITS:
            plot.scatter(
                batch, left_out, target, DOCS / "accuracy" / f"{target}.svg"
            )
        plot.strips(
            batch,
            left_out,
            lambda s: s.row["gpu"],
            DOCS / "accuracy" / "by_gpu.svg",
        )
        plot.strips(
            batch,
            left_out,
            lambda s: s.row["model"],
            DOCS / "accuracy" / "by_model.svg",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
