"""Who is signed in to AWS, as its own tools say."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from planner.errors import CredentialError, Problem
from providers.base import Caller

# Every region answers who somebody is; this one is open to all accounts.
STATED_REGION: Final = "us-east-1"


class AwsIdentity:
    """The account that the credentials of a command belong to."""

    @property
    def project(self) -> str:
        """Nothing: AWS has no projects."""
        return ""

    @cached_property
    def account(self) -> str:
        """The number of the account. Raises CredentialError when nobody is signed in.

        GetCallerIdentity, which needs no right:
        https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
        """
        try:
            from boto3.session import Session
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            raise _nobody(str(error)) from error
        try:
            session = Session()
            region = session.region_name or STATED_REGION
            answer = session.client(
                "sts", region_name=region
            ).get_caller_identity()
        except (BotoCoreError, ClientError) as error:
            raise _nobody(str(error)) from error
        return str(answer["Account"])

    @property
    def caller(self) -> Caller:
        """Nobody: no graph of AWS names who is signed in."""
        return Caller()


def _nobody(cause: str) -> CredentialError:
    return CredentialError(
        Problem(
            code="credentials",
            message="nobody is signed in to AWS",
            cause=cause,
            next_step="aws sso login, or set AWS_PROFILE; "
            "the packages: pip install 'tonnage[aws]'",
        )
    )
