"""The commands as people type them: results, errors, exit codes, golden screens."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from planner.cli.main import COMMANDS
from planner.plan.canonical import dump_plan, parse_plan
from tests.conftest import BLUEPRINTS, ROOT, Golden, chat

GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture
def spec(here: Path) -> Path:
    path = here / "chat.yaml"
    path.write_text(chat(extra="shutdown: {idle: 30m, ttl: 72h}"))
    return path


def test_the_screens_are_the_stored_ones(tonnage, here, golden: Golden) -> None:
    (here / "chat-8b.yaml").write_text(
        (BLUEPRINTS[0].parent / "chat-8b.yaml").read_text()
    )
    (here / "chat-70b.yaml").write_text(
        (BLUEPRINTS[0].parent / "chat-70b.yaml").read_text()
    )
    golden(GOLDEN / "plan.txt", tonnage("plan", "chat-8b.yaml")[1])
    golden(
        GOLDEN / "plan.md", tonnage("plan", "chat-8b.yaml", "-f", "markdown")[1]
    )
    golden(
        GOLDEN / "plan.json", tonnage("plan", "chat-8b.yaml", "-f", "json")[1]
    )
    golden(
        GOLDEN / "diff.txt", tonnage("diff", "chat-8b.yaml", "chat-70b.yaml")[1]
    )
    golden(
        GOLDEN / "diff.md",
        tonnage("diff", "chat-8b.yaml", "chat-70b.yaml", "-f", "markdown")[1],
    )


def test_plan_apply_status_change_diff_destroy(tonnage, spec) -> None:
    assert tonnage("plan", "chat.yaml", "-o", "one.json")[0] == 0
    code, out, err = tonnage("apply", "one.json", "--simulate")
    assert code == 0
    assert re.match(r"applied chat: \+ \d+ in \d\d:\d\d", out)
    assert (
        "Group serve-nodes" in err
        or "InstanceGroupManager serve-nodes" in err
        or "ScaleSet serve-nodes" in err
    )
    assert "complete" in tonnage("status", "chat", "--simulate")[1]
    assert "chat   gcp us-central1" in tonnage("list", "--simulate")[1]
    spec.write_text(spec.read_text().replace("peak_rps: 2", "peak_rps: 9"))
    assert tonnage("plan", "chat.yaml", "--simulate", "-o", "two.json")[0] == 0
    code, out, _ = tonnage("diff", "one.json", "two.json")
    assert code == 0
    assert "+$" in out
    assert (
        tonnage("apply", "two.json", "--simulate", "--allow", "outage")[0] == 0
    )
    assert "up to date" in tonnage("apply", "two.json", "--simulate")[1]
    code, out, _ = tonnage("destroy", "chat", "--simulate", "--yes")
    assert (code, "kept for their data" in out) == (0, True)
    assert (
        "destroyed, but for its data"
        in tonnage("status", "chat", "--simulate")[1]
    )
    everything = ("--simulate", "--yes", "--allow", "delete-data")
    assert tonnage("destroy", "chat", *everything)[0] == 0
    assert tonnage("status", "chat", "--simulate")[0] == 6


def test_a_plan_is_never_written_over_its_spec(tonnage, spec, here) -> None:
    before = spec.read_text()
    code, _, err = tonnage("plan", "chat.yaml", "-o", str(spec))
    assert code == 2
    assert "replace the spec" in err
    assert spec.read_text() == before
    assert tonnage("plan", "chat.yaml", "-o", str(here))[0] == 2
    assert list(here.iterdir()) == [spec]


@pytest.mark.parametrize(
    "name", ["../../up", "a/b", "A", "-a", "a-", "x" * 41, ""]
)
def test_a_stack_name_is_refused_where_it_could_leave_its_directory(
    tonnage, spec, name
) -> None:
    assert (
        tonnage("apply", "chat.yaml", "--simulate", "--yes", "--stack", name)[0]
        == 2
    )
    assert tonnage("destroy", "--simulate", "--yes", "--", name)[0] == 2
    assert not list(spec.parent.rglob("*.json"))


def test_a_stale_plan_exits_11_and_touches_nothing(tonnage, spec, here) -> None:
    tonnage("plan", "chat.yaml", "-o", "p.json")
    whole = spec.read_text()
    spec.write_text(whole.replace("peak_rps: 2", "peak_rps: 3"))
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert code == 11
    assert "chat.yaml has changed" in err
    assert not list((here / ".tonnage").rglob("*.json"))
    # A comment is no change of what is asked.
    spec.write_text(whole + "# a comment\n")
    assert tonnage("apply", "p.json", "--simulate")[0] == 0


def test_a_plan_for_another_state_exits_11(tonnage, spec) -> None:
    tonnage("plan", "chat.yaml", "-o", "first.json")
    assert tonnage("apply", "chat.yaml", "--simulate", "--yes")[0] == 0
    spec.write_text(spec.read_text().replace("peak_rps: 2", "peak_rps: 9"))
    tonnage("plan", "chat.yaml", "-o", "blind.json")
    code, _, err = tonnage("apply", "blind.json", "--simulate")
    assert code == 11
    assert "stack chat has changed" in err


def test_apply_of_a_spec_asks_and_no_input_refuses(tonnage, spec) -> None:
    code, out, err = tonnage("apply", "chat.yaml", "--simulate", "--no-input")
    assert code == 2
    assert "for its life" in out
    assert "next: review a plan" in err
    assert tonnage("destroy", "chat", "--simulate", "--no-input")[0] == 6


def test_an_infeasible_spec_exits_10_and_names_the_nearest(
    tonnage, spec
) -> None:
    spec.write_text(spec.read_text().replace("ttft_p95: 2s", "ttft_p95: 1ms"))
    code, out, _ = tonnage("plan", "chat.yaml", "-o", "p.json")
    assert code == 10
    assert "INFEASIBLE" in out
    assert "ttft_p95" in out
    assert (
        json.loads(Path("p.json").read_text())["solution"]["status"]
        == "infeasible"
    )
    assert tonnage("apply", "p.json", "--simulate")[0] == 10


def test_diff_and_many_plans_are_written_as_json(tonnage, spec) -> None:
    busier = spec.read_text().replace("peak_rps: 2", "peak_rps: 40")
    assert busier != spec.read_text()
    spec.with_name("busier.yaml").write_text(busier)
    code, out, _ = tonnage("diff", "chat.yaml", "busier.yaml", "-f", "json")
    assert code == 0
    [difference] = json.loads(out)["specs"]
    assert difference["before"]["period"] == "life"
    assert difference["after"]["period"] == "life"

    def usd(change: dict, side: str) -> Decimal:
        entry = change[side]
        return Decimal(entry["cost"]["usd"] if entry else 0)

    grown_usd = Decimal(difference["delta"]["usd"])
    assert grown_usd == sum(
        usd(change, "after") - usd(change, "before")
        for change in difference["changes"]
    )
    assert grown_usd > 0
    code, out, _ = tonnage("plan", "chat.yaml", "busier.yaml", "-f", "json")
    assert code == 0
    assert [plan["schema"] for plan in json.loads(out)] == [
        "tonnage.plan/1"
    ] * 2


def test_exit_codes_of_change(tonnage, spec) -> None:
    assert tonnage("plan", "chat.yaml", "--exit-code")[0] == 20
    assert tonnage("plan", "chat.yaml", "--detailed-exitcode")[0] == 2
    tonnage("apply", "chat.yaml", "--simulate", "--yes")
    assert tonnage("plan", "chat.yaml", "--simulate", "--exit-code")[0] == 0
    assert (
        tonnage("plan", "chat.yaml", "--simulate", "--detailed-exitcode")[0]
        == 0
    )
    assert tonnage("diff", "chat.yaml", "chat.yaml", "--exit-code")[0] == 0
    spec.write_text("nonsense")
    assert tonnage("plan", "chat.yaml", "--detailed-exitcode")[0] == 1


def test_show_renders_a_saved_plan_as_plan_did(tonnage, spec) -> None:
    planned = tonnage("plan", "chat.yaml")[1]
    tonnage("plan", "chat.yaml", "-o", "p.json")
    assert tonnage("show", "p.json")[1] == planned
    assert (
        tonnage("show", "p.json", "-f", "json")[1] == Path("p.json").read_text()
    )
    assert tonnage("show", "p.json", "-f", "markdown")[1].startswith(
        "**chat.yaml"
    )


def test_capacity_and_faults_of_a_world_reach_the_exit_code(
    tonnage, spec, here
) -> None:
    (here / "full.yaml").write_text("capacity: [{nodes: 0}]\n")
    (here / "broken.yaml").write_text(
        "faults: [{on: create, name: serve-nodes, code: InvalidParameterValue}]\n"
    )
    assert (
        tonnage("apply", "chat.yaml", "--simulate", "full.yaml", "--yes")[0]
        == 14
    )
    code, _, err = tonnage(
        "apply", "chat.yaml", "--simulate", "broken.yaml", "--yes"
    )
    assert code == 4
    assert "the next apply goes on from there" in err


def test_explain_answers_the_three_questions(tonnage, spec) -> None:
    assert "offers left" in tonnage("explain", "chat.yaml")[1]
    code, out, _ = tonnage("explain", "chat.yaml", "g5.12xlarge")
    assert code == 0
    assert "g5.12xlarge" in out
    assert "against the chosen fleet" in out
    # The spec has a ttl: nothing of it is for a month.
    assert "a month" not in out
    assert (
        "2 times the traffic"
        in tonnage("explain", "chat.yaml", "--traffic", "2x")[1]
    )
    assert tonnage("explain", "chat.yaml", "nothing-like-it")[0] == 6
    assert tonnage("explain", "chat.yaml", "--traffic", "lots")[0] == 2


@pytest.mark.parametrize(
    "question",
    [("g5.12xlarge",), ("--traffic", "2x"), ("--ways",), ("--pareto",)],
)
def test_what_is_known_of_a_plan_changes_no_answer(
    tonnage, spec, question: tuple[str, ...]
) -> None:
    """Beside a spec its plan was just looked for; of a saved one nothing is known."""
    assert tonnage("plan", "chat.yaml", "-o", "chat.plan.json")[0] == 0
    asked = tonnage("explain", "chat.yaml", *question)
    saved = tonnage("explain", "chat.plan.json", *question)
    assert asked[:2] == saved[:2]
    assert asked[0] == 0


def test_errors_go_to_standard_error_with_place_and_next_step(
    tonnage, here
) -> None:
    (here / "bad.yaml").write_text(chat(sla="tftt_p95: 1s"))
    for argv in (
        ("plan", "bad.yaml"),
        ("check", "bad.yaml"),
        ("diff", "bad.yaml", "bad.yaml"),
    ):
        code, out, err = tonnage(*argv)
        assert code == 2
        assert out == ""
        assert (
            "bad.yaml:6:7  error[unknown-key]: unknown key 'sla.tftt_p95'"
            in err
        )
        assert "next: did you mean 'ttft_p95'?" in err


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("plan", "missing.yaml"), 6),
        (("show", "missing.json"), 6),
        (("plan",), 2),
        (("plna",), 2),
        (("plan", "--nope"), 2),
        (("init", "--blueprint", "nothing"), 6),
        (("status", "x", "--simulate"), 6),
        (("apply", "x", "--simulate"), 6),
        (("plan", "."), 6),
        (("models", "--format", "xml"), 2),
        (("offers", "--catalog", "missing.json"), 13),
        (("apply", "chat.yaml", "--engine", "simulated"), 2),
    ],
)
def test_wrong_calls_end_with_their_code_and_no_traceback(
    tonnage, spec, argv, code
) -> None:
    found, _, err = tonnage(*argv)
    assert found == code
    assert "Traceback" not in err
    assert err.strip()


def test_hostile_names_do_not_reach_the_terminal(tonnage, here) -> None:
    (here / "bad.yaml").write_text(
        'apiVersion: tonnage/v1\nkind: "Infe\\e[31mrence"\n'
    )
    _, _, err = tonnage("check", "bad.yaml")
    assert "\x1b" not in err


def test_a_catalog_that_was_touched_is_refused(tonnage, spec, here) -> None:
    import shutil

    from providers.catalog.manifest import CATALOG_FOLDER, write_manifest

    copy = here / "catalog"
    shutil.copytree(CATALOG_FOLDER, copy)
    manifest = str(copy / "manifest.json")
    assert tonnage("plan", "chat.yaml", "--catalog", manifest)[0] == 0
    prices = copy / "prices.csv"
    whole = prices.read_text()
    prices.write_text(whole.replace("observed", "observd", 1))
    code, _, err = tonnage("plan", "chat.yaml", "--catalog", manifest)
    assert code == 13
    assert "differs from the manifest" in err
    write_manifest(copy)
    code, _, err = tonnage("plan", "chat.yaml", "--catalog", manifest)
    assert code == 13
    assert "prices.csv:" in err
    assert "'observd' is not one of" in err


def test_lists_come_as_text_csv_and_json_with_the_same_rows(tonnage) -> None:
    rows = json.loads(
        tonnage("offers", "h100*", "--limit", "5", "-f", "json")[1]
    )
    lines = tonnage("offers", "h100*", "--limit", "5", "-f", "csv")[
        1
    ].splitlines()
    assert [r["usd_gpu"] for r in rows] == sorted(r["usd_gpu"] for r in rows)
    assert len(lines) == 6
    assert json.loads(tonnage("models", "-f", "json")[1])
    assert "llama-3.1-8b" in tonnage("models", "llama*")[1]
    assert "nvlink" in tonnage("catalog", "accelerators")[1]
    assert "1g." in tonnage("catalog", "mig")[1]
    assert "tpu7x-standard-4t" in tonnage("catalog", "unpriced")[1]
    assert "on_demand" in tonnage("catalog")[1]


def test_the_version_that_a_pipeline_installs_is_no_flag(
    tonnage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TONNAGE_VERSION", "1.2.3")
    assert "llama-3.1-8b" in tonnage("models", "llama*")[1]


def test_init_lists_and_writes_blueprints_that_plan(tonnage) -> None:
    lines = tonnage("init", "--list")[1].splitlines()
    # Other lines go on with the one before.
    listed = [line.split(maxsplit=1) for line in lines if line[2] != " "]
    assert len(listed) >= 10
    assert all(len(summary) > 20 for _, summary in listed)
    assert tonnage("init", "--blueprint", "chat-8b")[0] == 0
    assert tonnage("init", "--blueprint", "chat-8b")[0] == 2
    assert tonnage("plan", "chat-8b.yaml")[0] == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(tonnage, shell: str) -> None:
    assert "tonnage" in tonnage("completion", shell)[1]


def test_every_command_has_help_with_an_example(tonnage) -> None:
    for name in COMMANDS:
        code, out, _ = tonnage(name, "--help")
        assert code == 0
        assert "Example: tonnage" in out, name


def test_variables_stand_for_flags(tonnage, spec, monkeypatch) -> None:
    monkeypatch.setenv("TONNAGE_PLAN_FORMAT", "json")
    out = tonnage("plan", "chat.yaml")[1]
    assert dump_plan(parse_plan(out.encode(), "-")) == out


def test_help_imports_nothing_heavy(here) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from planner.cli.main import run; run(['--help']); "
        "bad = {'numpy', 'pulumi', 'boto3', 'google.cloud', 'azure', 'yaml', 'rich'}; "
        "sys.exit(bool(bad & set(sys.modules)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True
        ).returncode
        == 0
    )


def test_missing_pulumi_is_one_clear_error(tonnage, spec, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    tonnage("plan", "chat.yaml", "-o", "p.json")
    code, _, err = tonnage("apply", "p.json")
    assert code == 2
    assert "install it with" in err
    assert "--simulate" in err


def test_two_stacks_of_one_spec_live_side_by_side(tonnage, spec) -> None:
    for name in ("blue", "green"):
        assert (
            tonnage(
                "plan",
                "chat.yaml",
                "--simulate",
                "--stack",
                name,
                "-o",
                f"{name}.json",
            )[0]
            == 0
        )
        assert tonnage("apply", f"{name}.json", "--simulate")[0] == 0
    listed = json.loads(tonnage("list", "--simulate", "-f", "json")[1])
    assert [row["stack"] for row in listed] == ["blue", "green"]
    for name in ("blue", "green"):
        assert tonnage("destroy", name, "--simulate", "--yes")[0] == 0


def test_the_same_plan_goes_on_after_a_failure(tonnage, spec, here) -> None:
    (here / "w.yaml").write_text(
        "faults: [{on: create, name: serve-nodes, code: InvalidParameterValue}]\n"
    )
    tonnage("plan", "chat.yaml", "-o", "p.json")
    assert tonnage("apply", "p.json", "--simulate", "w.yaml")[0] == 4
    assert tonnage("apply", "p.json", "--simulate", "w.yaml")[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--layout", "precision=foo"),
        ("--layout", "tp=²"),
        ("--layout", "=,="),
        ("--rps", "nan"),
        ("--rps", "inf"),
        ("--rps", "1", "--concurrency", "2"),
        ("--layout", "ep=99999,tp=1"),
        ("--layout", "tp=3"),
        ("--layout", "kv_precision=x"),
    ],
)
def test_an_impossible_estimate_is_an_error_with_a_next_step(
    tonnage, words
) -> None:
    spec = str(ROOT / "blueprints" / "chat-70b.yaml")
    code, _, errors = tonnage("estimate", spec, "--on", "p5.48xlarge", *words)
    assert code in (2, 10)
    assert "Traceback" not in errors
    assert "bug" not in errors


@pytest.mark.parametrize(
    "words",
    [
        ("--layout", "tp=3"),
        ("--layout", "sharding=ddp"),
        ("--layout", "kv_precision=fp8"),
        ("--layout", "tp=1,sharding=zero1,micro=8"),
        ("--rps", "1"),
        ("--concurrency", "2"),
    ],
)
def test_an_impossible_layout_of_a_training_job_is_an_error_too(
    tonnage, words
) -> None:
    spec = str(ROOT / "blueprints" / "pretrain-70b.yaml")
    code, _, errors = tonnage(
        "estimate", spec, "--on", "p4d.24xlargex8", *words
    )
    assert code in (2, 10)
    assert "bug" not in errors


def test_costs_of_a_training_job_are_those_of_its_run(tonnage) -> None:
    spec, other = (
        str(ROOT / "blueprints" / f"{x}.yaml") for x in ("lora-8b", "align-8b")
    )
    code, shown, _ = tonnage("diff", spec, spec)
    assert code == 0
    assert "/mo" not in shown
    assert "USD of a run" in tonnage("diff", spec, other)[1]
    assert "/mo" not in tonnage("explain", spec, "g6.xlarge")[1]


def test_a_training_job_is_estimated_on_named_machines(tonnage) -> None:
    spec = str(ROOT / "blueprints" / "pretrain-7b.yaml")
    code, shown, _ = tonnage(
        "estimate", spec, "--on", "p5.48xlargex4", "--layout", "tp=2"
    )
    assert code == 0
    assert "on demand in aws" in shown
    code, told, _ = tonnage(
        "estimate", spec, "--on", "p5.48xlargex4", "-f", "json"
    )
    assert code == 0
    assert json.loads(told)["predicted"]["mfu"]["basis"] == "calibrated"


@pytest.mark.parametrize(
    ("layout", "memory_basis", "time_basis"),
    [
        ("precision=bf16,tp=1", "calibrated", "calibrated"),
        ("precision=bf16,tp=1,pp=2", "calibrated", "physics"),
        ("precision=int4,tp=1", "physics", "physics"),
        ("precision=fp32,tp=1", "physics", "physics"),
    ],
)
def test_what_nobody_measured_is_not_called_calibrated(
    tonnage, layout: str, memory_basis: str, time_basis: str
) -> None:
    spec = str(ROOT / "blueprints" / "chat-8b.yaml")
    code, told, _ = tonnage(
        *("estimate", spec, "--on", "p5.48xlarge", "--rps", "1"),
        *("--layout", layout, "-f", "json"),
    )
    assert code == 0
    predicted = json.loads(told)["predicted"]
    assert predicted["memory_fraction"]["basis"] == memory_basis
    for name in ("tpot_p95_ms", "ttft_p95_ms", "output_tokens_per_s"):
        assert predicted[name]["basis"] == time_basis


def test_estimate_and_calibrate_show_and_keep_their_results(
    tonnage, here
) -> None:
    spec = str(ROOT / "blueprints" / "chat-70b.yaml")
    code, shown, _ = tonnage(
        "estimate", spec, "--on", "p5.48xlargex2", "--layout", "tp=4"
    )
    assert code == 0
    assert "90 % band" in shown
    code, told, _ = tonnage(
        "estimate", spec, "--on", "p5.48xlarge", "--rps", "2", "-f", "json"
    )
    assert code == 0
    assert json.loads(told)["predicted"]["tpot_p95_ms"]["basis"] == "calibrated"
    bench = str(ROOT / "tests" / "data" / "benchmarks" / "guidellm_v0.7.json")
    code, shown, _ = tonnage(
        "calibrate",
        bench,
        "--gpu",
        "h100-sxm",
        "--precision",
        "bf16",
        "-o",
        "mine.json",
    )
    assert code == 0
    assert "predicted by the others" in shown
    assert (
        json.loads((here / "mine.json").read_text())["schema"]
        == "tonnage.calibration/1"
    )
    code, _, errors = tonnage("calibrate", spec, "-o", "other.json")
    assert code == 2
    assert "vLLM" in errors
    assert not (here / "other.json").exists()
    code, shown, _ = tonnage("calibrate", "--recipe", spec)
    assert code == 0
    assert "vllm bench serve" in shown


def test_a_table_is_answered_row_by_row(tonnage, here) -> None:
    table = str(ROOT / "tests" / "data" / "truth" / "memory.csv")
    code, _, _ = tonnage("estimate", "--table", table, "-o", "out.csv")
    assert code == 0
    assert (
        (here / "out.csv")
        .read_text()
        .startswith("row_id,status,reason,basis,weights_gib")
    )


def test_a_plan_says_with_which_confidence_and_how_it_was_verified(
    tonnage,
) -> None:
    spec = str(ROOT / "blueprints" / "agent-gpt-oss.yaml")
    costs = {}
    for confidence in ("50", "90"):
        code, told, _ = tonnage(
            "plan", spec, "--confidence", confidence, "-f", "json"
        )
        assert code == 0
        plan = json.loads(told)
        assert plan["solution"]["verified"]["requests"] > 900
        costs[confidence] = float(plan["cost"]["usd_month"])
    assert costs["90"] >= costs["50"]
    for form in ("text", "markdown"):
        _, shown, _ = tonnage("plan", spec, "-f", form)
        assert "simulated requests" in shown
        assert "90 % band" in shown


def test_stacks_are_listed_as_json_although_there_is_none(tonnage) -> None:
    assert tonnage("list", "--simulate", "-f", "json") == (0, "[]\n", "")


def test_what_is_suggested_after_an_apply_names_the_same_backend(
    tonnage, spec, here
) -> None:
    backend = (here / "elsewhere").as_uri()
    _, out, _ = tonnage(
        "apply", "chat.yaml", "--simulate", "--yes", "--backend", backend
    )
    assert f"tonnage status chat --simulate --backend {backend}" in out


def test_two_questions_at_once_are_refused(tonnage, spec) -> None:
    code, _, err = tonnage(
        "explain", "chat.yaml", "g6.xlarge", "--traffic", "2x"
    )
    assert code == 2
    assert "ask one thing" in err


def test_an_estimate_is_written_to_its_file_as_text_too(
    tonnage, spec, here
) -> None:
    words = ("estimate", "chat.yaml", "--on", "p5.48xlarge")
    code, shown, _ = tonnage(*words)
    assert code == 0
    assert tonnage(*words, "-o", "seen.txt")[:2] == (0, "")
    assert (here / "seen.txt").read_text() == shown


def test_people_are_what_a_workspace_scales_by(tonnage, here) -> None:
    (here / "w.yaml").write_text(
        "apiVersion: tonnage/v1\nkind: Workspace\nname: w\n"
        "accelerator: {memory: 20GiB}\nusers: 2\n"
    )
    assert (
        "2 times the people"
        in tonnage("explain", "w.yaml", "--traffic", "2x")[1]
    )


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_region_that_nobody_knows_is_refused(
    tonnage, here, command: str
) -> None:
    text = chat(extra="where: {regions: [us-esat-1, eu-*]}")
    (here / "chat.yaml").write_text(text)
    code, _, err = tonnage(command, "chat.yaml")
    assert code == 2
    assert "no region is named 'us-esat-1'" in err
    assert "did you mean 'us-east-1'" in err
    line = text[: text.index("where:")].count("\n") + 1
    assert f"chat.yaml:{line}:" in err
    (here / "chat.yaml").write_text(text.replace("esat", "east"))
    assert tonnage("check", "chat.yaml")[0] == 0


CONFIG_CHAT = chat().replace("name: llama-3.1-8b", "config: config.json")
TRACE_CHAT = chat(traffic="trace: calls.csv")
REFUSED_SPECS = {
    "no model is named 'llama-3.1-8'": chat(model="llama-3.1-8"),
    "whisper-large-v3 is a speech model": chat(model="openai/whisper-large-v3"),
    "has int4 weights": chat(
        model="Qwen/Qwen2.5-32B-Instruct-AWQ", precision="fp8"
    ),
    "cannot be sized yet": chat(model="gemma-3n-e4b"),
    "vllm cannot serve deepseek-v4-pro": chat(model="deepseek-v4-pro"),
    "is longer than": chat().replace("auto}", "auto, context: 1M}"),
    "config.json  error[file]: no such file": CONFIG_CHAT,
    "calls.csv  error[file]: no such file": TRACE_CHAT,
    "runtime slurm cannot be built yet": chat(extra="runtime: slurm"),
    "no model is named 'lama'": "apiVersion: tonnage/v1\nkind: Workspace\n"
    "name: w\nfits: {model: lama, for: lora}\n",
    "sequence 1,048,576 is longer": "apiVersion: tonnage/v1\nkind: Training\n"
    "name: t\nmodel: {name: llama-3.1-8b}\n"
    "data: {samples: 1k, location: 's3://bucket/data'}\n"
    "train: {method: lora, sequence: 1M}\n",
}


@pytest.mark.parametrize("told", REFUSED_SPECS)
def test_check_refuses_what_plan_refuses(tonnage, here, told: str) -> None:
    (here / "spec.yaml").write_text(REFUSED_SPECS[told])
    for command in ("check", "plan"):
        code, out, err = tonnage(command, "spec.yaml")
        assert code in (2, 6), command
        assert told in err, command
        assert out == ""


def test_check_reads_the_files_that_a_spec_names(tonnage, here) -> None:
    (here / "spec.yaml").write_text(CONFIG_CHAT)
    (here / "config.json").write_text('{"model_type": "whisper"}')
    code, _, err = tonnage("check", "spec.yaml")
    assert code == 2
    assert "config.json  error[unsupported-model]: 'whisper' is a speech" in err
    (here / "spec.yaml").write_text(TRACE_CHAT)
    (here / "calls.csv").write_text("timestamp,input_tokens\n1,2\n")
    assert "calls.csv:1:1  error[traffic]" in tonnage("check", "spec.yaml")[2]


def test_check_tells_all_that_is_wrong_and_not_the_first_alone(
    tonnage, here
) -> None:
    (here / "spec.yaml").write_text(
        chat(
            model="lama",
            extra="runtime: slurm\nwhere: {regions: [us-esat-1]}",
        )
    )
    code, _, err = tonnage("check", "spec.yaml", "missing.yaml")
    assert code == 2
    assert tonnage("check", "missing.yaml")[0] == 6
    for told in ("lama", "slurm", "us-esat-1", "missing.yaml"):
        assert told in err
