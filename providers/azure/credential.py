"""Who is signed in to Azure: as the variables of Pulumi say, or as the tools of Azure do."""

from __future__ import annotations

import base64
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.errors import CredentialError, Problem, UsageError
from providers.base import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGEMENT_SCOPE: Final = "https://management.azure.com/.default"
# Pulumi signs in as this application, with a secret, or with a token of a pipeline.
APPLICATION_NAMES: Final = ("ARM_TENANT_ID", "ARM_CLIENT_ID")
SECRET_NAME: Final = "ARM_CLIENT_SECRET"  # noqa: S105 - a name
TOKEN_NAME: Final = "ARM_OIDC_TOKEN"  # noqa: S105 - a name
# Pulumi takes the first, the clients of Azure the second.
SUBSCRIPTION_NAMES: Final = ("ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID")


def chosen_subscription(environment: Mapping[str, str]) -> str:
    """Return the subscription that an environment chooses; empty without one."""
    chosen = (environment.get(name, "") for name in SUBSCRIPTION_NAMES)
    return next(filter(None, chosen), "")


def open_credential(environment: Mapping[str, str]) -> Any:
    """Return what tokens come from: the application of Pulumi, or the login of Azure's tools."""
    from azure.identity import (
        ClientAssertionCredential,
        ClientSecretCredential,
        DefaultAzureCredential,
    )

    # What the library logs of a login is in its error, and people read that.
    logging.getLogger("azure.identity").setLevel(logging.CRITICAL)
    tenant, client = (environment.get(name, "") for name in APPLICATION_NAMES)
    secret = environment.get(SECRET_NAME, "")
    pipeline_token = environment.get(TOKEN_NAME, "")
    if tenant and client and secret:
        return ClientSecretCredential(tenant, client, secret)
    if tenant and client and pipeline_token:
        return ClientAssertionCredential(tenant, client, lambda: pipeline_token)
    return DefaultAzureCredential()


class AzureIdentity(Struct, frozen=True):
    """Who an environment signs in as."""

    environment: Mapping[str, str]

    @property
    def project(self) -> str:
        """Nothing: Azure has no projects."""
        return ""

    @property
    def account(self) -> str:
        """The subscription. Raises UsageError when none is chosen."""
        found = chosen_subscription(self.environment)
        if not found:
            raise UsageError(
                Problem(
                    code="subscription",
                    message="no subscription of Azure is chosen",
                    next_step=f"set {SUBSCRIPTION_NAMES[0]}",
                )
            )
        return found

    @property
    def caller(self) -> Caller:
        """The object id of who is signed in, and its kind. Raises CredentialError without one.

        The claims oid and idtyp of the token:
        https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference
        """
        try:
            from azure.core.exceptions import AzureError

            credential = open_credential(self.environment)
        except ImportError as error:
            raise _nobody(str(error)) from error
        try:
            token: str = credential.get_token(MANAGEMENT_SCOPE).token
        except AzureError as error:
            raise _nobody(str(error).splitlines()[0]) from error
        claims = claims_of(token)
        is_application = claims.get("idtyp") == "app"
        return Caller(
            str(claims["oid"]), "ServicePrincipal" if is_application else "User"
        )


def claims_of(token: str) -> dict[str, Any]:
    """Return what a JSON web token says; its signature is for the cloud to check."""
    payload = token.split(".")[1]
    padding = "=" * (-len(payload) % 4)
    claims: dict[str, Any] = json.loads(
        base64.urlsafe_b64decode(payload + padding)
    )
    return claims


def _nobody(cause: str) -> CredentialError:
    return CredentialError(
        Problem(
            code="credentials",
            message="nobody is signed in to Azure",
            cause=cause,
            next_step=f"az login, or set {', '.join(APPLICATION_NAMES)} and {SECRET_NAME}; "
            "the packages: pip install 'tonnage[azure]'",
        )
    )
