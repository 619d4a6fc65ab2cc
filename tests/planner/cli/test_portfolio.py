"""plan --share as documents: what the text page says, the JSON document says, and the report."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from planner.plan.portfolio_document import portfolio_schema
from tests.conftest import ROOT, chat
from tests.planner.cli.conftest import Command
from tests.planner.cli.test_report import titles_of
from tests.planner.cli.test_shared_quota import ZONES as BUSY_TOGETHER
from tests.planner.cli.test_shared_quota import record as record_quotas
from tests.planner.render.html.reading import (
    Opened,
    by_name,
    cells,
    read_html,
    read_xml,
    words,
)
from tests.planner.render.test_token_cost import table_rows
from tests.planner.test_workload_portfolio import record, write

ZONES = {
    "europe": "Europe/Berlin",
    "america": "America/Los_Angeles",
    "asia": "Asia/Tokyo",
}
NEVER = chat(extra="buy: {budget: 1}").replace("name: chat", "name: never")
SHORT = chat(
    extra="shutdown: {ttl: 5d}\nwhere: {clouds: [aws]}",
).replace("name: chat", "name: fair")
OWNED = (
    "machines:\n"
    "- {cloud: aws, type: g6e.xlarge, region: us-*, count: 4, usd_hour: 0.9}\n"
)


def of_three_zones(here: Path) -> list[str]:
    return [write(here, name, zone) for name, zone in ZONES.items()]


def of_one_zone(here: Path) -> list[str]:
    return [write(here, name, "UTC") for name in ("one", "two")]


def with_what_is_owned(here: Path) -> list[str]:
    (here / "owned.yaml").write_text(OWNED)
    return [
        write(here, name, "Europe/Berlin", ", owned: owned.yaml")
        for name in ("one", "two")
    ]


def with_a_commitment_of_the_account(here: Path) -> list[str]:
    record(here, 2)
    return [*of_three_zones(here)[:2], "--replay", "facts.json"]


def with_a_quota_that_is_short(here: Path) -> list[str]:
    paths = [write(here, name, zone) for name, zone in BUSY_TOGETHER.items()]
    for path in paths:
        text = (here / path).read_text()
        where = "regions: [us-east-1, us-east-2], accelerators"
        (here / path).write_text(text.replace("accelerators", where))
    record_quotas(here, 32, 32)
    return [*paths, "--replay", "facts.json"]


def with_a_tax(here: Path) -> list[str]:
    (here / "prices.yaml").write_text("tax: 19%\nsupport: 10%\n")
    return [*of_three_zones(here), "--prices", "prices.yaml"]


def with_those_that_share_nothing(here: Path) -> list[str]:
    (here / "never.yaml").write_text(NEVER)
    (here / "fair.yaml").write_text(SHORT)
    night = str(ROOT / "blueprints" / "workspace-night.yaml")
    return [*of_three_zones(here)[:2], "never.yaml", "fair.yaml", night]


def of_nobody(here: Path) -> list[str]:
    (here / "never.yaml").write_text(NEVER)
    (here / "fair.yaml").write_text(SHORT)
    return ["never.yaml", "fair.yaml"]


PORTFOLIOS = pytest.mark.parametrize(
    "portfolio",
    [
        of_three_zones,
        of_one_zone,
        with_what_is_owned,
        with_a_commitment_of_the_account,
        with_a_quota_that_is_short,
        with_a_tax,
        with_those_that_share_nothing,
        of_nobody,
    ],
)


def document_of(tonnage: Command, specs: list[str]) -> dict[str, Any]:
    _, out, _ = tonnage("plan", "--share", "-f", "json", *specs)
    found: dict[str, Any] = json.loads(out)
    return found


def shared_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        workload
        for workload in document["workloads"]
        if workload["left_out"] is None
    ]


def shown(usd: str) -> str:
    """An amount to the cent, as an accountant writes it."""
    amount = Decimal(usd)
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"


@PORTFOLIOS
def test_the_document_is_valid_and_its_parts_add_up_to_the_cent(
    tonnage: Command, here: Path, portfolio
) -> None:
    document = document_of(tonnage, portfolio(here))
    jsonschema.Draft202012Validator(portfolio_schema()).validate(document)
    shared = shared_in(document)
    total = document["total"]
    for side in ("alone", "together"):
        assert sum(Decimal(own[side]["usd"]) for own in shared) == Decimal(
            total[side]["usd"]
        )
    saved = Decimal(total["alone"]["usd"]) - Decimal(total["together"]["usd"])
    assert saved == Decimal(total["saved_usd"])
    parts = [part for place in document["places"] for part in place["shares"]]
    for own in shared:
        alone, together = (
            Decimal(own[side]["usd"]) for side in ("alone", "together")
        )
        assert alone - together == Decimal(own["saved_usd"])
        assert Decimal(own["saved_usd"]) == sum(
            Decimal(part["saved_usd"])
            for part in parts
            if part["workload"] == own["name"]
        )
    assert {part["workload"] for part in parts} <= {
        own["name"] for own in shared
    }


@PORTFOLIOS
def test_what_each_costs_alone_is_what_a_plan_of_it_costs(
    tonnage: Command, here: Path, portfolio
) -> None:
    """But for those that a quota keeps from their cheapest fleet."""
    words_given = portfolio(here)
    document = document_of(tonnage, words_given)
    flags = [
        word
        for number, word in enumerate(words_given)
        if word.startswith("--") or words_given[number - 1].startswith("--")
    ]
    costs = []
    for own in document["workloads"]:
        _, out, _ = tonnage("plan", own["path"], "-f", "json", *flags)
        plan = json.loads(out)
        assert own["name"] == plan["workload"]["name"]
        assert own["kind"] == plan["workload"]["kind"]
        assert (own["alone"] is None) == (not plan["solution"]["pools"])
        usd = own["alone"]["usd"] if own["alone"] else "0"
        costs.append((Decimal(usd), Decimal(plan["cost"]["total"])))
    quotas = document["quotas"]
    if quotas is None or not quotas["short"]:
        assert all(usd == alone for usd, alone in costs)
        return
    assert Decimal(quotas["usd"]) == sum(usd for usd, _ in costs)
    assert Decimal(quotas["usd_unbound"]) == sum(alone for _, alone in costs)
    assert Decimal(quotas["usd"]) >= Decimal(quotas["bound_usd"])


@PORTFOLIOS
def test_the_page_and_the_report_have_the_figures_of_the_document(
    tonnage: Command, here: Path, portfolio
) -> None:
    specs = portfolio(here)
    document = document_of(tonnage, specs)
    flags = ("plan", "--share", *specs)
    code, page, _ = tonnage(*flags, "-f", "markdown")
    rows = {row["service"]: row for row in table_rows(page, "$/mo together")}
    entries = {own["name"]: own for own in shared_in(document)}
    assert list(rows) == [*entries, "all"] or not entries
    for name, own in (*entries.items(), ("all", document["total"])):
        for side in ("alone", "together"):
            assert rows[name][f"$/mo {side}"] == shown(own[side]["usd"])
    for name, own in entries.items():
        for pool in own["fleet"]:
            machines = f"{pool['nodes']} x {pool['instance_type']}"
            assert machines in rows[name]["machines"]
    report_code, report, _ = tonnage(*flags, "-f", "html")
    assert report_code == code
    tree = read_html(report)
    assert words(tree) == words(read_xml(report))
    assert cells(by_name(tree, "table")[0]) == [
        *(cell for cell in next(iter(rows.values()))),
        *(cell for row in rows.values() for cell in row.values() if cell),
    ]
    text = tonnage(*flags)[1]
    # What stands below the table is the same sentences.
    said = " ".join(text.split())
    below = [
        words(sentence)
        for section in by_name(tree, "section")
        for sentence in by_name(section, "p")
    ]
    assert all(sentence in said for sentence in below)
    places = [
        (
            str(place["peak_nodes"]),
            *(
                str(place[f"{way}_nodes"])
                for way in ("owned", "committed", "on_demand")
            ),
            shown(place["alone_usd"]),
            shown(place["together_usd"]),
        )
        for place in document["places"]
    ]
    tables = [cells(table) for table in by_name(tree, "table")[1:]]
    width = len(places[0]) + 2 if places else 1
    assert [
        tuple(table[start + 2 : start + width])
        for table in tables
        for start in range(width, len(table), width)
    ] == places
    assert all(name in said for name in entries)


def test_a_report_loads_nothing_and_runs_nothing(
    tonnage: Command, here: Path
) -> None:
    specs = with_a_quota_that_is_short(here)
    _, report, _ = tonnage("plan", "--share", *specs, "-f", "html")
    assert titles_of(report) == [
        "What each pays",
        "What they share",
        "What the quotas of the account do not allow",
    ]
    for tag, attributes in Opened(report).tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "form"}
        assert not any(key.startswith("on") for key in attributes)
        href = attributes.get("href") or "#"
        assert href.startswith("#")
    targets = {
        link.attrib["href"].removeprefix("#")
        for link in by_name(read_html(report), "a")
    }
    assert targets <= {
        element.attrib.get("id") for element in read_html(report).iter()
    }


def test_equal_inputs_give_equal_bytes_whenever_that_is(
    tonnage: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = of_three_zones(here)
    for output_format in ("json", "html"):
        answers = set()
        for day in (1, 400):
            monkeypatch.setenv(
                "SOURCE_DATE_EPOCH", str(1_795_305_600 + day * 86_400)
            )
            answers.add(
                tonnage("plan", "--share", *specs, "-f", output_format)[1]
            )
        assert len(answers) == 1


def test_the_order_of_the_specs_is_that_of_the_workloads_and_nothing_else(
    tonnage: Command, here: Path
) -> None:
    specs = of_three_zones(here)
    there, back = (
        document_of(tonnage, order) for order in (specs, specs[::-1])
    )
    assert there["workloads"] == back.pop("workloads")[::-1]
    del there["workloads"]
    assert there == back


def test_what_is_left_out_says_why(tonnage: Command, here: Path) -> None:
    specs = with_those_that_share_nothing(here)
    code, out, _ = tonnage("plan", "--share", "-f", "json", *specs)
    document = json.loads(out)
    # One that nothing meets decides the exit code.
    assert (code, document["status"], document["gap_usd"]) == (
        10,
        "infeasible",
        None,
    )
    reasons = {own["name"]: own["left_out"] for own in document["workloads"]}
    assert reasons == {
        "europe": None,
        "america": None,
        "never": "no_fleet",
        "fair": "ends",
        "workspace-night": "no_service",
    }
    said = " ".join(tonnage("plan", "--share", *specs)[1].split())
    assert "never (nothing meets it), fair (ends by itself)" in said
    assert "workspace-night (no service)" in said


def test_a_quota_that_is_short_is_told_with_its_proof(
    tonnage: Command, here: Path
) -> None:
    document = document_of(tonnage, with_a_quota_that_is_short(here))
    assert (document["status"], document["gap_usd"]) == ("optimal", "0")
    [quota] = document["quotas"]["short"]
    assert quota == {
        "provider": "aws",
        "region": "us-east-1",
        "purchase": "on_demand",
        "quota": "L-1",
        "needed": quota["needed"],
        "left": 32,
        "next_step": f"tonnage quota request aws us-east-1 L-1 {quota['needed']}",
    }
    assert quota["needed"] > 32
    # Nobody asked an account here.
    assert document_of(tonnage, of_three_zones(here))["quotas"] is None


def test_o_saves_the_document_beside_the_page_and_the_report(
    tonnage: Command, here: Path
) -> None:
    specs = of_one_zone(here)
    flags = ("plan", "--share", *specs)
    _, document, _ = tonnage(*flags, "-f", "json")
    for output_format in ("json", "text", "html"):
        _, alone, _ = tonnage(*flags, "-f", output_format)
        path = here / f"{output_format}.json"
        code, out, _ = tonnage(*flags, "-f", output_format, "-o", path.name)
        assert code == 0
        assert path.read_text() == document
        assert out == ("" if output_format == "json" else alone)
    # What is applied is a plan.
    code, _, told = tonnage("apply", "json.json", "--simulate", "--yes")
    assert code == 2
    assert "error[plan]" in told
    assert "next: " in told
    for spec in specs:
        code, _, told = tonnage(*flags, "-o", spec)
        assert (code, "would replace the spec" in told) == (2, True)


def test_the_schema_is_printed_and_refuses_what_it_does_not_name(
    tonnage: Command, here: Path
) -> None:
    code, out, _ = tonnage("schema", "portfolio")
    assert (code, json.loads(out)) == (0, portfolio_schema())
    document = document_of(tonnage, of_one_zone(here))
    validator = jsonschema.Draft202012Validator(portfolio_schema())
    assert validator.is_valid(document)
    assert document["schema"] == "tonnage.portfolio/1"
    for wrong in (
        document | {"surprise": 1},
        document | {"status": "splendid"},
        document | {"total": None},
        {key: value for key, value in document.items() if key != "places"},
    ):
        assert not validator.is_valid(wrong)


def small_services(here: Path) -> list[str]:
    paths = []
    for name, model in (
        ("small", "llama-3.2-3b"),
        ("rerank", "llama-3.2-1b"),
        ("embed", "qwen2.5-3b"),
    ):
        path = here / f"{name}.yaml"
        path.write_text(
            chat(
                model,
                traffic="peak_rps: 0.2",
                extra="where: {clouds: [aws]}\nbuy: {spot: never}",
            ).replace("name: chat", f"name: {name}")
        )
        paths.append(path.name)
    return paths


def test_services_that_would_share_accelerators_are_named(
    tonnage: Command, here: Path
) -> None:
    specs = small_services(here)
    document = document_of(tonnage, specs)
    jsonschema.validate(document, portfolio_schema())
    [group] = document["one_fleets"]
    assert group["workloads"] == ["embed", "rerank", "small"]
    apart = sum(Decimal(each["alone"]["usd"]) for each in document["workloads"])
    assert Decimal(group["apart_usd"]) == apart
    assert apart - Decimal(group["usd"]) == Decimal(group["saved_usd"]) > 0
    # No bill counts on what the specs do not say.
    assert Decimal(document["total"]["together"]["usd"]) == apart
    _, page, _ = tonnage("plan", "--share", *specs)
    told = " ".join(page.split())
    assert "name rerank, small in serving.beside of embed" in told
    # What is told is what a plan says of it.
    (here / "host.yaml").write_text(
        (here / "embed.yaml").read_text()
        + "\nserving: {beside: [rerank.yaml, small.yaml]}\n"
    )
    _, out, _ = tonnage("plan", "host.yaml", "-f", "json")
    assert json.loads(out)["cost"]["total"] == group["usd"]


@pytest.mark.parametrize(("left_usd", "code"), [("1", 0), ("-1", 5)])
def test_a_budget_is_held_against_what_services_pay_together(
    tonnage: Command, here: Path, left_usd: str, code: int
) -> None:
    """Alone they pay more than what the first budget lets them."""
    specs = of_three_zones(here)
    total = document_of(tonnage, specs)["total"]
    together = Decimal(total["together"]["usd"])
    assert Decimal(total["alone"]["usd"]) > together + 1
    limit = together + Decimal(left_usd)
    (here / "budgets.yaml").write_text(f"budgets: [{{limit: {limit}/month}}]\n")
    found, _, err = tonnage(
        "plan", "--share", *specs, "--budgets", "budgets.yaml"
    )
    assert found == code, err
