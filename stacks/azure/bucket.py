"""The two containers of a storage account, with the identity that the tools of Azure use."""

from __future__ import annotations

import os

from obstore.auth.azure import AzureCredentialProvider
from obstore.store import AzureStore

from providers.azure.credential import open_credential
from stacks.azure.node import container_of


def open_state(
    container: str, prefix: str, options: dict[str, str]
) -> AzureStore:
    """Return a folder for states; `storage_account` is an option of Pulumi's URLs."""
    account = options.get("storage_account") or os.environ.get(
        "AZURE_STORAGE_ACCOUNT", ""
    )
    return AzureStore(
        container,
        account_name=account,
        prefix=prefix,
        credential_provider=AzureCredentialProvider(
            open_credential(os.environ)
        ),
    )


def open_folder(account: str, _region: str, prefix: str) -> AzureStore:
    """Return the blobs of an account under a prefix."""
    return AzureStore(
        container_of(prefix),
        account_name=account,
        prefix=prefix,
        credential_provider=AzureCredentialProvider(
            open_credential(os.environ)
        ),
    )
