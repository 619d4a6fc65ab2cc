"""Weights from Hugging Face: the engine's own image brings them to the disk, whole and checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import (
    CommandError,
    read_document,
    write_whole,
)
from stacks.runtime.vm.node.secret import secret_words
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

NAME = "tonnage-hub"
DONE = ".tonnage-hub.json"
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
    machine.run("docker", "rm", "--force", NAME)
    try:
        with secret_words(
            machine, cloud, settings["secret"], "HF_TOKEN"
        ) as token_words:
            machine.run(
                "docker",
                "run",
                # The container that knows the token is removed as soon as it ends.
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
    write_whole(path / DONE, json.dumps(wanted))
    machine.log(f"fetched {settings['repository']}")
