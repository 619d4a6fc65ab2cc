"""The docs cannot rot: what they show is what the program does, and nothing is left out."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from planner.cli import reference
from planner.cli.buying_page import buying_page
from planner.cli.cloud_page import cloud_page
from planner.cli.live_page import live_page
from planner.cli.main import COMMANDS, cli
from planner.facts.cloud import clouds
from planner.facts.rule import EVERY_CLOUD, rules
from planner.plan.canonical import plan_schema
from planner.spec.kinds import SPEC_KINDS
from tests.conftest import BLUEPRINTS, ROOT, present, untimed

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# Blueprints whose ways to buy are compared: a workspace has one way.
BOUGHT = [
    path for path in BLUEPRINTS if "kind: Workspace" not in path.read_text()
]
# Pages with commands that need an extra.
NEEDS = {"policy.md": "cel"}
SHOWN = re.compile(r"```console\n(.*?)```", re.DOTALL)


def sessions(text: str) -> list[list[tuple[str, str]]]:
    """The console blocks of a page: commands, each with the output that is shown."""
    found = []
    for block in SHOWN.findall(text):
        parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
        found.append(list(zip(parts[1::2], parts[2::2], strict=True)))
    return found


def elided(shown: str, real: str) -> bool:
    """Whether the output is the one shown; a line of ... stands for any lines."""
    pattern = "".join(
        "(?:.*\n)*?" if line.strip() == "..." else re.escape(line + "\n")
        for line in shown.splitlines()
    )
    return re.fullmatch(pattern, real) is not None


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_in_the_docs_give_the_output_that_is_shown(
    tonnage, here: Path, path: Path, updates_golden: bool
) -> None:
    if path.name in NEEDS:
        pytest.importorskip(NEEDS[path.name])
    text = path.read_text()
    # Files of the project that a command names.
    (here / "blueprints").symlink_to(ROOT / "blueprints")
    for session in sessions(text):
        for command, shown in session:
            words = shlex.split(command)
            if words[0] == "cat":
                # A file that a page shows is the one that its commands read.
                (here / words[1]).write_text(shown)
                continue
            assert words[0] == "tonnage", (
                f"only tonnage can be checked: {command}"
            )
            _, out, err = tonnage(*words[1:])
            # Progress comes before the result; how long a search takes differs.
            real = untimed(err) + out
            if (
                updates_golden
                and not elided(shown, real)
                and "..." not in shown.split("\n")
            ):
                text = text.replace(
                    f"$ {command}\n{shown}", f"$ {command}\n{real}"
                )
                path.write_text(text)
                continue
            assert elided(shown, real), f"{path.name}: $ {command}\n{real}"


def test_the_reference_pages_are_those_that_the_program_writes() -> None:
    assert (DOCS / "commands.md").read_text() == reference.commands_page()
    assert (DOCS / "spec.md").read_text() == reference.spec_page()
    assert (DOCS / "files.md").read_text() == reference.files_page()
    assert (DOCS / "live.md").read_text() == live_page()
    assert (DOCS / "plan-document.md").read_text() == reference.plan_page()
    assert (
        DOCS / "diff-document.md"
    ).read_text() == reference.difference_page()
    assert (
        DOCS / "portfolio-document.md"
    ).read_text() == reference.portfolio_document_page()
    assert (DOCS / "error-document.md").read_text() == reference.error_page()


def test_the_ways_to_buy_are_told_of_every_workload_but_workspaces() -> None:
    told = re.findall(
        r"^[\w.-]+, `blueprints/(.*)`$",
        (DOCS / "buying.md").read_text(),
        re.MULTILINE,
    )
    assert told == [path.name for path in BOUGHT]


@pytest.mark.parametrize("blueprint", BOUGHT, ids=lambda path: path.stem)
def test_the_ways_to_buy_are_those_that_the_program_finds(
    blueprint: Path, tmp_path: Path
) -> None:
    """The page is what it would be of one blueprint, for each of them."""
    shutil.copy(blueprint, tmp_path)
    shutil.copytree(
        ROOT / "blueprints" / "on-premises", tmp_path / "on-premises"
    )
    intro, *sections = (DOCS / "buying.md").read_text().split("\n## ")
    page = buying_page(tmp_path)
    assert page.startswith(f"{intro}\n## ")
    assert page.removeprefix(f"{intro}\n## ").rstrip("\n") in {
        section.rstrip("\n") for section in sections
    }


@pytest.mark.parametrize("cloud", clouds())
def test_the_page_of_a_cloud_is_the_one_that_the_tables_give(
    cloud: str,
) -> None:
    """And names every rule that binds the cloud."""
    page = (DOCS / "clouds" / f"{cloud}.md").read_text()
    assert page == cloud_page(cloud)
    for rule in rules().values():
        if rule.cloud in (EVERY_CLOUD, cloud):
            assert f"`{rule.id}`" in page


def test_what_one_run_teaches_is_what_was_scored() -> None:
    scored = (DOCS / "accuracy.md").read_text()
    groups, before, after = present(
        re.search(
            r"\| all (\d+) groups \| (.+ %) \| (.+ %) \| \d+ % \|", scored
        )
    ).groups()
    told = " ".join((DOCS / "calibrate.md").read_text().split())
    assert (
        f"In {groups} groups of published runs one of them brought the mean error of the others "
        f"from {before} to {after}." in told
    )


def test_every_flag_and_every_key_has_a_line() -> None:
    context = click.Context(cli)
    page = (DOCS / "commands.md").read_text()
    for name in COMMANDS:
        for parameter in present(cli.get_command(context, name)).params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts} has no help"
                assert parameter.opts[-1] in page
    keys = (DOCS / "spec.md").read_text()
    for block in SPEC_KINDS.values():
        for field in block.fields:
            assert field.doc
            assert f"`{field.name}`" in keys


def test_every_field_of_a_plan_says_what_it_means() -> None:
    for part_name, part in plan_schema()["$defs"].items():
        for field_name, field in part["properties"].items():
            unexplained = "description" not in field and "$ref" not in field
            assert not unexplained, (part_name, field_name)


def test_every_exit_code_has_a_line() -> None:
    from planner.errors import TonnageError

    page = (DOCS / "exit-codes.md").read_text()

    def below(kind):
        return {kind, *(s for c in kind.__subclasses__() for s in below(c))}

    for code in {kind.exit_code for kind in below(TonnageError)} | {0, 8, 20}:
        assert f"| {code} |" in page


def test_every_blueprint_begins_with_what_it_is_for() -> None:
    for path in BLUEPRINTS:
        lines = path.read_text().splitlines()
        assert lines[0].startswith("# yaml-language-server: $schema=")
        assert lines[1].startswith("# ")
        assert lines[1].endswith(".")
        assert len([x for x in lines if x.startswith("#")]) >= 4


def test_links_between_pages_lead_somewhere() -> None:
    for path in [
        *PAGES,
        ROOT / "CONTRIBUTING.md",
        *(DOCS / "decisions").glob("*.md"),
    ]:
        for target in re.findall(
            r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()
        ):
            assert (path.parent / target).exists(), f"{path.name} -> {target}"


def test_pictures_say_what_they_show_and_are_small() -> None:
    """Browser tests take them: `make browser-test`, with --update-golden."""
    shown = {}
    for path in PAGES:
        for text, target in re.findall(
            r"!\[([^\]]*)\]\((images/[^)]+)\)", path.read_text()
        ):
            picture = (path.parent / target).resolve()
            shown[picture] = text
            assert len(text.split()) >= 5, f"{path.name}: {target}"
            assert picture.stat().st_size <= 150_000
    assert set(shown) == set((DOCS / "images").resolve().iterdir())
