"""Secrets in what tonnage is given, and whether one of them comes out again.

Each is planted where people put it, a stack is planned, applied and looked at, and everything that
was printed or written is searched.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from planner.cli.main import run
from tests.conftest import chat

SECRET: Final = "hunter2-S3cr3t/Value+x"
QUOTED: Final = quote(SECRET, safe="")


class Plant(Struct, frozen=True, kw_only=True):
    """Where a secret is.

    variables  of the environment
    flags      of every command
    extra      lines of the spec
    """

    name: str
    variables: dict[str, str] = {}
    flags: tuple[str, ...] = ()
    weights: str = ""
    extra: str = ""


PLANTS: Final = (
    Plant(
        name="backend with a password",
        flags=("--backend", f"s3://user:{QUOTED}@bucket/states"),
    ),
    Plant(
        name="backend with a secret key",
        flags=("--backend", f"s3://bucket/states?secret_access_key={QUOTED}"),
    ),
    Plant(
        name="backend with a signature",
        flags=("--backend", f"azblob://states?sig={QUOTED}"),
    ),
    Plant(
        name="backend of another kind",
        flags=("--backend", f"https://user:{QUOTED}@states.example/x"),
    ),
    Plant(
        name="backend in the environment",
        variables={"TONNAGE_BACKEND": f"s3://k:{QUOTED}@bucket"},
    ),
    Plant(
        name="proxy",
        variables={
            "HTTPS_PROXY": f"http://user:{QUOTED}@127.0.0.1:9",
            "https_proxy": f"http://user:{QUOTED}@127.0.0.1:9",
        },
    ),
    Plant(
        name="keys of AWS",
        variables={
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_SESSION_TOKEN": SECRET,
        },
    ),
    Plant(name="keys of Azure", variables={"AZURE_CLIENT_SECRET": SECRET}),
    Plant(
        name="passphrase of Pulumi",
        variables={
            "PULUMI_CONFIG_PASSPHRASE": SECRET,
            "PULUMI_ACCESS_TOKEN": SECRET,
        },
    ),
    Plant(
        name="token of a model hub",
        variables={"HF_TOKEN": SECRET, "HUGGING_FACE_HUB_TOKEN": SECRET},
    ),
    Plant(
        name="location of weights",
        weights=f"s3://user:{QUOTED}@bucket/llama",
    ),
    Plant(
        name="address to notify",
        extra=f'notify: ["https://user:{QUOTED}@hooks.example/x?token={QUOTED}"]',
    ),
)
COMMANDS: Final = (
    ("plan", "s.yaml", "-o", "p.json"),
    ("apply", "p.json", "--simulate", "--yes"),
    ("status", "chat", "--simulate", "--full"),
    ("history", "chat", "--simulate"),
    ("destroy", "chat", "--simulate", "--yes", "--allow", "delete-data"),
)


def spec_text(plant: Plant) -> str:
    """Return a spec, with the secret where it is planted there."""
    model = "llama-3.1-8b"
    if plant.weights:
        model += f", weights: '{plant.weights}'"
    return chat(model, extra=plant.extra)


def leaks(plant: Plant, folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield each command, and what it showed or wrote of the secret; nothing when it kept it."""
    (folder / "s.yaml").write_text(spec_text(plant))
    for command in COMMANDS:
        printed = printed_by(command, plant, folder)
        places = ["the terminal"] if _is_in(printed) else []
        places += [
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.is_file()
            and path.name != "s.yaml"
            and _is_in(path.read_text("utf-8", "replace"))
        ]
        yield f"{plant.name}: {command[0]}", ", ".join(places) or None


def printed_by(command: tuple[str, ...], plant: Plant, folder: Path) -> str:
    """Run a command where a secret is planted, and return what it prints."""
    printed = io.StringIO()
    with (
        _inside(folder, plant.variables),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        run([*command, *plant.flags])
    return printed.getvalue()


def _is_in(text: str) -> bool:
    encoded = base64.b64encode(SECRET.encode()).decode().rstrip("=")
    return any(form in text for form in (SECRET, QUOTED, encoded[:-1]))


@contextmanager
def _inside(folder: Path, variables: dict[str, str]) -> Iterator[None]:
    """Be in a folder, with variables of an environment."""
    before, home = dict(os.environ), Path.cwd()
    os.environ.update(variables, HOME=str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(home)
        os.environ.clear()
        os.environ.update(before)
