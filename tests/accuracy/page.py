"""The accuracy page, written from the scores: what is measured, how, and where it is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

import numpy as np

from tests.accuracy import expected, fit, limits, loaded, margins, strangers
from tests.accuracy.aims import COLUMNS, aim_rows
from tests.accuracy.bars import ERRORS, SERVED, Bar, label
from tests.accuracy.cross import RELEASE, WHOLE, Scheme
from tests.accuracy.sample import Batch
from tests.accuracy.score import (
    BANDED,
    LOADS,
    MEASURES,
    coverage,
    optimistic,
    order,
    ratios,
    score,
    worst,
)

WORST: Final = 6
OPENING: Final = """# Accuracy

How far tonnage's predictions of inference are from what others measured and published, on rows
that the fit had not seen. `make accuracy` computes this page from `tests/data/truth/`; `make
check` fails when a bar that is met here is missed later. Nothing on this page was written by hand
except these paragraphs.

**What is scored.** {rows} measured rows of quality A (complete enough to be predicted), and
{others} of quality B where something is unstated (speculative decoding, the statistic, the run's
date). Rows of one deployment are not independent, so an error is the mean over the rows of a cell
(source, model, GPU, precision, layout, number of GPUs) and then the median over cells. The mean
over all rows stands beside it, since it shows the bad cells.

**Left out** means: all rows of one model family (or accelerator, or source) are removed, the
coefficients are fitted again, and the removed rows are predicted. Family out of Llama removes more
than half of the rows.

**The table grew on 2026-11-22**, by AMD, A100 with vLLM and SGLang, workstation Blackwell, and by
rows of DeepSeek-R1 whose drafting was unstated until their recipes were read. The bars that were
set before are judged on the rows from before, and again on all rows.

**How far to trust it.** The structure of the model and its priors were chosen while looking at
these very figures, so they flatter it somewhat: differences of a few tenths say nothing, and rows
of a new source will err a little more. Every fit begins at the priors, which know no row. Until
2026-11-28 a fit with rows left out began where the fit to all rows had ended, and stopped at the
next kink of the model (a batch that fills its slots): not at a better optimum, but at a worse one
that still knew the rows. What this page said of first tokens of closed loops with their source
left out was 20 % and is 24 %, of idle ones 8 and 12 %, of rates served 10 and 15 %. No bar was
loosened; three more are missed ([decision 80](decisions/0080-left-out-fits-begin-at-priors.md)).
Since 2026-11-30 times per token err less, most of all on AMD. Plans at even odds hold for 61 % of
the rows from before, where 60 is the most: they are more careful than they say
([decision 118](decisions/0118-fused-latent-attention.md)).

**What limits it.** Two runs of the same engine build differ by about 1 %, runs of different dates
by about 10 %: below that an error is noise. New accelerators err about 1.5 times as much as the
left-out ones here, and their bands are widened so. Of what is missed on all rows, these are the
causes, by what was measured:

- DeepSeek-R1 on SGLang: B300 at tp 4 takes 62.5 ms for a token where B200 takes 22.3 at the same
  settings.
- First tokens of SGLang on B200 in November 2025 came after 7 to 9 s whatever the load, which no
  queue of 4 to 128 users explains: such rows ({cold} of a closed loop whose mean exceeds the whole
  queue by half) do not count in the fit of the first token, and are scored all the same.
- TensorRT-LLM's closed loops of Llama on H200 with 1,024 tokens in and out wait for about twenty
  steps more on one, two and four accelerators than on eight, and with longer answers not at all.
- InferenceX is nearly all there is of closed loops of DeepSeek-R1 on Nvidia: left out, AMD has to
  stand for it.
- vLLM on H100 with fp8 weights reads its cache as slowly as one of 16 bit, and overflows as early,
  although the recipes of those load tests ask for one of 8 bits; start-up logs with it report
  twice the tokens.
- Mixtures on Nvidia with InferenceX left out are a tenth too slow on eight accelerators: what is
  left has no closed loop of one, and the launches of a layer come out a sixth too long.
- MLPerf 6.0 is all that the fit has of workstation Blackwell. Without it Llama 2 70B in fp4 comes
  out 25 % too slow, while what TensorRT-LLM's own page says of that card is predicted within 7 %
  for a model of the same size: it is that submission, not the card.
"""


def page(
    batch: Batch,
    schemes: Sequence[Scheme],
    bars: Sequence[Bar],
    refused: Sequence[str],
) -> str:
    """Return the page as markdown."""
    full = int((batch.quality == "A").sum())
    parts = [
        OPENING.format(
            rows=f"{full:,}",
            others=f"{len(batch.samples) - full:,}",
            cold=int(fit.cold(batch).sum()),
        )
    ]
    parts += [
        "## Bars\n",
        _table(("bar", ">reached", ">least", ">most", ""), _bars(bars)),
    ]
    parts += [LOGS]
    parts += ["## Aims\n", AIMED, _table(COLUMNS, aim_rows(bars))]
    parts += [CAUSES, _table(limits.COLUMNS, limits.rows(batch, schemes))]
    parts += [
        EARLIER_CAUSES,
        _table(limits.COLUMNS, limits.rows(batch, schemes, batch.earlier)),
    ]
    parts += [SPANS, _table(limits.SPAN_COLUMNS, limits.spans(batch, schemes))]
    parts += [
        COVERAGES,
        _table(limits.COVERAGE_COLUMNS, limits.coverages(batch, schemes)),
    ]
    parts += ["## Errors\n", *_errors(batch, schemes)]
    source = next(s for s in schemes if s.name == "source")
    parts += [
        "## What to expect\n",
        EXPECTED,
        _table(
            (
                "of",
                "name",
                "load",
                ">throughput",
                ">TPOT",
                ">TTFT",
                ">rate within limits",
                ">rows",
            ),
            list(expected.rows(batch, source)),
        ),
    ]
    parts += [
        "## Bands\n",
        BANDS,
        _table(
            ("number", "left out", ">inside", ">high / low", ">rows"),
            _bands(batch, schemes),
        ),
    ]
    parts += [
        "## Plans\n",
        PLANS,
        _table(
            (
                "load",
                "engine",
                "GPU",
                *(f">at {x:.0%}" for x in LEVELS),
                ">rows",
            ),
            _plans(batch, schemes[0], source),
        ),
    ]
    parts += [
        "## Servers under a given rate\n",
        LOADED,
        _table(
            (
                "number",
                ">median error",
                ">inside its band",
                ">high / low",
                ">rows",
            ),
            _loaded(batch),
        ),
    ]
    parts += ["## Rows\n", *_rows(batch, refused)]
    parts += ["## Plots\n", PLOTS]
    parts += [
        "## Worst cells\n",
        WORSE,
        _table(("measure", "cell", ">bias", ">rows"), _worst(batch, schemes)),
    ]
    return "\n".join(parts)


LOGS: Final = """Start-up logs that are not scored state no pool, less than 10 GiB of it, settings
that are not the defaults, or a model whose architecture is not among our facts.
"""
AIMED: Final = """What predictions are to reach one day. In bold is what does not reach it yet;
figures of training stand once, since its table did not grow. The three tables below tell what
limits each of those in bold.
"""
CAUSES: Final = """**Errors.** What those that are missed would be, and over how many cells, if
some rows were not scored; the fits are the same. Times per token and to the first one are missed
for SGLang and TensorRT-LLM: of vLLM, which a plan starts where its spec names no other engine,
all four are within their aims. Throughput is missed for weights of 4 bits. Where more users of the
same server were given their tokens faster, something else held the run up: no load explains it.
"""
EARLIER_CAUSES: Final = """The same of the rows from before alone. SGLang has no closed loop among
them. Without those of TensorRT-LLM all four are within their aims there too.
"""
SPANS: Final = """**Widths.** A band of 90 % is no narrower than the errors that it holds. This
is what the middle nine tenths of the errors span, with a family or a source left out: a band of
one width that is to hold them is as wide at least. Over all rows that is more than the aim for
the time per token and the first token. Bands are made of all rows, so they are wide for the rows
from before, which err less, and hold more than nine tenths of those.
"""
COVERAGES: Final = """**Coverage.** Few groups say little of the next one, so they widen a band: to
1.25 times its width at most, throughput to 1.05 times, and rates within limits, of which there are
three groups, to 2.05 times. This is what bands would hold, and how wide they would be, if they
might grow by so much: in the median of the widest scheme. Those of the time per token would hold
nine tenths of all rows at 1.5 times; they hold more of the rows from before already, and their
width, which is missed too, would be further off. Rates within limits miss even so: with RTX PRO
6000 left out, the bands of the other accelerators hold two thirds, and no factor on groups tells
that.
"""
EXPECTED: Final = """Median error over rows of quality A, each predicted without its source; in
brackets the median bias, with a plus where more is predicted than was measured.
"""
BANDS: Final = """A band is made from the errors of the *other* left-out groups, so a row never
widens its own band. An engine with 100 rows under a kind of load has a band of its own; where all
of them are of one group, nothing tells how the next one differs, and the band is wider by the most
that few groups may add. Inside: share of rows within it, which should be 90 %. The
newest releases of each engine, of a quarter of a year, are left out together. Under "stated" are
the bands that an estimate states: of vendors of which each load is of one source, without it, and
of these releases.
Rates within both limits (`served_rps`) are of three families in three rounds of MLPerf's Server
scenario, and what two of them err by says little of the third. Near a limit a server that is a
tenth slower may serve half as much, so their bands are those of the pace of a server: of how many
times as fast it is as predicted, where it keeps the limits at the measured rate. Widths are those
of the pace; rates have the band that such servers serve. They may grow to the double:
by all that three groups ask for if nothing but groups differs, t(0.95, 2) / z(0.95) * sqrt(4 / 3).
With a family, an accelerator or a round left out they still hold too few.
"""
LEVELS: Final = (0.5, 0.9)
PLANS: Final = """Share of the rows whose mean times, per token and to the first one, are both
within a plan of so much confidence, predicted without their source. Loops have no more users than
slots. What a plan starts is vLLM. First tokens of other engines come from a server that was still
compiling (SGLang), or wait for each other (TensorRT-LLM): no rate of a replica says so. MI300X and
MI325X are predicted without any step of AMD: each load of AMD is of one source. Their margins grow
by the mean square of these very errors less that in the fit.
"""
LOADED: Final = """Poisson arrivals at a given rate, MLPerf Server among them, which runs at nine
tenths of capacity: there a time per token is `t / (1 - load)`, and a capacity that is off by a
tenth doubles it. So the number is the geometric mean over capacities within the band of
throughput, and its own band reaches as far as they do. In sample; 99th percentiles come from the
queue and the batch, not from these rows.
"""
PLOTS: Final = """Each point is one row, predicted while its own accelerator was left out.

![throughput](accuracy/throughput.svg)
![TPOT](accuracy/tpot.svg)
![TTFT](accuracy/ttft.svg)
![by accelerator](accuracy/by_gpu.svg)
![by model](accuracy/by_model.svg)
"""
WORSE: Final = """The cells that are furthest off with their source left out. A positive bias of
throughput, and a negative one of a time,
is optimistic.
"""


def _bars(bars: Sequence[Bar]) -> Iterator[tuple[str, ...]]:
    for bar in bars:
        limits = (
            "" if x is None else f"{x:g}{bar.sign}"
            for x in (bar.least, bar.most)
        )
        reached = f"{bar.reached:.1f}{bar.sign}"
        yield (bar.name, reached, *limits, "met" if bar.met else "**missed**")


def _errors(batch: Batch, schemes: Sequence[Scheme]) -> Iterator[str]:
    yield "Median over cells (mean over rows), in percent; in brackets the aim.\n"
    columns = ("measure", *(f">{label(s)}" for s in schemes), ">cells", ">rows")
    yield _table(
        columns, [_error(batch, schemes, measure) for measure in MEASURES]
    )
    shares = [
        (
            name,
            *(
                f"{100 * optimistic(batch, s, target, groups):.0f} %"
                for s in schemes
            ),
        )
        for name, target, groups in (
            ("throughput", "throughput", ("offline", "static")),
            ("TPOT, closed loop", "tpot", ("closed",)),
            ("TTFT, closed loop", "ttft", ("closed",)),
        )
    ]
    yield "Rows predicted better than measured by more than 20 %:\n"
    yield _table(("number", *(f">{label(s)}" for s in schemes)), shares)
    pair = next(s for s in schemes if s.name == "GPU")
    share, count = order(batch, pair)
    yield (
        f"Of {count} pairs of accelerators under one workload that measured more than 15 % apart, "
        f"{100 * share:.0f} % are put in the right order, each predicted without its own rows.\n"
    )


def _error(
    batch: Batch, schemes: Sequence[Scheme], measure: str
) -> tuple[str, ...]:
    aims = ERRORS[measure][1] if measure in ERRORS else ()
    whole = score(batch, ratios(batch, schemes[0], measure))
    cells = []
    for scheme, aim in zip_longest(schemes, aims):
        ratio = ratios(batch, scheme, measure)
        if not np.isfinite(ratio).any():
            # No newest release was measured under every load.
            cells.append("")
            continue
        found = score(batch, ratio)
        goal = "" if aim is None else f" [{aim:g}]"
        cells.append(f"{100 * found.cells:.1f} ({100 * found.rows:.1f}){goal}")
    return (measure, *cells, str(whole.cell_count), str(whole.row_count))


def _bands(
    batch: Batch, schemes: Sequence[Scheme]
) -> Iterator[tuple[str, ...]]:
    for number, target in BANDED.items():
        for scheme in schemes[1:]:
            found = coverage(batch, scheme, target, LOADS)
            if not found.rows:
                continue
            yield (
                number,
                scheme.name,
                f"{100 * found.inside:.0f} %",
                f"{found.width:.2f}",
                str(found.rows),
            )
    by_name = {scheme.name: scheme for scheme in schemes}
    for target in strangers.NUMBERS:
        for name, found in (
            ("vendor", strangers.of_vendors(batch, by_name["source"], target)),
            ("release", strangers.of_releases(batch, by_name[RELEASE], target)),
        ):
            yield (
                target,
                f"{name}, stated",
                f"{100 * found.inside:.0f} %",
                f"{found.width:.2f}",
                str(found.rows),
            )


def _plans(
    batch: Batch, fitted: Scheme, source: Scheme
) -> Iterator[tuple[str, ...]]:
    here = margins.judged(batch, margins.loops(batch, fitted.fits[WHOLE]))
    within = [margins.kept(batch, source, level, here) for level in LEVELS]
    names = [
        (group, sample.setup.engine.kind, sample.row["gpu"])
        for group, sample in zip(batch.group, batch.samples, strict=True)
    ]
    for name in sorted({names[place] for place in np.flatnonzero(here)}):
        of_name = here & np.array([other == name for other in names])
        shares = (f"{100 * np.mean(x[of_name]):.0f} %" for x in within)
        yield (*name, *shares, str(int(of_name.sum())))


def _loaded(batch: Batch) -> Iterator[tuple[str, ...]]:
    for name, error, inside, width, count in loaded.rows(batch):
        shares = (
            f"{100 * error:.0f} %",
            f"{100 * inside:.0f} %",
            f"{width:.1f}",
        )
        yield (f"`{name}`", *shares, str(count))


def _rows(batch: Batch, refused: Sequence[str]) -> Iterator[str]:
    sources = Counter(
        (s.row["source_group"], s.row["quality"]) for s in batch.samples
    )
    names = sorted({name for name, _ in sources})
    yield _table(
        ("source", ">A", ">B"),
        [
            (name, str(sources[name, "A"] or ""), str(sources[name, "B"] or ""))
            for name in names
        ],
    )
    if refused:
        yield "Refused, and counted as such:\n"
        yield _table(
            ("reason", ">rows"),
            [(k, str(n)) for k, n in sorted(Counter(refused).items())],
        )
    else:
        yield "No row is refused.\n"


def _worst(
    batch: Batch, schemes: Sequence[Scheme]
) -> Iterator[tuple[str, ...]]:
    out = next(s for s in schemes if s.name == "source")
    for measure in MEASURES:
        if measure == SERVED:
            continue
        for bias, cell, rows in worst(batch, out, measure, WORST):
            yield (measure, cell, f"{100 * bias:+.0f} %", str(rows))


def _table(
    columns: Sequence[str],
    rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]],
) -> str:
    """A markdown table; columns that start with > are aligned to the right."""
    lines = ["| " + " | ".join(c.removeprefix(">") for c in columns) + " |"]
    lines.append(
        "|"
        + "|".join("--:" if c.startswith(">") else "---" for c in columns)
        + "|"
    )
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
