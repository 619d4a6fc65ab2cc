"""Azure as the owner of a stack sees it: with the identity that the tools of Azure use."""

from __future__ import annotations

import os

from azure.core.exceptions import AzureError
from requests import Session

from providers.azure.credential import (
    SUBSCRIPTION_NAMES,
    chosen_subscription,
    open_credential,
)
from providers.live.rest import with_retries


def open_session(resource: str) -> Session:
    """Return a session for a resource of Azure. Raises PermissionError without a login."""
    try:
        credential = open_credential(os.environ)
        token = credential.get_token(f"{resource}/.default").token
    except AzureError as error:
        # What follows the first line is about each way to sign in that was tried.
        raise PermissionError(str(error).splitlines()[0]) from error
    session = Session()
    session.headers["authorization"] = f"Bearer {token}"
    with_retries(session)
    return session


def subscription_url(root: str, path: str, version: str) -> str:
    """Return the address of a path below the subscription, in a version of its service."""
    mark = "&" if "?" in path else "?"
    return f"{root}/subscriptions/{subscription()}{path}{mark}api-version={version}"


def subscription() -> str:
    """Return the subscription that is chosen. Raises PermissionError without one."""
    chosen = chosen_subscription(os.environ)
    if not chosen:
        raise PermissionError(
            f"no subscription is chosen: set {SUBSCRIPTION_NAMES[0]}"
        )
    return chosen
