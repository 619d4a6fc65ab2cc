"""The bucket of a standing stack, as its owner reads and writes it.

Real buckets are reached with the credentials of the user, as the tools of the cloud find them.
The bucket of a simulated stack is a folder.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from obstore import exceptions
from obstore.store import LocalStore

from planner.errors import (
    CredentialError,
    MissingError,
    Place,
    Problem,
    ResourceError,
    TonnageError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ObjectStore


# How clouds and their clients say that they do not know the user.
REFUSALS: Final = (
    PermissionError,
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
)


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

    def forget(self) -> None:
        """Delete the folder of a bucket that is simulated."""
        if self.simulated_folder is not None:
            shutil.rmtree(self.simulated_folder, ignore_errors=True)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what a cloud refuses, or a file that cannot be read, into the errors of tonnage."""
        try:
            yield
        except (ModuleNotFoundError, exceptions.BaseError, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> TonnageError:
        # What the system says of a file of the user has its name; obstore gives none.
        if isinstance(error, OSError) and error.filename is not None:
            return UsageError(
                Problem(
                    code="file",
                    message=error.strerror or "cannot be read",
                    place=Place(str(error.filename)),
                    next_step="check the file, then do it again",
                )
            )
        if isinstance(error, ModuleNotFoundError):
            next_step = f"install them: pip install 'tonnage[{self.provider}]'"
            return UsageError(self._problem("package", error, next_step))
        if isinstance(error, FileNotFoundError):
            return MissingError(
                self._problem("bucket", error, "see: tonnage status")
            )
        if isinstance(error, REFUSALS):
            next_step = "sign in to the account of the stack, then do it again"
            return CredentialError(
                self._problem("credentials", error, next_step)
            )
        next_step = "do it again: what has arrived is not sent again"
        return ResourceError(self._problem("bucket", error, next_step))

    def _problem(self, code: str, error: Exception, next_step: str) -> Problem:
        # The rest of a text is for those who look for faults in the library.
        cause = str(error).partition("\n\nDebug source")[0].strip()
        return Problem(
            code=code,
            message=f"the bucket {self.name} cannot be used",
            cause=cause or type(error).__name__,
            next_step=next_step,
        )
