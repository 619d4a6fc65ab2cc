"""What a saved plan has to be before it is applied: fresh, derived, approved, within limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from planner.plan.canonical import digest
from tests.conftest import chat
from tests.planner.cli.conftest import Command

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
TRACE = "timestamp,input_tokens,output_tokens\n" + "".join(
    f"{second},900,200\n" for second in range(600)
)


@pytest.fixture
def plan_path(tonnage: Command, here: Path) -> Path:
    """A saved plan of a spec that names a configuration."""
    (here / "config.json").write_text(json.dumps(CONFIG))
    text = chat(extra="where: {clouds: [aws]}\nshutdown: {ttl: 72h}").replace(
        "{name: llama-3.1-8b, precision: auto}", "{config: ./config.json}"
    )
    (here / "chat.yaml").write_text(text)
    code, _, err = tonnage("plan", "chat.yaml", "-o", "p.json")
    assert code == 0, err
    return here / "p.json"


def reseal(path: Path, change: Any) -> None:
    """Change a plan, and give it the digest that it then has."""
    document = json.loads(path.read_text())
    change(document)
    document["digest"] = digest(document)
    path.write_text(json.dumps(document))


def nothing_was_done(here: Path) -> bool:
    return not list(here.glob(".tonnage/**/*.json"))


def test_a_file_that_the_spec_names_is_bound(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    (here / "config.json").write_text(
        json.dumps({**CONFIG, "num_hidden_layers": 31})
    )
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert (code, "config.json has changed" in err) == (11, True)
    (here / "config.json").unlink()
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert (code, "config.json has changed" in err) == (11, True)
    assert nothing_was_done(here)


def test_a_trace_is_bound(tonnage: Command, here: Path) -> None:
    (here / "t.csv").write_text(TRACE)
    (here / "chat.yaml").write_text(
        "apiVersion: tonnage/v1\nkind: Inference\nname: chat\n"
        "model: {name: llama-3.1-8b}\nsla: {ttft_p95: 2s}\n"
        "traffic: {trace: ./t.csv}\n"
    )
    assert tonnage("plan", "chat.yaml", "-o", "p.json")[0] == 0
    (here / "t.csv").write_text(TRACE + "600,900,200\n")
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert (code, "t.csv has changed" in err) == (11, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["solution"]["pools"][0].update(nodes=1000),
        lambda d: d["cost"].update(usd_hour="0.01"),
        lambda d: d["graph"]["resources"].pop(),
        lambda d: d["graph"]["resources"][0]["inputs"].update(extra="x"),
        lambda d: d["shutdown"].update(ttl=None),
    ],
)
def test_a_plan_that_does_not_follow_from_its_spec_is_refused(
    tonnage: Command, here: Path, plan_path: Path, change: Any
) -> None:
    """Its digest is right: whoever changed it has made a new one."""
    reseal(plan_path, change)
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert code in (2, 11), err
    assert nothing_was_done(here)


def test_a_stack_name_that_leaves_its_folder_is_refused(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    reseal(plan_path, lambda d: d["stack"].update(name="../../up"))
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert (code, "no valid name" in err) == (2, True)
    assert nothing_was_done(here)


@pytest.mark.parametrize(
    "flag", [("--confidence", "95"), ("--stack", "x"), ("--alternatives", "0")]
)
def test_flags_of_planning_are_refused_with_a_plan(
    tonnage: Command, here: Path, plan_path: Path, flag: tuple[str, str]
) -> None:
    code, _, err = tonnage("apply", "p.json", "--simulate", *flag)
    assert (code, flag[0] in err) == (2, True)


def test_flags_that_a_plan_was_made_with_are_those_of_its_derivation(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    flags = ("--confidence", "60", "--alternatives", "1")
    assert tonnage("plan", "chat.yaml", "-o", "q.json", *flags)[0] == 0
    assert tonnage("apply", "q.json", "--simulate")[0] == 0


def test_limits_of_cost_and_changes_are_kept(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    cheap = ("--simulate", "--max-cost-per-hour", "0.10")
    code, _, err = tonnage("apply", "p.json", *cheap)
    assert (code, "an hour" in err) == (5, True)
    assert nothing_was_done(here)
    assert tonnage("apply", "p.json", "--simulate")[0] == 0
    spec = here / "chat.yaml"
    spec.write_text(spec.read_text().replace("peak_rps: 2", "peak_rps: 40"))
    assert tonnage("plan", "chat.yaml", "--simulate", "-o", "q.json")[0] == 0
    code, _, err = tonnage(
        "apply", "q.json", "--simulate", "--max-changes", "0"
    )
    assert (code, "--max-changes is 0" in err) == (5, True)
    assert tonnage("apply", "q.json", "--simulate", "--max-changes", "99")[
        0
    ] in (0, 5)


def test_a_plan_expires_with_its_prices(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    code, _, err = tonnage(
        "apply", "p.json", "--simulate", "--max-price-age", "1"
    )
    assert (code, "days old, and --max-price-age is 1" in err) == (13, True)
    assert nothing_was_done(here)
    code, _, err = tonnage(
        "apply", "p.json", "--simulate", "--max-price-age", "3650"
    )
    assert code == 0, err


@pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="no ssh-keygen on PATH"
)
def test_a_signature_tells_who_approved(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    for name in ("mine", "theirs"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name],
            check=True,
        )
    public_key = (here / "mine.pub").read_text()
    (here / "signers").write_text(f"me@example.com {public_key}")
    required = ("--simulate", "--require-approval", "signers")
    code, _, err = tonnage("apply", "p.json", *required)
    assert (code, "tonnage approve p.json" in err) == (5, True)
    assert tonnage("approve", "p.json", "--key", "theirs")[0] == 0
    code, _, err = tonnage("apply", "p.json", *required)
    assert (code, "of nobody in signers" in err) == (5, True)
    code, out, _ = tonnage("approve", "p.json", "--key", "mine")
    assert (code, "approved chat" in out) == (0, True)
    whole = plan_path.read_text()
    # White space is no change of a plan, but of what was signed.
    plan_path.write_text(whole + " ")
    assert tonnage("apply", "p.json", *required)[0] == 5
    plan_path.write_text(whole)
    assert nothing_was_done(here)
    # Signed, it can do without its spec.
    (here / "chat.yaml").unlink()
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert (code, "cannot be derived again" in err) == (11, True)
    code, _, err = tonnage("apply", "p.json", *required)
    assert (code, "approved by me@example.com" in err) == (0, True), err


def test_an_outage_is_asked_for(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    """Where the spec says so, the old machines go first."""
    assert tonnage("apply", "p.json", "--simulate")[0] == 0
    spec = here / "chat.yaml"
    spec.write_text(
        spec.read_text().replace(
            "{clouds: [aws]}",
            "{clouds: [aws], regions: [us-west-2]}\nupdate: recreate",
        )
    )
    code, out, _ = tonnage("plan", "chat.yaml", "--simulate", "-o", "q.json")
    assert code == 0
    document = json.loads((here / "q.json").read_text())
    assert document["changes"]["outage_s"] > 0
    assert "outage of about" in out
    code, _, err = tonnage("apply", "q.json", "--simulate", "--no-input")
    assert (code, "--allow outage" in err) == (5, True)
    code, _, err = tonnage("apply", "q.json", "--simulate", "--allow", "outage")
    assert code == 0, err


def test_an_outage_is_agreed_to_once(tonnage: Command, here: Path) -> None:
    """A run that was cut goes on; another plan for the same stack asks again."""
    (here / "world.yaml").write_text(
        "faults: [{on: create, name: '*-nodes', code: InvalidParameterValue, after: 1}]\n"
    )
    spec, world = here / "chat.yaml", ("--simulate", "world.yaml")

    def planned(region: str) -> None:
        spec.write_text(
            chat(extra=f"where: {{clouds: [aws], regions: [{region}]}}")
        )
        code, _, err = tonnage("plan", "chat.yaml", *world, "-o", "p.json")
        assert code == 0, err

    planned("us-east-1")
    assert tonnage("apply", "p.json", *world)[0] == 0
    planned("us-west-2")
    code, _, err = tonnage("apply", "p.json", *world, "--allow", "outage")
    assert (code, "InvalidParameterValue" in err) == (4, True)
    moved = (here / "p.json").read_bytes()
    planned("us-east-2")
    code, _, err = tonnage("apply", "p.json", *world)
    assert (code, "error[outage]" in err) == (5, True)
    (here / "p.json").write_bytes(moved)
    planned_spec = spec.read_text().replace("us-east-2", "us-west-2")
    spec.write_text(planned_spec)
    code, _, err = tonnage("apply", "p.json", *world)
    assert code == 0, err


def test_changes_are_those_of_the_moment_and_not_of_the_document(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    assert tonnage("apply", "p.json", "--simulate")[0] == 0
    spec = here / "chat.yaml"
    spec.write_text(spec.read_text().replace("peak_rps: 2", "peak_rps: 40"))
    assert tonnage("plan", "chat.yaml", "--simulate", "-o", "q.json")[0] == 0
    reseal(here / "q.json", lambda document: document.update(changes=None))
    code, _, err = tonnage(
        "apply", "q.json", "--simulate", "--max-changes", "0"
    )
    assert (code, "--max-changes is 0" in err) == (5, True)


def test_what_is_not_to_be_allowed_is_said(
    tonnage: Command, plan_path: Path
) -> None:
    code, _, err = tonnage("apply", "p.json", "--simulate", "--allow", "all")
    assert (code, "none of delete-data, drift, outage" in err) == (2, True)


def test_only_regular_files_of_a_reasonable_size_are_read(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    """A pipe would be waited for, and a file of any size would fill the memory."""
    os.mkfifo(here / "pipe.yaml")
    code, _, err = tonnage("plan", "pipe.yaml")
    assert (code, "is no regular file" in err) == (2, True)
    (here / "config.json").unlink()
    with (here / "config.json").open("wb") as sparse_file:
        sparse_file.truncate(3 * 2**30)
    code, _, err = tonnage("plan", "chat.yaml")
    assert (code, "more than 16 MiB" in err) == (2, True)


@pytest.mark.parametrize(
    "name",
    ["2026-01-01", "8b-chat", "goog-x", "my-google", "xn--a", "sthree-x", "٣"],
)
def test_names_that_a_cloud_refuses_are_refused_here(
    tonnage: Command, here: Path, name: str
) -> None:
    (here / "chat.yaml").write_text(
        chat().replace("name: chat", f"name: '{name}'")
    )
    code, _, err = tonnage("check", "chat.yaml")
    assert (code, "chat.yaml:4:" in err) == (2, True), err
    assert tonnage("status", name, "--simulate")[0] == 2


def test_what_is_kept_is_for_the_user_alone(
    tonnage: Command, here: Path, plan_path: Path
) -> None:
    assert tonnage("apply", "p.json", "--simulate")[0] == 0
    kept = [path for path in (here / ".tonnage").rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        if path.suffix != ".lock":
            assert path.stat().st_mode & 0o077 == 0, path
    assert (here / ".tonnage").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_commitments_are_bought_by_people_before_an_apply(
    tonnage: Command, here: Path, cloud: str
) -> None:
    spec = chat(
        traffic="peak_rps: 2\n  profile: flat",
        extra=f"where: {{clouds: [{cloud}]}}\nbuy: {{commit: [1y, 3y]}}",
    )
    (here / "chat.yaml").write_text(spec)
    code, out, _ = tonnage("plan", "chat.yaml", "-o", "p.json")
    assert (code, "to buy before apply" in out) == (0, True)
    pools = json.loads((here / "p.json").read_text())["solution"]["pools"]
    assert {p["term"] for pool in pools for p in pool["purchases"]} <= {
        "1y",
        "3y",
    }
    code, _, err = tonnage("apply", "p.json", "--simulate")
    assert (code, "error[to-buy]" in err) == (5, True)
    assert pools[0]["region"] in err
    assert nothing_was_done(here)
    bought = ("apply", "p.json", "--simulate", "--commitments-bought")
    assert tonnage(*bought)[0] == 0
