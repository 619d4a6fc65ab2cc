"""Weights from Hugging Face: the engine's own image brings them to the disk, whole and checked."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import (
    CommandError,
    RequestError,
    read_document,
    write_whole,
)
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

NAME = "tonnage-hub"
DONE = ".tonnage-hub.json"
# In memory. The container that knows it too is removed as soon as it ends.
TOKEN_PATH = "/run/tonnage/hub.env"  # noqa: S105 - the name of a file
# The agent ends a start that takes too long before that.
DOWNLOAD_TIMEOUT_S = 86_400.0
# It goes on where it was cut, and compares every file with its digest. The last words are those
# of `docker run`: repository, revision, folder, and the names of the files.
DOWNLOAD = (
    "import sys; from huggingface_hub import snapshot_download; "
    "snapshot_download(sys.argv[1], revision=sys.argv[2], local_dir=sys.argv[3], "
    "allow_patterns=sys.argv[4:], ignore_patterns=['original/*', 'metal/*', 'consolidated*'])"
)
# Copies of the same weights in other forms are left out above.
FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.tiktoken", "*.jinja")


def fetch_repository(
    machine: Host, cloud: CloudApi, settings: Mapping[str, Any], image: str
) -> None:
    """Bring a repository to a folder. Raises StepError while its token is not there.

    Settings: repository, revision, folder, secret (of the token, empty without one).
    What is whole is not asked for again, also after a reboot without the hub.
    """
    folder: str = settings["folder"]
    path = machine.path(folder)
    wanted = {name: settings[name] for name in ("repository", "revision")}
    if read_document(path / DONE) == wanted:
        return
    path.mkdir(parents=True, exist_ok=True)
    token_path = machine.path(TOKEN_PATH)
    token_words = _write_token(cloud, settings["secret"], token_path)
    machine.run("docker", "rm", "--force", NAME)
    try:
        machine.run(
            "docker",
            "run",
            "--rm",
            f"--name={NAME}",
            "--network=host",
            "--log-driver=journald",
            "--volume=/models:/models",
            *token_words,
            "--entrypoint=python3",
            image,
            "-c",
            DOWNLOAD,
            settings["repository"],
            settings["revision"],
            folder,
            *FILES,
            timeout_s=DOWNLOAD_TIMEOUT_S,
        )
    except CommandError as error:
        raise StepError(
            f"{settings['repository']} does not come from Hugging Face: {error}"
        ) from error
    finally:
        token_path.unlink(missing_ok=True)
    write_whole(path / DONE, json.dumps(wanted))
    machine.log(f"fetched {settings['repository']}")


def _write_token(cloud: CloudApi, secret: str, path: Any) -> list[str]:
    """Write the token where only this machine reads it; return the words that hand it over."""
    if not secret:
        return []
    try:
        token = cloud.secret(secret)
    except RequestError as error:
        raise StepError(
            f"the secret {secret} cannot be read: {error}"
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    file_number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file_number, "w") as stream:
        stream.write(f"HF_TOKEN={token.strip()}\n")
    return [f"--env-file={path}"]
