"""The two containers of a storage account, with the identity that the tools of Azure use."""

from __future__ import annotations

from azure.identity import DefaultAzureCredential
from obstore.auth.azure import AzureCredentialProvider
from obstore.store import AzureStore

from stacks.azure.node import container_of


def open_folder(account: str, _region: str, prefix: str) -> AzureStore:
    """Return the blobs of an account under a prefix."""
    return AzureStore(
        container_of(prefix),
        account_name=account,
        prefix=prefix,
        credential_provider=AzureCredentialProvider(DefaultAzureCredential()),
    )
