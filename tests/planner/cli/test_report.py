"""plan, show and review with -f html: one document on standard output, or in a file."""

from __future__ import annotations

import pytest

from tests.conftest import chat
from tests.planner.cli.conftest import Command
from tests.planner.plan.actual.conftest import focus_bytes, planned_rows
from tests.planner.render.html.reading import by_name, read_html, words


def titles_of(report: str) -> list[str]:
    return [words(title) for title in by_name(read_html(report), "h2")]


def test_plan_writes_the_report_and_saves_the_plan(
    tonnage: Command, here
) -> None:
    (here / "chat.yaml").write_text(chat())
    code, report, _ = tonnage(
        "plan", "chat.yaml", "-f", "html", "-o", "chat.plan.json"
    )
    assert code == 0
    assert "At other loads" in titles_of(report)
    assert tonnage("show", "chat.plan.json")[0] == 0


def test_a_report_has_no_clock(
    tonnage: Command, here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal specs give equal bytes, whenever that is."""
    (here / "chat.yaml").write_text(chat())
    reports = set()
    for day in (1, 400):
        monkeypatch.setenv(
            "SOURCE_DATE_EPOCH", str(1_795_305_600 + day * 86_400)
        )
        reports.add(tonnage("plan", "chat.yaml", "-f", "html")[1])
    assert len(reports) == 1


def test_several_specs_are_one_document(tonnage: Command, here) -> None:
    for name in ("one", "two"):
        (here / f"{name}.yaml").write_text(
            chat().replace("name: chat", f"name: {name}")
        )
    code, report, _ = tonnage("plan", "one.yaml", "two.yaml", "-f", "html")
    assert (code, titles_of(report)) == (0, ["one", "two"])


def test_a_spec_that_nothing_meets_has_a_report_and_its_exit_code(
    tonnage: Command, here
) -> None:
    (here / "chat.yaml").write_text(chat(extra="buy: {budget: 1}"))
    code, report, _ = tonnage("plan", "chat.yaml", "-f", "html")
    assert code == 10
    assert "INFEASIBLE" in words(read_html(report))


def test_full_draws_other_circumstances_too(tonnage: Command, here) -> None:
    (here / "chat.yaml").write_text(chat())
    report = tonnage("plan", "chat.yaml", "-f", "html", "--full")[1]
    assert "What time and confidence cost" in titles_of(report)
    tree = read_html(report)
    captions = [words(one) for one in by_name(tree, "figcaption")]
    for subject in ("confidence", "sla.ttft_p95", "sla.tpot_p95"):
        assert f"What {subject} costs" in captions
    [swings] = [
        picture
        for picture in by_name(tree, "figure")
        if "other circumstances" in words(picture)
    ]
    assert "traffic" in words(by_name(swings, "table")[0])


def test_a_page_of_one_question_is_no_report(tonnage: Command, here) -> None:
    (here / "chat.yaml").write_text(chat())
    code, _, err = tonnage("plan", "chat.yaml", "--tco", "-f", "html")
    assert (code, "shows a page" in err) == (2, True)


def test_show_writes_the_report_of_a_saved_plan(
    tonnage: Command, saved
) -> None:
    assert tonnage("show", saved.name, "-f", "html", "-o", "r.html")[0] == 0
    titles = titles_of((saved.parent / "r.html").read_text())
    assert titles[0] == "What it does, and what was asked"
    assert titles[-1] == "Where each number is from"


def test_review_writes_planned_beside_paid(tonnage: Command, saved) -> None:
    from planner.plan.canonical import parse_plan

    plan = parse_plan(saved.read_bytes(), "p")
    (saved.parent / "f.csv").write_bytes(focus_bytes(planned_rows(plan)))
    code, report, _ = tonnage(
        "review", saved.name, "--from", "f.csv", "-f", "html"
    )
    assert code == 0
    [picture] = by_name(read_html(report), "figure")
    assert words(by_name(picture, "figcaption")[0]) == (
        "What was paid, beside what was planned"
    )
