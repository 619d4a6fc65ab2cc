"""What tokens and requests cost where bills are compared: each bill over what the plan counts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.plan.token_cost import at_total
from planner.render import text
from planner.render.total import total_page
from tests.conftest import ROOT, chat
from tests.planner.render.test_total import NOTEBOOK
from tests.stacks.engine.test_simulated import plan_of

if TYPE_CHECKING:
    from planner.plan.types import Plan
    from tests.planner.cli.conftest import Command

SPEC = chat(traffic="peak_rps: 20", extra="where: {clouds: [aws]}")
CELL = re.compile(r"(?:>= )?-?\$([\d,]+(?:\.\d+)?)")


@pytest.fixture(scope="module")
def plan(catalog) -> Plan:
    return plan_of(catalog, SPEC)


def table_rows(page: str, title: str) -> list[dict[str, str]]:
    """The rows of the first Markdown table that has a column, by the titles of their columns."""
    lines = page.splitlines()
    start = next(
        number for number, line in enumerate(lines) if f"| {title} |" in line
    )
    titles = [cell.strip() for cell in lines[start].split("|")[1:-1]]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        rows.append(dict(zip(titles, cells, strict=True)))
    return rows


def usd(cell: str) -> float:
    found = CELL.fullmatch(cell)
    assert found, cell
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize(
    ("command", "bill"),
    [
        (("explain", "s.yaml", "--ways"), "$/mo"),
        (("explain", "s.yaml", "--pareto"), "$/mo"),
        (("explain", "s.yaml", "g6e.*xlarge"), "$/mo"),
        (("plan", "s.yaml", "t.yaml", "--share"), "$/mo together"),
        (("plan", "s.yaml", "t.yaml"), "cost"),
    ],
)
def test_each_row_is_its_bill_over_the_tokens_and_requests_of_the_plan(
    tonnage: Command, here: Path, command: tuple[str, ...], bill: str
) -> None:
    (here / "s.yaml").write_text(SPEC)
    (here / "t.yaml").write_text(SPEC.replace("name: chat", "name: twin"))
    counted = json.loads(tonnage("plan", "s.yaml", "-f", "json")[1])
    tokens = counted["cost"]["tokens"]
    # 20 requests a second at the peak of a flat week, in a month of 730 hours.
    assert tokens["requests"] == pytest.approx(20 * 3600 * 730, rel=1e-6)
    code, page, _ = tonnage(*command, "-f", "markdown")
    assert code == 0
    priced = [
        row
        for row in table_rows(page, "$/M tokens")
        if "$" in row["$/M tokens"]
    ]
    assert len(priced) >= 2
    all_tokens = tokens["prompt_tokens"] + tokens["output_tokens"]
    for row in priced:
        total = usd(row[bill].removesuffix("/mo"))
        # The total of a comparison is rounded to dollars.
        slack = 0.5 / total + 0.01
        for title, price in (
            ("$/M tokens", total * 1e6 / all_tokens),
            ("$/1k requests", total * 1e3 / tokens["requests"]),
        ):
            # Prices have two decimals, and four below ten cents.
            last_digit = 0.01 if price >= 0.10 else 0.0001
            assert usd(row[title]) == pytest.approx(
                price, rel=slack, abs=last_digit / 2
            )


def test_more_traffic_has_more_tokens_and_requests(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(SPEC)
    asked = ("explain", "s.yaml", "--traffic", "3x", "-f", "markdown")
    now, more = table_rows(tonnage(*asked)[1], "$/M tokens")
    grown = usd(more["$/mo"]) / usd(now["$/mo"]) / 3
    for title in ("$/M tokens", "$/1k requests"):
        assert usd(more[title]) == pytest.approx(
            usd(now[title]) * grown, rel=0.02
        )


def test_the_plan_page_and_its_comparisons_say_the_same_of_the_plan(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(SPEC)
    first = tonnage("plan", "s.yaml")[1]
    [blended] = re.findall(r"(\$\S+) blended", first)
    [request] = re.findall(r"(\$\S+) per 1,000 requests", first)
    for flag in ("--ways", "--pareto"):
        page = tonnage("explain", "s.yaml", flag, "-f", "markdown")[1]
        [own] = [
            row
            for row in table_rows(page, "$/M tokens")
            if "as the spec says" in row.values()
        ]
        assert own["$/M tokens"] == blended
        assert own["$/1k requests"] == request
    page = tonnage("explain", "s.yaml", "--sensitivity")[1]
    assert f"{blended} blended" in page
    assert f"{request} per 1,000 requests" in page


def test_the_tokens_of_a_plan_at_its_own_total_cost_what_the_plan_says(
    plan: Plan,
) -> None:
    tokens = plan.cost.tokens
    assert tokens is not None
    assert at_total(tokens, plan.cost.total) == tokens
    half = at_total(tokens, plan.cost.total / 2)
    assert float(half.usd_per_million) == pytest.approx(
        float(tokens.usd_per_million) / 2, abs=1e-4
    )
    assert half.requests == tokens.requests


def test_a_lower_bound_is_one_for_tokens_too(plan: Plan) -> None:
    first, *others = plan.cost.lines
    hole = replace(first, usd=None, price_found=False)
    partial = replace(plan, cost=replace(plan.cost, lines=(hole, *others)))
    page = text.render(total_page([partial, plan]))
    rows = [line for line in page.splitlines() if plan.spec.path in line]
    assert [row.count(">= $") for row in rows] == [3, 0]


def test_what_counts_no_tokens_has_no_columns_or_empty_ones(
    catalog, plan: Plan
) -> None:
    notebook = plan_of(catalog, NOTEBOOK)
    assert "tokens" not in text.render(total_page([notebook, notebook]))
    page = text.render(total_page([plan, notebook]))
    assert "$/M tokens" in page
    [total] = [line for line in page.splitlines() if "total a month" in line]
    assert total.count("$") == 1


@pytest.mark.parametrize("flag", ["--ways", "--pareto", "--sensitivity"])
@pytest.mark.parametrize("name", ["chat-8b", "summarize-batch", "lora-8b"])
def test_pages_stay_within_their_width(
    tonnage: Command, name: str, flag: str
) -> None:
    path = ROOT / "blueprints" / f"{name}.yaml"
    code, page, _ = tonnage("explain", str(path), flag)
    assert code == 0
    assert max(map(len, page.splitlines())) <= 100
