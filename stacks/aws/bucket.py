"""A bucket of S3, with the credentials that the tools of AWS use."""

from __future__ import annotations

from boto3.session import Session
from botocore.exceptions import BotoCoreError
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store


def open_folder(bucket: str, region: str, prefix: str) -> S3Store:
    """Return the objects of a bucket under a prefix. Raises PermissionError without a profile."""
    try:
        session = Session(region_name=region)
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise PermissionError(str(error)) from error
    if credentials is None:
        raise PermissionError("no credentials of AWS are configured")
    return S3Store(
        bucket,
        prefix=prefix,
        region=region,
        # S3 compares every part with its digest.
        checksum_algorithm="SHA256",
        credential_provider=Boto3CredentialProvider(session),
    )
