"""What anybody wrote does nothing to a terminal, to a pipeline, or to a secret."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.render import markdown, text
from planner.render.clean import clean, without_secrets
from planner.render.page import PageTable, Paragraph

# How GitHub's runner and Azure Pipelines find commands.
COMMANDS = re.compile(r"^\s*::|##\[|##vso\[|^\s*##teamcity\[", re.MULTILINE)


def is_safe(shown: str) -> bool:
    codes = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    hidden = [
        letter
        for letter in codes
        if letter not in "\n\t" and unicodedata.category(letter)[0] == "C"
    ]
    return not hidden and not COMMANDS.search(codes)


@given(st.text())
@example("::error::x")
@example("  ::set-output name=a::b")
@example("a\n::stop-commands::x")
@example("x ##[command]ls ##vso[task.setvariable]y")
@example("##teamcity[x]")
@example("\x1b]0;title\x07\x1b[2J")
@example("safe \u202etxt.exe")
@example("\x1b[31mred\x1b[0m")
@example("::\u200e:: ::")
@example("\x00::error::")
def test_whatever_comes_in_what_comes_out_is_safe(written: str) -> None:
    for shown in (
        clean(written),
        text.render((Paragraph(written), PageTable(("a",), ((written,),)))),
        markdown.render((Paragraph(written),)),
    ):
        assert is_safe(shown)


@given(st.text(st.characters(categories=["L", "N", "Zs", "Po", "Sm"])))
def test_plain_text_stays_as_it_is(written: str) -> None:
    if COMMANDS.search(written) or "?" in written or "&" in written:
        return
    if "://" in written:
        return
    assert clean(written) == written


@pytest.mark.parametrize(
    "written",
    [
        "proxy http://user:hunter2@proxy.example:8080 refused",
        "https://user:hunter2@example.com/x",
        "s3://key:hunter2@bucket",
        "https://acc.blob.core.windows.net/c?sv=1&sig=hunter2&x=1",
        "s3://b/k?X-Amz-Signature=hunter2",
        "https://b/k?X-Amz-Security-Token=hunter2",
        "https://b/k?access_key=hunter2",
        "https://b/k?PASSWORD=hunter2'",
    ],
)
def test_secrets_of_urls_are_not_shown(written: str) -> None:
    assert "hunter2" not in clean(written)
    assert "hunter2" not in without_secrets(written)


def test_what_is_no_secret_is_shown() -> None:
    for written in (
        "abfss://container@account.dfs.core.windows.net/x",
        "mailto:team@example.com",
        "s3://bucket/folder?region=us-east-1",
        "12:30 on 2026-11-23",
    ):
        assert clean(written) == written
