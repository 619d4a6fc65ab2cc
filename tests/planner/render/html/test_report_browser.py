"""Reports in a real browser: nothing is asked for, nothing is refused, everybody can read them.

They need playwright (the dependency group browser) and chromium on PATH: `make browser-test`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.render.html.report import plan_report, portfolio_report
from tests.planner.render.html.conftest import blueprint_view

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not on PATH"
)
NARROW, WIDE = 360, 1200
SCHEMES = ("light", "dark")
REPORTS = {
    "chat": lambda: plan_report(blueprint_view("chat-8b")),
    "run": lambda: plan_report(blueprint_view("pretrain-7b")),
    "several": lambda: portfolio_report(
        [blueprint_view(name) for name in ("chat-8b", "workspace-night")]
    ),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module", params=REPORTS)
def path(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    report = folder / f"{request.param}.html"
    report.write_text(REPORTS[request.param](), encoding="utf-8")
    return report


def opened(browser, path: Path, width: int = WIDE, scheme: str = "light"):
    """A page with the report, and what it asked for and said."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    page = context.new_page()
    said: list[str] = []
    page.on("request", lambda request: said.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    return page, said


def test_it_asks_for_nothing_and_the_policy_refuses_nothing(
    browser, path
) -> None:
    page, said = opened(browser, path)
    page.wait_for_load_state("networkidle")
    assert said == [path.as_uri()]
    # The style that the policy allows is the one that is used.
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_page_is_wider_than_its_window(browser, path, width) -> None:
    page, _ = opened(browser, path, width)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_night_has_other_colors(browser, path) -> None:
    papers = {
        opened(browser, path, scheme=scheme)[0].evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in SCHEMES
    }
    assert len(papers) == len(SCHEMES)


def test_print_shows_every_table(browser, path) -> None:
    page, _ = opened(browser, path)
    hidden = """() => [...document.querySelectorAll("table")].filter(
        table => !table.checkVisibility({contentVisibilityAuto: true})).length"""
    assert page.evaluate(hidden) > 0
    page.emulate_media(media="print")
    assert page.evaluate(hidden) == 0


def test_keys_reach_every_part_that_scrolls(browser, path) -> None:
    page, _ = opened(browser, path, NARROW)
    missed = page.evaluate("""() => [...document.querySelectorAll("*")].filter(
        part => part.scrollWidth > part.clientWidth + 1
        && getComputedStyle(part).overflowX === "auto" && part.tabIndex !== 0
    ).length""")
    assert missed == 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_axe_finds_nothing(browser, path, width, scheme) -> None:
    package = pytest.importorskip("axe_playwright_python")
    script = Path(package.__file__).parent / "axe.min.js"
    page, _ = opened(browser, path, width, scheme)
    page.evaluate(script.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    assert found["violations"] == []
    assert len(found["passes"]) > 20
