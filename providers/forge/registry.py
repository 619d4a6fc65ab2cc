"""One line for each code host: the class that speaks with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from providers.forge.azure_devops import AzureDevOpsRequest
from providers.forge.bitbucket import BitbucketCloudRequest
from providers.forge.data_center import DataCenterRequest
from providers.forge.github import GitHubRequest
from providers.forge.gitlab import GitLabRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from providers.forge.protocol import Forge
    from providers.forge.transport import Transport

REQUESTS: Final[Mapping[str, Callable[[Transport, str, int], Forge]]] = {
    "github": GitHubRequest,
    "gitlab": GitLabRequest,
    "bitbucket-cloud": BitbucketCloudRequest,
    "bitbucket-data-center": DataCenterRequest,
    "azure-devops": AzureDevOpsRequest,
}


def open_request(transport: Transport, repository: str, request: int) -> Forge:
    """Return the request of a repository at a code host."""
    return REQUESTS[transport.host.service](transport, repository, request)
