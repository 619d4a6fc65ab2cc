"""A bucket of Cloud Storage, with the default credentials of applications."""

from __future__ import annotations

from google.auth.exceptions import DefaultCredentialsError
from obstore.auth.google import GoogleCredentialProvider
from obstore.store import GCSStore


def open_state(bucket: str, prefix: str, _options: dict[str, str]) -> GCSStore:
    """Return a folder for states."""
    return open_folder(bucket, "", prefix)


def open_folder(bucket: str, _region: str, prefix: str) -> GCSStore:
    """Return the objects of a bucket under a prefix. Raises PermissionError without an account."""
    try:
        provider = GoogleCredentialProvider()
    except DefaultCredentialsError as error:
        raise PermissionError(str(error)) from error
    return GCSStore(bucket, prefix=prefix, credential_provider=provider)
