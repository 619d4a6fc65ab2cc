"""The bucket of a standing stack, as its owner reads and writes it.

Real buckets are reached with the credentials of the user, as the tools of the cloud find them.
The bucket of a simulated stack is a folder.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING

from msgspec import Struct
from obstore import exceptions
from obstore.store import LocalStore

from planner.errors import (
    CredentialError,
    MissingError,
    Problem,
    ResourceError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ObjectStore


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

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what a cloud refuses into the errors of tonnage."""
        try:
            yield
        except ModuleNotFoundError as error:
            raise UsageError(
                self._problem(
                    "package",
                    error,
                    f"install them: pip install 'tonnage[{self.provider}]'",
                )
            ) from error
        except FileNotFoundError as error:
            raise MissingError(
                self._problem("bucket", error, "see: tonnage status")
            ) from error
        except (
            PermissionError,
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
        ) as error:
            raise CredentialError(
                self._problem(
                    "credentials",
                    error,
                    "sign in to the account of the stack, then do it again",
                )
            ) from error
        except (exceptions.BaseError, OSError) as error:
            raise ResourceError(
                self._problem(
                    "bucket",
                    error,
                    "do it again: what has arrived is not sent again",
                )
            ) from error

    def _problem(self, code: str, error: Exception, next_step: str) -> Problem:
        # The rest of a text is for those who look for faults in the library.
        cause = str(error).partition("\n\nDebug source")[0].strip()
        return Problem(
            code=code,
            message=f"the bucket {self.name} cannot be used",
            cause=cause or type(error).__name__,
            next_step=next_step,
        )
