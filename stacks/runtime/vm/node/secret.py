"""A secret of the cloud's store, for one container: never in words, logs or files that stay."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stacks.runtime.vm.node.host import RequestError
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

# In memory, and only while a container is made.
FOLDER = "/run/tonnage"


@contextmanager
def secret_words(
    machine: Host, cloud: CloudApi, secret: str, variable: str
) -> Iterator[list[str]]:
    """Yield the words of docker run that hand a secret over as a variable; none without a name.

    Raises StepError while the store does not give it.
    """
    if not secret:
        yield []
        return
    try:
        value = cloud.secret(secret)
    except RequestError as error:
        raise StepError(
            f"the secret {secret} cannot be read: {error}"
        ) from error
    path = machine.path(f"{FOLDER}/{variable}.env")
    try:
        write_private(path, f"{variable}={value.strip()}\n")
        yield [f"--env-file={path}"]
    finally:
        path.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, in place of an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    file_number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file_number, "w") as stream:
        stream.write(text)
