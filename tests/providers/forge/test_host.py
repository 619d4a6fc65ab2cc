"""Facts about code hosts: every row is used, and addresses are completed."""

from __future__ import annotations

import click
import pytest

from planner.cli.comment import command
from providers.forge.host import (
    default_api,
    forge_hosts,
    forge_names,
    host_of,
    summary_sizes,
    whole_api,
)
from providers.forge.registry import REQUESTS


def test_every_service_has_a_class_and_the_command_names_every_forge() -> None:
    assert {host.service for host in forge_hosts()} == set(REQUESTS)
    choice = next(p for p in command.params if p.name == "forge").type
    assert isinstance(choice, click.Choice)
    assert tuple(choice.choices) == forge_names()


@pytest.mark.parametrize(
    ("forge", "given", "service", "address"),
    [
        ("github", "", "github", "https://api.github.com"),
        (
            "github",
            "https://ghe.example.com/api/v3/",
            "github",
            "https://ghe.example.com/api/v3",
        ),
        ("gitlab", "", "gitlab", "https://gitlab.com/api/v4"),
        (
            "gitlab",
            "https://example.com/gitlab",
            "gitlab",
            "https://example.com/gitlab/api/v4",
        ),
        (
            "gitlab",
            "https://api.example.com/gitlab/api/v4",
            "gitlab",
            "https://api.example.com/gitlab/api/v4",
        ),
        ("bitbucket", "", "bitbucket-cloud", "https://api.bitbucket.org/2.0"),
        (
            "bitbucket",
            "https://git.example.com/bb/",
            "bitbucket-data-center",
            "https://git.example.com/bb/rest/api/latest",
        ),
        (
            "bitbucket",
            "https://git.example.com/rest/api/1.0",
            "bitbucket-data-center",
            "https://git.example.com/rest/api/1.0",
        ),
        (
            "azure-devops",
            "https://dev.azure.com/acme/",
            "azure-devops",
            "https://dev.azure.com/acme",
        ),
        (
            "azure-devops",
            "https://tfs.example.com/tfs/Default",
            "azure-devops",
            "https://tfs.example.com/tfs/Default",
        ),
    ],
)
def test_addresses_of_own_instances_may_be_below_a_path(
    forge: str, given: str, service: str, address: str
) -> None:
    api = given or default_api(forge)
    host = host_of(forge, api)
    assert host.service == service
    assert whole_api(host, api) == address


def test_a_summary_has_room_for_every_comment() -> None:
    github = max(h.characters for h in forge_hosts() if h.forge == "github")
    assert all(size >= 3 * github for size in summary_sizes().values())
