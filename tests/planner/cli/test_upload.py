"""The command that brings files to a stack, on simulated clouds."""

from __future__ import annotations

from pathlib import Path

from tests.planner.cli.conftest import Command

BLUEPRINTS = Path(__file__).resolve().parents[3] / "blueprints"


def applied(tonnage: Command, spec: str) -> None:
    code, _, err = tonnage(
        "apply", str(BLUEPRINTS / f"{spec}.yaml"), "--simulate", "--yes"
    )
    assert code == 0, err


def weights(folder: Path) -> Path:
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text(name)
    return folder


def test_an_upload_says_what_it_sent_and_where(
    tonnage: Command, here: Path
) -> None:
    applied(tonnage, "chat-8b")
    folder = weights(here / "weights")
    code, out, err = tonnage("upload", "chat-8b", str(folder), "--simulate")
    assert code == 0
    assert out.startswith("uploaded 3 of 3 files, 42 bytes of 42 bytes, to ")
    assert "/models/llama-3.1-8b/" in out
    assert sorted(line.split()[0] for line in err.splitlines()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    code, out, err = tonnage("upload", "chat-8b", str(folder), "--simulate")
    assert (code, err.count("there already")) == (0, 3)
    assert out.startswith("uploaded 0 of 3 files")


def test_what_cannot_be_uploaded_is_refused_with_a_next_step(
    tonnage: Command, here: Path
) -> None:
    (here / "empty").mkdir()
    code, _, err = tonnage("upload", "nobody", "empty", "--simulate")
    assert code == 6
    assert "tonnage list --simulate" in err
    applied(tonnage, "chat-8b")
    code, _, err = tonnage("upload", "chat-8b", "empty", "--simulate")
    assert code == 2
    assert "empty  error[upload]: config.json is missing, and 2 more" in err
    code, _, err = tonnage("upload", "chat-8b", "nowhere", "--simulate")
    assert (code, "does not exist" in err) == (2, True)
