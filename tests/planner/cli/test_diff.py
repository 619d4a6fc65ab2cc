"""tonnage diff --base: a branch of specs against its base, in a real git repository."""

from __future__ import annotations

import csv
import io
import json
import shutil
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from planner.cli import revision
from planner.cli.diff import FORMATS
from planner.cli.planning import find_plan
from planner.plan.canonical import digest
from planner.plan.diff_document import diff_schema
from planner.render.diff.formats import WRITERS
from tests.planner.cli.conftest import Command
from tests.planner.cli.test_git import commit, git, repository
from tests.providers.shapes import answer_of

__all__ = ("repository",)

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is not installed"
)


def notebook(name: str, extra: str = "", memory: str = "24GiB") -> str:
    """A spec that is planned in a moment."""
    return (
        f"apiVersion: tonnage/v1\nkind: Workspace\nname: {name}\n"
        f"accelerator: {{memory: {memory}, count: 1}}\n"
        f"where: {{clouds: [gcp], regions: [us-central1]}}\n{extra}"
    )


TTL = "shutdown: {ttl: 3d}\n"
SPECS = {
    "a.yaml": notebook("a"),
    "team x/rág.yaml": notebook("b"),
    "same.yml": notebook("c", TTL),
    "old.yaml": notebook("d"),
    "k8s/all.yaml": "apiVersion: v1\nkind: Service\n---\nkind: Pod\n",
    "broken.yaml": "apiVersion: tonnage/v1\nkind: Nothing\n",
}


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small plans are made sooner than processes start."""
    monkeypatch.setattr("planner.cli.parallel.usable_cores", lambda: 1)


@pytest.fixture
def branch(repository: Path) -> Path:
    """A repository whose files differ from its last commit in every way."""
    commit(repository, SPECS)
    (repository / "a.yaml").write_text(notebook("a", "users: 2\n"))
    (repository / "team x" / "rág.yaml").unlink()
    (repository / "moved.yaml").write_text(SPECS["team x/rág.yaml"] + "# \n")
    (repository / "old.yaml").unlink()
    (repository / "new.yaml").write_text(notebook("e", "users: 3\n"))
    return repository


def told(tonnage: Command, *flags: str) -> tuple[int, dict, str]:
    code, out, err = tonnage("diff", *flags, "-f", "json")
    document = json.loads(out)
    jsonschema.Draft202012Validator(diff_schema()).validate(document)
    return code, document, err


def states(document: dict) -> dict[str, str]:
    return {spec["path"]: spec["state"] for spec in document["specs"]}


def test_each_spec_is_what_happened_to_it(
    tonnage: Command, branch: Path
) -> None:
    code, document, err = told(tonnage, "--base", "HEAD")
    assert code == 0
    assert states(document) == {
        "a.yaml": "changed",
        "moved.yaml": "renamed",
        "new.yaml": "added",
        "old.yaml": "removed",
    }
    assert document["unplanned"] == ["broken.yaml", "same.yml"]
    by_path = {spec["path"]: spec for spec in document["specs"]}
    assert by_path["moved.yaml"]["before"]["path"] == "team x/rág.yaml"
    assert by_path["moved.yaml"]["delta"]["usd"] == "0.00"
    [users] = by_path["a.yaml"]["keys"]
    assert (users["key"], users["before"], users["after"], users["line"]) == (
        "users",
        None,
        "2",
        6,
    )
    [total] = document["totals"]
    assert Decimal(total["after"]["usd"]) - Decimal(
        total["before"]["usd"]
    ) == Decimal(total["delta"]["usd"])
    assert "1 YAML file is no spec: skipped" in err
    # a.yaml twice; what was moved is the same plan on both sides, and as cheap as old.yaml.
    assert "planned a.yaml" in err
    code, text, _ = tonnage("diff", "--base", "HEAD", "--exit-code")
    assert code == 20
    assert max(map(len, text.splitlines())) <= 99


def test_only_what_differs_is_planned_and_each_plan_once(
    tonnage: Command, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []

    def counted(spec_file, *arguments):
        planned.append(spec_file.path)
        return find_plan(spec_file, *arguments)

    monkeypatch.setattr(revision, "find_plan", counted)
    commit(repository, {f"{n}.yaml": notebook(f"s{n}", TTL) for n in range(10)})
    (repository / "3.yaml").write_text(notebook("s3", f"users: 2\n{TTL}"))
    # A comment is no change of a spec.
    (repository / "4.yaml").write_text(f"# why\n{notebook('s4', TTL)}")
    _, document, _ = told(tonnage, "--base", "main")
    assert planned == ["3.yaml", "3.yaml"]
    assert tonnage("diff", "--base", "main", "--detailed-exitcode")[0] == 2
    assert len(document["unplanned"]) == 9
    planned.clear()
    _, document, _ = told(tonnage, "--base", "main", "--all")
    assert sorted(planned) == sorted(
        ["3.yaml", *(f"{n}.yaml" for n in range(10))]
    )
    assert len(document["specs"]) == 10
    assert document["unplanned"] == []


def test_an_invalid_spec_is_told_and_the_others_are_compared(
    tonnage: Command, repository: Path
) -> None:
    commit(repository, {"a.yaml": notebook("a"), "b.yaml": notebook("b")})
    bad = notebook("a").replace("memory", "memry")
    (repository / "a.yaml").write_text(bad)
    (repository / "b.yaml").write_text(notebook("b", "users: 2\n"))
    code, document, err = told(tonnage, "--base", "main")
    assert code == 2
    assert "a.yaml:4:15  error[unknown-key]" in err
    assert document["left_out"] == ["a.yaml"]
    wrong, right = document["specs"]
    assert (4, 15, "unknown-key") in {
        (problem["line"], problem["column"], problem["code"])
        for problem in wrong["after"]["problems"]
    }
    assert Decimal(right["delta"]["usd"]) > 0
    commit(repository, {})
    (repository / "a.yaml").write_text(notebook("a"))
    code, document, err = told(tonnage, "--base", "main", "a.yaml")
    assert code == 2
    # The line is one of the old file.
    assert "main:a.yaml:4:15  error[unknown-key]" in err
    assert document["specs"][0]["before"]["status"] == "invalid"
    # What no spec is any more is an invalid one.
    (repository / "b.yaml").write_text("name: b\n")
    assert tonnage("diff", "--base", "main", "b.yaml")[0] == 2


def test_thresholds_and_infeasible_specs_decide_the_exit_code(
    tonnage: Command, repository: Path
) -> None:
    commit(repository, {"a.yaml": notebook("a")})
    (repository / "a.yaml").write_text(notebook("a", "users: 2\n"))
    base = ("diff", "--base", "main")
    assert tonnage(*base, "--fail-if", "+150%")[0] == 0
    code, out, err = tonnage(*base, "--fail-if", "+10%", "--fail-if", "+9/run")
    assert code == 5
    assert "above +10%" in out
    assert "within +9/run" in out
    assert "error[threshold]: above +10%" in err
    assert tonnage(*base, "--fail-if", "+1/month")[0] == 5
    assert tonnage(*base, "--fail-if", "lots")[0] == 2
    (repository / "a.yaml").write_text(
        notebook("a", "buy: {budget: 1/month}\n")
    )
    code, document, err = told(tonnage, "--base", "main")
    assert code == 10
    assert document["specs"][0]["after"]["status"] == "infeasible"
    assert "error[infeasible]" in err


def test_every_format_is_written_to_a_file_too(
    tonnage: Command, repository: Path
) -> None:
    assert set(FORMATS) == {"text", *WRITERS}
    commit(repository, {"a.yaml": notebook("a", TTL)})
    (repository / "a.yaml").write_text(notebook("a", f"users: 2\n{TTL}"))
    for name in FORMATS:
        flags = ("diff", "--base", "HEAD", "-f", name, "--fail-if", "+1%")
        # The report is written although the command fails.
        code, out, _ = tonnage(*flags, "-o", "out.file")
        assert code == 5
        # Standard output is free for what went wrong.
        assert bool(out) == (name == "json")
        assert (repository / "out.file").read_text().strip()


def test_the_rows_of_a_table_add_up(tonnage: Command, branch: Path) -> None:
    text = tonnage("diff", "--base", "HEAD", "-f", "csv")[1]
    rows = list(csv.DictReader(io.StringIO(text)))
    [total] = [row for row in rows if row["row"] == "total"]
    specs = [row for row in rows if row["row"] == "spec"]
    assert Decimal(total["usd_change"]) == sum(
        Decimal(row["usd_change"]) for row in specs
    )


def test_prices_of_the_branch_are_a_part_of_their_own(
    tonnage: Command, repository: Path
) -> None:
    """And those of a file outside the repository are the same on both sides."""
    commit(
        repository,
        {"a.yaml": notebook("a"), "b.yaml": notebook("b"), "p.yaml": "tax: 0%"},
    )
    (repository / "a.yaml").write_text(notebook("a", "users: 2\n"))
    (repository / "p.yaml").write_text("tax: 10%\n")
    code, document, _ = told(tonnage, "--base", "main", "--prices", "p.yaml")
    assert code == 0
    # A price is everybody's.
    assert states(document) == {"a.yaml": "changed", "b.yaml": "changed"}
    assert document["specs"][1]["files"] == ["p.yaml"]
    [total] = document["totals"]
    parts = {p["origin"]: Decimal(p["delta"]["usd"]) for p in total["parts"]}
    assert set(parts) == {"spec", "price"}
    before = Decimal(total["before"]["usd"])
    assert abs(parts["price"] - before / 10) <= Decimal("0.02")
    assert sum(parts.values()) == Decimal(total["delta"]["usd"])
    text = tonnage("diff", "--base", "main", "--prices", "p.yaml")[1]
    assert "prices +$" in text
    # A revision has its own file, whatever lies here.
    (repository / "p.yaml").unlink()
    code, _, err = tonnage("diff", "--base", "main", "--prices", "p.yaml")
    assert (code, "no such file" in err) == (6, True)
    flags = ("--base", "main", "--head", "main", "--prices", "p.yaml")
    assert told(tonnage, *flags)[1]["specs"] == []


def test_a_saved_plan_of_the_base_tells_what_prices_did_since(
    tonnage: Command, repository: Path
) -> None:
    (repository / "a.yaml").write_text(notebook("a"))
    assert tonnage("plan", "a.yaml", "-o", "a.plan.json")[0] == 0
    plan = json.loads((repository / "a.plan.json").read_text())
    plan["catalog"] = {"sha256": "0" * 64, "as_of": "2026-01-02"}
    line = plan["cost"]["lines"][-1]
    line["usd"] = str(Decimal(line["usd"]) + 40)
    plan["cost"]["total"] = str(Decimal(plan["cost"]["total"]) + 40)
    plan["digest"] = digest(plan)
    commit(repository, {"a.plan.json": json.dumps(plan), "b.plan.json": "{}"})
    (repository / "a.yaml").write_text(notebook("a", "users: 2\n"))
    code, document, err = told(tonnage, "--base", "main")
    assert code == 0
    assert "b.plan.json is not read" in err
    [effect] = document["catalog_effects"]
    assert effect["origins"] == ["price"]
    assert effect["delta"]["usd"] == "-40.00"
    # It is the catalog's doing, not that of the branch.
    [total] = document["totals"]
    assert Decimal(total["delta"]["usd"]) > 0
    text = tonnage("diff", "--base", "main")[1]
    assert "prices alone: -$40.00" in text
    assert "since the catalog of 2026-01-02" in text
    told_again = told(tonnage, "--base", "main", "--base-catalog", "embedded")
    assert told_again[1]["catalog_effects"] == []
    assert tonnage("diff", "--base", "main", "--base-catalog", "no")[0] == 6


def test_two_revisions_are_compared_without_the_files_as_they_are(
    tonnage: Command, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repository, {"s/a.yaml": notebook("a")})
    git(repository, "switch", "--quiet", "--create", "feature")
    commit(repository, {"s/a.yaml": notebook("a", "users: 2\n")})
    git(repository, "switch", "--quiet", "main")
    commit(repository, {"s/b.yaml": notebook("b")})
    (repository / "s" / "a.yaml").write_text("nonsense")
    monkeypatch.chdir(repository / "s")
    flags = ("--base", "main", "--head", "feature")
    assert states(told(tonnage, *flags)[1]) == {
        "s/a.yaml": "changed",
        "s/b.yaml": "removed",
    }
    # What main has got since is not undone by the branch.
    _, document, _ = told(tonnage, *flags, "--merge-base")
    assert states(document) == {"s/a.yaml": "changed"}
    assert states(told(tonnage, *flags, "b.yaml")[1]) == {"s/b.yaml": "removed"}


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (("--base", "nothing"), 6, "no revision nothing"),
        (("--base", "main", "no.yaml"), 6, "no spec is at no.yaml"),
        (("--base", "main", "k8s"), 6, "no spec is at k8s"),
        (("a.yaml",), 2, "--base REF"),
        (("a.yaml", "a.yaml", "--all"), 2, "--all takes --base"),
        (("a.yaml", "a.yaml", "--head", "x"), 2, "--head takes --base"),
    ],
)
def test_what_cannot_be_compared_has_a_next_step(
    tonnage: Command, repository: Path, flags, code: int, text: str
) -> None:
    commit(repository, SPECS)
    told_code, out, err = tonnage("diff", *flags)
    assert (told_code, out) == (code, "")
    assert text in err


def test_a_trace_is_read_from_its_side(
    tonnage: Command, repository: Path
) -> None:
    spec = (
        "apiVersion: tonnage/v1\nkind: Inference\nname: chat\n"
        "model: {name: llama-3.1-8b}\nsla: {ttft_p95: 2s}\n"
        "traffic: {trace: t.csv}\n"
        "where: {clouds: [gcp], regions: [us-central1]}\n"
    )

    def trace(rate: int) -> str:
        rows = [f"{n / rate:.3f},800,200" for n in range(1500)]
        return "\n".join(["timestamp,input_tokens,output_tokens", *rows, ""])

    commit(repository, {"s/chat.yaml": spec, "s/t.csv": trace(1)})
    (repository / "s" / "t.csv").write_text(trace(15))
    code, document, _ = told(tonnage, "--base", "main")
    assert code == 0
    [chat] = document["specs"]
    assert (chat["state"], chat["keys"]) == ("changed", [])
    assert chat["files"] == ["t.csv"]
    assert Decimal(chat["delta"]["usd"]) > 0
    (repository / "s" / "t.csv").unlink()
    code, _, err = tonnage("diff", "--base", "main")
    assert code == 2
    assert "s/t.csv  error[file]: no such file in working tree" in err


def test_saved_plans_say_what_their_specs_say_differently(
    tonnage: Command, here: Path
) -> None:
    for name, users in (("a", 1), ("b", 2)):
        spec = notebook("n", f"users: {users}\n{TTL}")
        (here / f"{name}.yaml").write_text(spec)
        assert tonnage("plan", f"{name}.yaml", "-o", f"{name}.json")[0] == 0
    for sides in (("a.json", "b.json"), ("a.json", "b.yaml")):
        [spec] = told(tonnage, *sides)[1]["specs"]
        assert spec["keys"] == [
            {
                "key": "users",
                "before": "1",
                "after": "2",
                "line_before": None,
                "line": None,
            }
        ]
    assert told(tonnage, "a.json", "a.yaml")[1]["specs"][0]["keys"] == []
    assert "no change" in tonnage("diff", "a.json", "a.yaml")[1]


def test_a_calibration_of_the_branch_is_a_part_of_its_own(
    tonnage: Command, repository: Path
) -> None:
    """Its author has measured: what follows from that is no change of a spec."""
    spec = (
        "apiVersion: tonnage/v1\nkind: Inference\nname: chat\n"
        "model: {name: llama-3-8b, precision: bf16}\n"
        "sla: {tpot_p95: 9ms}\n"
        "traffic: {peak_rps: RPS, input_tokens: {mean: 900, p95: 3000}, "
        "output_tokens: {mean: 200, p95: 600}}\n"
        "where: {clouds: [gcp], accelerators: {allow: [h100-sxm]}}\n"
    )
    commit(repository, {"chat.yaml": spec.replace("RPS", "200")})
    profiles = answer_of("gcp/benchmarkingData.fetch")["profile"]
    (repository / "gke.json").write_text(json.dumps(profiles))
    flags = ("--gpu", "h100-sxm", "-o", "mine.json")
    assert tonnage("calibrate", "gke.json", *flags)[0] == 0
    (repository / "chat.yaml").write_text(spec.replace("RPS", "230"))
    base = ("--base", "main", "--calibration", "mine.json")
    code, document, _ = told(tonnage, *base)
    assert code == 0
    [chat] = document["specs"]
    assert chat["files"] == ["mine.json"]
    assert chat["differs"] == ["spec", "model"]
    parts = {p["origin"]: Decimal(p["delta"]["usd"]) for p in chat["parts"]}
    assert list(parts) == ["model", "spec"]
    assert parts["model"] != 0
    assert sum(parts.values()) == Decimal(chat["delta"]["usd"])
    assert "due to predictions" in tonnage("diff", *base)[1]
