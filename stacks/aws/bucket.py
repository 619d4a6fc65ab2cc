"""A bucket of S3, with the credentials that the tools of AWS use."""

from __future__ import annotations

import os
from typing import Final

from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.store import S3Store

from providers.aws.client import open_session

# Where S3 answers for buckets whose region nobody names.
DEFAULT_REGION: Final = "us-east-1"


def open_state(bucket: str, prefix: str, options: dict[str, str]) -> S3Store:
    """Return a folder for states; `region` is an option of Pulumi's URLs."""
    region = options.get("region") or os.environ.get(
        "AWS_REGION", DEFAULT_REGION
    )
    return open_folder(bucket, region, prefix)


def open_folder(bucket: str, region: str, prefix: str) -> S3Store:
    """Return the objects of a bucket under a prefix. Raises PermissionError without a profile."""
    return S3Store(
        bucket,
        prefix=prefix,
        region=region,
        # S3 compares every part with its digest.
        checksum_algorithm="SHA256",
        credential_provider=Boto3CredentialProvider(open_session(region)),
    )
