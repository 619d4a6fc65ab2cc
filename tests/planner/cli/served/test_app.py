"""Pages: all of them can be read, all that people wrote stays text, and nothing is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.planner.cli.conftest import Command
from tests.planner.cli.served.conftest import (
    HOSTILE,
    Client,
    HereWorkers,
    digests,
)
from tests.planner.render.html.reading import (
    Opened,
    by_name,
    read_html,
    read_xml,
    words,
)

ASKED = "/what-if/chat.yaml?traffic=4&sla.ttft_p95=1000&confidence=95"
PAGES = {
    "/": 200,
    "/spec/chat.yaml": 200,
    "/spec/team/more.yaml": 200,
    "/spec/night.yaml": 200,
    "/spec/broken.yaml": 200,
    f"/spec/{quote(HOSTILE)}": 200,
    "/what-if/chat.yaml": 200,
    f"/what-if/{quote(HOSTILE)}": 200,
    "/what-if/night.yaml?users=5": 200,
    ASKED: 200,
    "/diff": 200,
    "/diff?from=chat.yaml&to=team/more.yaml": 200,
    "/diff?from=chat.yaml&to=broken.yaml": 200,
    "/stacks": 200,
    "/stack/chat": 404,
    "/plan/other.json": 400,
    "/nothing": 404,
    "/assets/nothing": 404,
    "/what-if/chat.yaml?traffic=<b>": 400,
    "/what-if/chat.yaml?traffic=NaN": 400,
    "/what-if/chat.yaml?traffic=5": 400,
    "/what-if/chat.yaml?confidence=90.5": 400,
    "/what-if/chat.yaml?spot=often": 400,
    "/what-if/chat.yaml?commit=9y": 400,
    "/what-if/chat.yaml?sla=1": 400,
    "/diff?from=chat.yaml&to=/etc/passwd": 404,
    "/diff?from=chat.yaml&to=other.json": 400,
}
OUTSIDE = (
    "/spec/../outside.yaml",
    "/spec/%2e%2e/outside.yaml",
    "/spec/..%2foutside.yaml",
    "/spec/team/%2e%2e/chat.yaml",
    "/spec//etc/passwd",
    "/spec/%2fetc%2fpasswd",
    "/spec/link.yaml",
    "/spec/linked/outside.yaml",
    "/spec/.hidden.yaml",
    "/spec/other.yaml",
    "/spec/chat.yaml%00",
    "/plan/../chat.yaml",
    "/what-if/link.yaml",
    "/assets/../serve.js",
    "/assets/%2e%2e%2freport.css",
)


@pytest.mark.parametrize(("address", "status"), PAGES.items())
def test_every_page_is_html_and_xml_and_runs_nothing_of_its_own(
    client: Client, address: str, status: int
) -> None:
    reply = client.get(address)
    assert reply.status_code == status
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    tree = read_html(reply.text)
    assert words(tree) == words(read_xml(reply.text))
    assert len(by_name(tree, "h1")) == 1
    keys = [e.attrib["id"] for e in tree.iter() if "id" in e.attrib]
    assert len(set(keys)) == len(keys)
    for tag, attributes in Opened(reply.text).tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert "style" not in attributes
        assert tag != "style"
        target = attributes.get("href") or attributes.get("src") or "/"
        assert target.startswith(("/", "#"))
        assert not target.startswith("//")
        if tag == "script":
            assert attributes["src"] == "/assets/serve.js"


def test_every_link_leads_to_a_page(client: Client) -> None:
    targets = {
        attributes["href"]
        for address, status in PAGES.items()
        if status == 200
        for tag, attributes in Opened(client.get(address).text).tags
        if tag == "a" and not str(attributes["href"]).startswith("#")
    }
    assert f"/spec/{quote(HOSTILE)}" in targets
    for target in targets:
        # A saved plan that is none has a page of what is wrong with it.
        expected = 400 if target == "/plan/other.json" else 200
        assert client.get(str(target)).status_code == expected, target


@pytest.mark.parametrize("address", OUTSIDE)
def test_no_path_leaves_the_folder(client: Client, address: str) -> None:
    reply = client.get(address)
    assert reply.status_code == 404
    assert "llama" not in reply.text


def test_the_folder_has_each_spec_and_what_is_wrong_with_it(
    client: Client,
) -> None:
    tree = read_html(client.get("/").text)
    rows = {
        words(row[0]): [words(cell) for cell in row]
        for row in by_name(tree, "tr")
        if words(row[0]).endswith((".yaml", ".json"))
    }
    assert set(rows) == {
        "chat.yaml",
        "team/more.yaml",
        "team/desk.yaml",
        "night.yaml",
        "broken.yaml",
        HOSTILE,
        "other.json",
    }
    assert re.fullmatch(r"\$[\d,]+/mo", rows["chat.yaml"][3])
    assert rows["chat.yaml"][4].startswith("meets its limits with 9")
    assert rows[HOSTILE][2:5] == ["nothing meets it", "-", "not met"]
    assert rows["broken.yaml"][2] == "3 problems"
    shown = words(tree)
    assert "broken.yaml:6:11: unknown-key: unknown key 'traffic.peak_rpx'" in (
        shown
    )
    assert "did you mean 'peak_rps'?" in shown
    assert "labels.team cannot be '<b onclick=\"x\">&'" in shown


def test_a_question_is_answered_as_plan_answers_it(
    client: Client, tonnage: Command, here: Path, folder: Path
) -> None:
    reply = client.get(ASKED)
    [shown] = by_name(read_html(reply.text), "pre")
    command = words(shown)
    assert command == (
        "tonnage plan chat.yaml --set traffic.peak_rps=8 "
        "--set sla.ttft_p95=1000ms --confidence 95"
    )
    (here / "chat.yaml").write_text((folder / "chat.yaml").read_text())
    code, out, _ = tonnage(*command.split()[1:], "-f", "json")
    assert code == 0
    cost = float(json.loads(out)["cost"]["total"])
    [decision] = [
        words(e)
        for e in by_name(read_html(reply.text), "h2")
        if e.attrib["id"] == "decision"
    ]
    assert decision.startswith(f"${cost:,.0f} a month, instead of $")
    assert float(reply.headers["server-timing"].split("=")[1]) >= 0


def test_a_question_says_what_it_does_not_change(client: Client) -> None:
    tree = read_html(client.get("/what-if/chat.yaml").text)
    assert "as the spec is written" in words(tree)
    sliders = {
        e.attrib["name"]: e.attrib
        for e in by_name(tree, "input")
        if e.attrib["type"] == "range"
    }
    assert list(sliders) == [
        "traffic",
        "sla.ttft_p95",
        "sla.tpot_p95",
        "confidence",
    ]
    labels = {e.attrib.get("for") for e in by_name(tree, "label")}
    for attributes in sliders.values():
        assert attributes["id"] in labels


def test_a_question_that_contradicts_itself_says_so(client: Client) -> None:
    page = client.get("/what-if/night.yaml?spot=only&commit=1y").text
    [answer] = by_name(read_html(page), "section")
    assert words(answer).startswith("no plan --set buy.spot:1:1: spot-commit: ")


def test_two_files_are_compared_as_diff_compares_them(
    client: Client, tonnage: Command, here: Path, folder: Path
) -> None:
    for path in ("night.yaml", "team/desk.yaml"):
        (here / path).parent.mkdir(exist_ok=True)
        (here / path).write_text((folder / path).read_text())
    _, out, _ = tonnage("diff", "night.yaml", "team/desk.yaml")
    page = words(
        read_html(client.get("/diff?from=night.yaml&to=team/desk.yaml").text)
    )
    deltas = re.findall(r"[+-]\$[\d,.]+", out)
    assert len(deltas) > 3
    assert [delta for delta in deltas if delta not in page] == []
    assert "users" in page


def test_what_was_planned_is_not_planned_again(
    client: Client, workers: HereWorkers
) -> None:
    client.get("/")
    workers.asked.clear()
    client.get("/")
    client.get("/what-if/chat.yaml")
    assert workers.asked == []
    client.get("/what-if/chat.yaml?confidence=77")
    client.get("/what-if/chat.yaml?confidence=77&spot=auto")
    assert workers.asked == ["chat.yaml"]


def test_a_spec_that_changes_is_planned_again(
    client: Client, folder: Path
) -> None:
    path = folder / "team" / "more.yaml"
    before = path.read_text()
    old_page = client.get("/").text
    path.write_text(before.replace("peak_rps: 60", "peak_rps: 200"))
    new_page = client.get("/").text
    path.write_text(before)
    assert old_page != new_page
    assert client.get("/").text == old_page


def test_saved_plans_and_stacks_are_shown(
    client: Client, tonnage: Command, here: Path, folder: Path
) -> None:
    """Stacks are those of the working folder, as `tonnage list` has them."""
    (here / "desk.yaml").write_text((folder / "team/desk.yaml").read_text())
    assert tonnage("plan", "desk.yaml", "-o", "desk.plan.json")[0] == 0
    assert tonnage("apply", "desk.plan.json", "--simulate")[0] == 0
    saved = folder / "desk.plan.json"
    saved.write_bytes((here / "desk.plan.json").read_bytes())
    assert "team/desk.yaml as it is" in words(read_html(client.get("/").text))
    report = client.get("/plan/desk.plan.json")
    saved.unlink()
    assert report.status_code == 200
    assert len(by_name(read_html(report.text), "figure")) > 1
    # A state that is damaged does not hide those that are not.
    [state] = (here / ".tonnage").rglob("desk.json")
    state.with_name("another.json").write_text("{")
    before = digests(here)
    listed = client.get("/stacks").text
    status = words(read_html(client.get("/stack/desk").text))
    assert digests(here) == before
    assert '<a href="/stack/desk">desk</a>' in listed
    assert "another" in words(read_html(listed))
    _, out, _ = tonnage("status", "desk", "--simulate", "--full")
    assert [word for word in out.split() if word not in status] == []


def test_nothing_is_written(client: Client, folder: Path) -> None:
    before = digests(folder)
    for address in PAGES:
        client.get(address)
        client.ask("HEAD", address)
    assert digests(folder) == before


def test_files_of_the_pages_have_their_types(client: Client) -> None:
    for name, media in (
        ("serve.js", "text/javascript; charset=utf-8"),
        ("serve.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ):
        reply = client.get(f"/assets/{name}")
        assert reply.headers["content-type"] == media
        assert "http:" not in reply.text.replace("http://www.w3.org/", "")
        assert "https:" not in reply.text


def test_a_fault_of_ours_has_a_page_too(
    client: Client,
    workers: HereWorkers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(*_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(workers, "run", fail)
    with pytest.raises(KeyError):
        client.get("/stacks")
    assert "error[bug]: KeyError" in capsys.readouterr().err
