"""The bucket of a standing stack, as its owner reads and writes it.

Real buckets are reached with the credentials of the user, as the tools of the cloud find them.
The bucket of a simulated stack is a folder.
"""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Final

import obstore
from msgspec import Struct
from msgspec.structs import replace
from obstore.store import LocalStore

from stacks.operate.bucket_error import bucket_errors

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from obstore.store import ObjectStore


# Counting more objects takes longer than a person waits.
MOST_COUNTED: Final = 100_000


class Contents(Struct, frozen=True, kw_only=True):
    """What is in a bucket; when it is not whole, there is more."""

    objects: int = 0
    size_bytes: int = 0
    is_whole: bool = True


class Bucket(Struct, frozen=True, kw_only=True):
    """A bucket.

    provider          cloud
    name              name in the cloud; on Azure the storage account
    region            region of the stack
    simulated_folder  what stands for a simulated bucket; none for a real one
    """

    provider: str
    name: str
    region: str
    simulated_folder: Path | None = None

    def folder(self, prefix: str) -> ObjectStore:
        """Return what reads and writes the objects whose keys begin with a prefix.

        Raises UsageError without the packages of the cloud, CredentialError without an account.
        """
        with self.errors():
            if self.simulated_folder is not None:
                return LocalStore(self.simulated_folder / prefix, mkdir=True)
            store: ObjectStore = import_module(
                f"stacks.{self.provider}.bucket"
            ).open_folder(self.name, self.region, prefix)
            return store

    def contents(self) -> Contents:
        """Count what is in it. Raises the errors of `folder`."""
        store = self.folder("")
        found = Contents()
        with self.errors():
            for page in obstore.list(store):
                found = Contents(
                    objects=found.objects + len(page),
                    size_bytes=found.size_bytes
                    + sum(meta["size"] for meta in page),
                )
                if found.objects >= MOST_COUNTED:
                    return replace(found, is_whole=False)
        return found

    def forget(self) -> None:
        """Delete the folder of a bucket that is simulated."""
        if self.simulated_folder is not None:
            shutil.rmtree(self.simulated_folder, ignore_errors=True)

    def errors(self) -> AbstractContextManager[None]:
        """Turn what a cloud refuses, or a file that cannot be read, into the errors of tonnage."""
        return bucket_errors(self.provider, self.name)
