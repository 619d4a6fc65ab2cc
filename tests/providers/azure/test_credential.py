"""Who is signed in to Azure: which credential is taken, and who it says that one is."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import (
    ClientAssertionCredential,
    ClientSecretCredential,
    DefaultAzureCredential,
)

from planner.errors import CredentialError, UsageError
from providers.azure import credential
from providers.azure.credential import AzureIdentity, open_credential

APPLICATION = {
    "ARM_TENANT_ID": "00000000-0000-0000-0000-000000000001",
    "ARM_CLIENT_ID": "00000000-0000-0000-0000-000000000002",
}


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, DefaultAzureCredential),
        (APPLICATION, DefaultAzureCredential),
        ({"ARM_CLIENT_SECRET": "s"}, DefaultAzureCredential),
        ({**APPLICATION, "ARM_CLIENT_SECRET": "s"}, ClientSecretCredential),
        ({**APPLICATION, "ARM_OIDC_TOKEN": "t"}, ClientAssertionCredential),
    ],
)
def test_the_variables_of_pulumi_come_first(
    environment: dict[str, str], kind: type
) -> None:
    assert isinstance(open_credential(environment), kind)


def token_of(claims: dict[str, str]) -> str:
    parts = [json.dumps({"alg": "RS256"}), json.dumps(claims), "signature"]
    return ".".join(
        base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")
        for part in parts
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [("User", "a"), ("User", "an"), ("ServicePrincipal", "app")],
)
def test_the_caller_is_the_object_of_the_token(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    token = token_of(
        {
            "oid": "0123-4567",
            "name": name,
            "idtyp": "user" if kind == "User" else "app",
        }
    )
    monkeypatch.setattr(
        credential,
        "open_credential",
        lambda _: SimpleNamespace(
            get_token=lambda _: SimpleNamespace(token=token)
        ),
    )
    assert AzureIdentity({}).caller == ("0123-4567", kind)


def test_nobody_who_is_signed_in_is_told_how_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_scope: str) -> None:
        raise ClientAuthenticationError("no token\nand many lines of why")

    monkeypatch.setattr(
        credential,
        "open_credential",
        lambda _: SimpleNamespace(get_token=refuse),
    )
    with pytest.raises(CredentialError) as refusal:
        _ = AzureIdentity({}).caller
    [problem] = refusal.value.problems
    assert problem.cause == "no token"
    assert "az login" in (problem.next_step or "")


def test_the_account_is_the_subscription_of_pulumi_before_that_of_others() -> (
    None
):
    both = {"ARM_SUBSCRIPTION_ID": "one", "AZURE_SUBSCRIPTION_ID": "two"}
    assert AzureIdentity(both).account == "one"
    assert AzureIdentity({"AZURE_SUBSCRIPTION_ID": "two"}).account == "two"
    with pytest.raises(UsageError, match="no subscription of Azure is chosen"):
        _ = AzureIdentity({}).account
