"""Reports in a real browser: nothing is asked for, nothing is refused, everybody can read them.

They need playwright (the dependency group browser) and chromium on PATH: `make browser-test`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.render.html.report import plan_report, portfolio_report
from planner.render.html.sharing import sharing_report
from tests import browsing
from tests.browsing import NARROW, SCHEMES, WIDE, browser, opened
from tests.planner.render.html.conftest import blueprint_view, two_coasts

__all__ = ("browser",)

pytestmark = browsing.NEEDS
REPORTS = {
    "chat": lambda: plan_report(blueprint_view("chat-8b")),
    "run": lambda: plan_report(blueprint_view("pretrain-7b")),
    "several": lambda: portfolio_report(
        [blueprint_view(name) for name in ("chat-8b", "workspace-night")]
    ),
    "sharing": lambda: sharing_report(two_coasts()),
}


@pytest.fixture(scope="module", params=REPORTS)
def path(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    report = folder / f"{request.param}.html"
    report.write_text(REPORTS[request.param](), encoding="utf-8")
    return report


def test_it_asks_for_nothing_and_the_policy_refuses_nothing(
    browser, path
) -> None:
    page, said = opened(browser, path.as_uri())
    page.wait_for_load_state("networkidle")
    assert said == [path.as_uri()]
    # The style that the policy allows is the one that is used.
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_page_is_wider_than_its_window(browser, path, width) -> None:
    page, _ = opened(browser, path.as_uri(), width)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_night_has_other_colors(browser, path) -> None:
    papers = {
        opened(browser, path.as_uri(), scheme=scheme)[0].evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in SCHEMES
    }
    assert len(papers) == len(SCHEMES)


def test_print_shows_every_table(browser, path) -> None:
    page, _ = opened(browser, path.as_uri())
    hidden = """() => [...document.querySelectorAll("table")].filter(
        table => !table.checkVisibility({contentVisibilityAuto: true})).length"""
    assert page.evaluate(hidden) > 0
    page.emulate_media(media="print")
    assert page.evaluate(hidden) == 0


def test_keys_reach_every_part_that_scrolls(browser, path) -> None:
    page, _ = opened(browser, path.as_uri(), NARROW)
    missed = page.evaluate("""() => [...document.querySelectorAll("*")].filter(
        part => part.scrollWidth > part.clientWidth + 1
        && getComputedStyle(part).overflowX === "auto" && part.tabIndex !== 0
    ).length""")
    assert missed == 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_axe_finds_nothing(browser, path, width, scheme) -> None:
    page, _ = opened(browser, path.as_uri(), width, scheme)
    browsing.assert_readable(page)


def test_the_picture_in_the_docs(browser, path, updates_golden) -> None:
    """It is taken anew where stored files are written anew."""
    if path.stem != "chat" or not updates_golden:
        pytest.skip("only with --update-golden, of the report of a service")
    page, _ = opened(browser, path.as_uri(), browsing.PICTURE_WIDTH)
    browsing.take_picture(page, "report", height=1100)
