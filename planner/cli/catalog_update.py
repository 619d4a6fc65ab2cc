"""tonnage catalog update: a catalog with the prices of today, asked of clouds and reviewed."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from planner.cli import option
from planner.cli.compose import open_catalog, open_catalogs
from planner.cli.progress import counting
from planner.errors import CatalogError, Problem, ResourceError, UsageError
from planner.facts.cloud import clouds
from planner.facts.price_endpoint import price_endpoints
from planner.facts.small_cloud import small_clouds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from planner.cli.option import OptionValues
    from planner.facts.small_cloud import SmallCloudMachine
    from planner.market.price_diff import PriceDifference
    from planner.market.price_review import PriceReview
    from planner.market.price_row import PriceRow
    from planner.market.price_update import (
        AnsweredQuestion,
        PriceQuestion,
    )

# Clouds have so long to answer, all of them together; AWS takes a call for each price on demand.
DEADLINE_S: Final = 300.0
DIFFERENCE_KINDS: Final = ("changed", "vanished", "added")
# More are not read at once.
SHOWN_CONCERNS: Final = 20


class BaseCatalog(Struct, frozen=True):
    """The catalog that an update starts from.

    texts     its files by name
    rows      its prices, those of small clouds included
    machines  its machines of small clouds
    zones     its zones by cloud, region and machine type
    """

    texts: Mapping[str, str]
    rows: list[PriceRow]
    machines: tuple[SmallCloudMachine, ...]
    zones: Mapping[tuple[str, str, str], tuple[str, ...]]


class UpdateReport(Struct, frozen=True):
    """What an update found.

    answers      every question with its answer
    differences  the prices that it changes
    review       what is odd about them
    """

    answers: list[AnsweredQuestion]
    differences: list[PriceDifference]
    review: PriceReview


def split_words(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> Any:
    """Return the words of a flag that takes several with commas, or is given several times."""
    return tuple(
        word for text in texts for word in text.split(",") if word.strip()
    )


def check_clouds(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> Any:
    """Return the names of clouds; raises BadParameter for another word."""
    names = split_words(context, parameter, texts)
    asked_clouds = (*clouds(), *price_endpoints())
    for name in names:
        if name in asked_clouds:
            continue
        if name in small_clouds():
            raise click.BadParameter(
                f"{small_clouds()[name]} tells no prices without an account: "
                "its rows stay as they are"
            )
        raise click.BadParameter(
            f"'{name}' is none of {', '.join(asked_clouds)}"
        )
    return names


@click.command("update")
@click.option(
    "--clouds",
    multiple=True,
    metavar="CLOUD,...",
    callback=check_clouds,
    help="Ask only these clouds.",
)
@click.option(
    "--regions",
    multiple=True,
    metavar="PATTERN,...",
    callback=split_words,
    help="Ask only about these regions.",
)
@click.option(
    "--types",
    multiple=True,
    metavar="PATTERN,...",
    callback=split_words,
    help="Ask only about these machine types.",
)
@click.option(
    "--accept",
    is_flag=True,
    help="Write the prices although the review refuses them.",
)
@option.catalog
@option.format_option("text", "json")
@option.color
def update(**option_values: Any) -> int:
    """Ask clouds what machines cost today, and write a new catalog.

    AWS is asked for its reserved instances too, the others on demand and on spot.

    It starts from the catalog that plans use. What a cloud does not answer stays as it is; Azure
    and small clouds with a public price list need no login. The prices are reviewed first: exit 13
    when they are odd, until --accept. What was answered is not asked again within an hour, after
    an interruption or a refusal.

    Example: tonnage catalog update --clouds aws,azure --regions 'us-*,east*'
    """
    from planner.market.price_diff import price_differences
    from planner.market.price_review import review_prices, update_limits
    from planner.market.price_update import todays_prices, updated_rows

    folder = open_catalogs()
    today = option.today()
    base = _base_catalog(option_values["catalog"])
    answers = _ask(_questions(base, option_values), folder.work_path)
    todays = todays_prices(answers, base.zones, base.rows)
    rows = updated_rows(base.rows, todays, today)
    report = UpdateReport(
        answers,
        price_differences(base.rows, rows),
        review_prices(base.rows, todays, update_limits()),
    )
    if report.review.refusals and not option_values["accept"]:
        _write_report(report, None, option_values)
        raise _refusal(report.review, option_values)
    answering_clouds = {key[0] for key in todays.asked}
    name = folder.add(_written_tables(base, rows, answering_clouds, today))
    folder.work_path.unlink(missing_ok=True)
    _write_report(report, name, option_values)
    return 0


def _base_catalog(path: str | None) -> BaseCatalog:
    """Return the catalog of a manifest, or the one that plans use."""
    from planner.market.small_cloud_update import (
        catalog_price_rows,
        table_machines,
    )
    from providers.catalog.folder import EMBEDDED
    from providers.catalog.manifest import verify_manifest

    # Refuses a catalog that nobody could plan with.
    catalog = open_catalog(path, None)
    if path:
        manifest_path = Path(path)
    else:
        folder = open_catalogs()
        choice = folder.choice()
        manifest_path = folder.manifest_path(
            choice.name if choice else EMBEDDED
        )
    texts, _, _ = verify_manifest(manifest_path)
    return BaseCatalog(
        texts,
        catalog_price_rows(texts),
        table_machines(texts),
        {
            (
                offer.provider,
                offer.region,
                offer.instance.instance_type,
            ): offer.zones
            for offer in catalog.offers
        },
    )


def _written_tables(
    base: BaseCatalog,
    rows: Sequence[PriceRow],
    answering_clouds: Collection[str],
    today: str,
) -> dict[str, str]:
    """Return the files of a catalog with other prices.

    Small clouds are in it once one of them has answered. Until then plans take the machines that
    the program came with.
    """
    from planner.facts.small_cloud import SMALL_CLOUD_FILE, small_cloud_table
    from planner.market.small_cloud_update import is_small, updated_machines
    from providers.catalog.update import updated_tables

    texts = updated_tables(
        base.texts,
        [row for row in rows if not is_small(row)],
        answering_clouds,
        today,
    )
    if any(cloud in price_endpoints() for cloud in answering_clouds):
        texts[SMALL_CLOUD_FILE] = small_cloud_table(
            updated_machines(base.machines, rows)
        )
    return texts


def _questions(
    base: BaseCatalog, option_values: OptionValues
) -> list[PriceQuestion]:
    """Return what to ask. Machine types are also those of the embedded catalog.

    So a price that had vanished from the catalog that plans use is asked for again.
    """
    from planner.market.price_row import read_price_rows
    from planner.market.price_update import AskedScope, price_questions
    from planner.market.small_cloud_update import is_small, small_questions
    from providers.catalog.manifest import CATALOG_FOLDER

    embedded_text = (CATALOG_FOLDER / "prices.csv").read_text(encoding="utf-8")
    scope = AskedScope(
        option_values["clouds"],
        option_values["regions"],
        option_values["types"],
    )
    built_rows = [row for row in base.rows if not is_small(row)]
    questions = [
        *price_questions([*built_rows, *read_price_rows(embedded_text)], scope),
        *small_questions(scope),
    ]
    if not questions:
        problem = Problem(
            code="catalog",
            message="no price is of these clouds, regions and machine types",
            next_step="see what there is: tonnage offers --limit 100",
        )
        raise UsageError(problem)
    return questions


def _ask(
    questions: Sequence[PriceQuestion], work_path: Path
) -> list[AnsweredQuestion]:
    """Return all questions with their answers. Raises ResourceError where nobody answers."""
    from providers.catalog.update import gather_answers
    from providers.live.price import ask_prices

    answers = []
    with counting(len(questions)) as say:
        for answered in gather_answers(
            questions,
            work_path,
            partial(ask_prices, deadline_s=DEADLINE_S),
            datetime.now(UTC),
        ):
            answers.append(answered)
            say(_answer_text(answered))
    if all(answered.answer.value is None for answered in answers):
        raise ResourceError(
            Problem(
                code="catalog",
                message="no cloud answered, so no catalog is written",
                cause=answers[0].answer.reason,
                next_step="see what is missing: tonnage doctor",
            )
        )
    return answers


def _answer_text(answered: AnsweredQuestion) -> str:
    prices = answered.answer.value
    outcome = (
        answered.answer.reason if prices is None else f"{len(prices)} prices"
    )
    return f"{' '.join(answered.question.place)}  {outcome}"


def _refusal(review: PriceReview, option_values: OptionValues) -> CatalogError:
    """Return the error of prices that a review refuses, with the command that accepts them."""
    flags = "".join(
        f" --{name} {shlex.quote(','.join(option_values[name]))}"
        for name in ("clouds", "regions", "types")
        if option_values[name]
    )
    if option_values["catalog"]:
        flags += f" --catalog {shlex.quote(option_values['catalog'])}"
    return CatalogError(
        Problem(
            code="catalog-review",
            message="no catalog is written: of the prices of today "
            + "; ".join(review.refusals),
            next_step="look at each, and if they are right: "
            f"tonnage catalog update{flags} --accept",
        )
    )


def _write_report(
    report: UpdateReport, name: str | None, option_values: OptionValues
) -> None:
    """Write what an update found, and the name of the catalog that it wrote, if any."""
    from planner.market.listing import concern_rows
    from planner.plan.canonical import dump_document
    from planner.render.listing import render_rows

    silent = [
        answered for answered in report.answers if answered.answer.value is None
    ]
    counts = Counter(difference.kind for difference in report.differences)
    rows = concern_rows(report.review.concerns)
    if option_values["format"] == "json":
        document = {
            "catalog": name,
            "asked": len(report.answers),
            "answered": len(report.answers) - len(silent),
            **{kind: counts[kind] for kind in DIFFERENCE_KINDS},
            "concerns": rows,
            "refusals": list(report.review.refusals),
            "unanswered": [
                {
                    "cloud": answered.question.cloud,
                    "region": answered.question.region,
                    "purchase": answered.question.purchase,
                    "reason": answered.answer.reason,
                }
                for answered in silent
            ],
        }
        option.write_output(dump_document(document))
        return
    if rows:
        color = option.wants_color(option_values["color"])
        click.echo(render_rows(rows[:SHOWN_CONCERNS], "text", color=color))
    if len(rows) > SHOWN_CONCERNS:
        click.echo(f"{len(rows) - SHOWN_CONCERNS:,} more: -f json has all\n")
    for cloud, count in Counter(
        answered.question.cloud for answered in silent
    ).items():
        reason = next(
            answered.answer.reason
            for answered in silent
            if answered.question.cloud == cloud
        )
        click.echo(f"{cloud} did not answer {count} questions: {reason}")
    if name:
        counts_text = ", ".join(
            f"{counts[kind]} {kind}" for kind in DIFFERENCE_KINDS
        )
        click.echo(f"wrote {name}: prices {counts_text}")
        click.echo(
            f"next: tonnage catalog diff embedded {name}  ·  "
            f"tonnage catalog use {name}"
        )
