"""A real browser: its pages, what axe-core finds on them, and pictures of them for the docs.

It needs playwright (the dependency group browser) and chromium on PATH: `make browser-test`.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import ROOT

CHROMIUM: Final = shutil.which("chromium") or shutil.which("google-chrome")
NEEDS: Final = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="playwright is not installed, or chromium is not on PATH",
)
NARROW, WIDE = 360, 1200
SCHEMES: Final = ("light", "dark")
PICTURES: Final = ROOT / "docs" / "images"
PICTURE_WIDTH: Final = 1000
PICTURE_COLORS: Final = 48
MOST_PICTURE_BYTES: Final = 150_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of a module."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


def opened(
    browser: Any,
    address: str,
    width: int = WIDE,
    scheme: str = "light",
    **settings: Any,
) -> tuple[Any, list[str]]:
    """A page, and what it asked for and said."""
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
        **settings,
    )
    page = context.new_page()
    said: list[str] = []
    page.on("request", lambda request: said.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    return page, said


def assert_readable(page: Any) -> None:
    """Nothing of what axe-core knows of keeps anybody from reading a page."""
    package = pytest.importorskip("axe_playwright_python")
    script = Path(package.__file__).parent / "axe.min.js"
    page.evaluate(script.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    assert found["violations"] == []
    assert len(found["passes"]) > 10


def take_picture(page: Any, name: str, height: int) -> None:
    """Write a picture for the docs, in few colors: equal pages give equal bytes."""
    from PIL import Image

    page.mouse.move(0, 0)
    page.set_viewport_size(
        {"width": page.viewport_size["width"], "height": height}
    )
    shot = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
    PICTURES.mkdir(exist_ok=True)
    shot.convert("RGB").quantize(PICTURE_COLORS, dither=Image.Dither.NONE).save(
        PICTURES / f"{name}.png", optimize=True
    )
