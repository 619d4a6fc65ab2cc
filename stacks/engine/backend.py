"""Where states are kept, by the URL of a backend: a folder, or a bucket of a cloud."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from planner.facts.cloud import clouds
from stacks.engine.store import BucketStore, FolderStore
from stacks.operate.bucket_error import bucket_errors

if TYPE_CHECKING:
    from stacks.engine.store import StateStore

# Beside what Pulumi keeps in the same place.
STATE_FOLDER: Final = ".tonnage"


def open_store(backend_url: str | None, folder: Path) -> StateStore:
    """Return what keeps the states of a backend.

    Without a URL, and for services that keep none for us, that is a folder of this machine.
    Raises UsageError without the packages of a cloud, CredentialError without an account.
    """
    url = urlsplit(backend_url or "")
    if url.scheme == "file":
        return FolderStore(Path(unquote(url.path)) / STATE_FOLDER)
    for cloud, facts in clouds().items():
        if url.scheme == facts.state_scheme:
            prefix = "/".join(filter(None, (url.path.strip("/"), STATE_FOLDER)))
            with bucket_errors(cloud, url.netloc):
                objects = import_module(f"stacks.{cloud}.bucket").open_state(
                    url.netloc, prefix, dict(parse_qsl(url.query))
                )
            return BucketStore(
                objects, cloud, f"{url.scheme}://{url.netloc}/{prefix}"
            )
    return FolderStore(folder / "stacks")
