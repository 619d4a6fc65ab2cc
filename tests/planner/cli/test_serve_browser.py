"""Pages of a real server in a real browser: what they ask for, how they read, what moves them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import browsing
from tests.browsing import NARROW, SCHEMES, WIDE, browser, opened
from tests.conftest import BLUEPRINTS
from tests.planner.cli.served.conftest import BROKEN, HOSTILE, TOO_LARGE
from tests.planner.cli.test_serve import serving

__all__ = ("browser",)

pytestmark = browsing.NEEDS
SHOWN = ("chat-8b", "lora-8b", "workspace-night")
PAGES = {
    "folder": "/",
    "report": "/spec/chat-8b.yaml",
    "question": "/what-if/chat-8b.yaml?traffic=2&confidence=95",
    "difference": "/diff?from=chat-8b.yaml&to=busy.yaml",
    "stacks": "/stacks",
}
DECISION = "#answer h2"
# No answer is on its way.
RESTS = "!document.querySelector('[aria-busy]')"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[str]:
    """The address of a server of a folder that has all sorts of specs."""
    folder = tmp_path_factory.mktemp("site") / "specs"
    folder.mkdir()
    for path in BLUEPRINTS:
        if path.stem in SHOWN:
            (folder / path.name).write_text(path.read_text())
    text = (folder / "chat-8b.yaml").read_text()
    busy = re.sub(r"peak_rps: \S+", "peak_rps: 40", text)
    (folder / "busy.yaml").write_text(busy)
    (folder / "broken.yaml").write_text(BROKEN)
    (folder / HOSTILE).write_text(TOO_LARGE)
    with serving(folder, "--port", "0", "--simulate") as (_, port):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("name", PAGES)
def test_it_asks_its_own_server_alone_and_nothing_is_refused(
    browser: Any, site: str, name: str
) -> None:
    page, said = opened(browser, site + PAGES[name])
    page.wait_for_load_state("networkidle")
    assert said[0] == site + PAGES[name]
    assert set(said[1:]) <= {
        f"{site}/assets/{asset}"
        for asset in ("serve.css", "serve.js", "icon.svg")
    }
    # The style that the policy allows is the one that is used.
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"
    assert page.context.cookies() == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("name", PAGES)
def test_it_fits_its_window_and_axe_finds_nothing(
    browser: Any, site: str, name: str, width: int, scheme: str
) -> None:
    page, _ = opened(browser, site + PAGES[name], width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    browsing.assert_readable(page)


def test_a_night_has_other_colors(browser: Any, site: str) -> None:
    papers = {
        opened(browser, site, scheme=scheme)[0].evaluate(
            "getComputedStyle(document.body).backgroundColor"
        )
        for scheme in SCHEMES
    }
    assert len(papers) == len(SCHEMES)


def test_names_that_people_write_stay_text(browser: Any, site: str) -> None:
    page, said = opened(browser, site)
    link = page.get_by_role("link", name=HOSTILE, exact=True)
    link.click()
    page.wait_for_load_state("networkidle")
    assert HOSTILE in page.locator("main, header").all_inner_texts()[0]
    assert page.locator("script").count() == 0
    assert not [text for text in said if "alert" in text and "spec" not in text]


def test_a_slider_is_moved_by_keys_and_answers_in_place(
    browser: Any, site: str
) -> None:
    page, _ = opened(browser, f"{site}/what-if/chat-8b.yaml")
    slider = page.get_by_label("traffic, times peak_rps")
    slider.focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        f"() => {RESTS} && location.search.includes('traffic=4&')"
    )
    assert "instead of $" in page.locator(DECISION).inner_text()
    # The page is the same one: the slider keeps the keys, and says where it is.
    assert page.evaluate("document.activeElement.name") == "traffic"
    assert page.locator("[id='slider-traffic-shown']").inner_text() == "4 x"
    assert "traffic=4" in page.url
    assert (
        "--set traffic.peak_rps=4" in page.locator("#answer pre").inner_text()
    )
    # Who gets the address sees the same.
    shown = page.locator("#answer").inner_text()
    again, _ = opened(browser, page.url)
    assert again.locator("#answer").inner_text() == shown


def test_a_slider_on_its_way_asks_once_it_rests(
    browser: Any, site: str
) -> None:
    page, said = opened(browser, f"{site}/what-if/chat-8b.yaml")
    page.get_by_label("confidence in the predictions").evaluate(
        """slider => {
            for (let place = 51; place < 80; place += 1) {
                slider.value = place;
                slider.dispatchEvent(new Event("input", {bubbles: true}));
            }
        }"""
    )
    page.wait_for_function(
        f"() => {RESTS} && location.search.includes('confidence=79')"
    )
    asked = [text for text in said if "/what-if/" in text]
    assert len(asked) == 2


def test_keys_reach_everything_that_acts(browser: Any, site: str) -> None:
    page, _ = opened(browser, f"{site}/what-if/chat-8b.yaml")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.name || document.activeElement.tagName"
            )
        )
    assert {
        "traffic",
        "sla.ttft_p95",
        "confidence",
        "spot",
        "commit",
        "BUTTON",
        "A",
    } <= reached


def test_a_form_works_without_its_script(browser: Any, site: str) -> None:
    page, said = opened(
        browser, f"{site}/what-if/chat-8b.yaml", java_script_enabled=False
    )
    page.get_by_label("confidence in the predictions").fill("99")
    page.get_by_label("machines on spot").select_option("never")
    page.get_by_role("button", name="Plan it").click()
    assert "confidence=99" in page.url
    shown = page.locator("#answer pre").inner_text()
    assert shown == (
        "tonnage plan chat-8b.yaml --set buy.spot=never --confidence 99"
    )
    assert not [text for text in said if not text.startswith(site)]


def test_it_says_when_the_server_is_gone(browser: Any, site: str) -> None:
    page, _ = opened(browser, f"{site}/what-if/chat-8b.yaml")
    page.context.set_offline(True)
    page.get_by_label("confidence in the predictions").fill("80")
    page.get_by_text("The server does not answer.").wait_for()


PICTURED = (
    ("serve", "/", browsing.PICTURE_WIDTH, "light", 800),
    ("what-if", "/what-if/chat-8b.yaml?traffic=4", 1000, "light", 900),
    ("what-if-dark", "/what-if/chat-8b.yaml?traffic=4", NARROW, "dark", 760),
)


@pytest.mark.parametrize(
    ("name", "address", "width", "scheme", "height"), PICTURED
)
def test_the_pictures_in_the_docs(
    browser: Any,
    tmp_path: Path,
    updates_golden: bool,
    name: str,
    address: str,
    width: int,
    scheme: str,
    height: int,
) -> None:
    """They are taken anew where stored files are written anew."""
    if not updates_golden:
        pytest.skip("only with --update-golden")
    folder = tmp_path / "specs"
    folder.mkdir()
    for path in BLUEPRINTS:
        if path.stem in (*SHOWN, "summarize-batch"):
            (folder / path.name).write_text(path.read_text())
    text = (folder / "lora-8b.yaml").read_text()
    (folder / "draft.yaml").write_text(text.replace("deadline", "dead_line"))
    with serving(folder, "--port", "0", "--simulate") as (_, port):
        page, _ = opened(
            browser, f"http://127.0.0.1:{port}{address}", width, scheme
        )
        browsing.take_picture(page, name, height)
