"""Sizes of scaling groups, set with the real clients at services that answer as the clouds do."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from planner.cli.compose import PlanningOptions, standing_stack
from planner.errors import CredentialError, MissingError, UsageError
from stacks.operate.size import GroupSize, find_group, planned_sizes, set_size
from tests.conftest import ROOT
from tests.loopback import Answer, Cloud, Request
from tests.stacks.operate.test_standing import status_of

SIZE = GroupSize(
    name="serve",
    group="chat-serve",
    region="us-east-1",
    resource_group="chat-1234",
    nodes=3,
    step=1,
    usd_hour=Decimal("2.5"),
)
AWS_DONE = """<UpdateAutoScalingGroupResponse
 xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"/>"""
AWS_REFUSED = """<ErrorResponse
 xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><Error>
<Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"""


@pytest.mark.enable_socket
@pytest.mark.parametrize("nodes", [0, 3])
def test_aws_is_asked_for_machines_and_for_room_for_them(
    cloud: Cloud, nodes: int
) -> None:
    cloud.answer = lambda _: (200, AWS_DONE)
    set_size("aws", replace(SIZE, nodes=nodes))
    [request] = cloud.asked
    sent = {k: v[0] for k, v in parse_qs(request.body.decode()).items()}
    assert sent["Action"] == "UpdateAutoScalingGroup"
    assert sent["AutoScalingGroupName"] == "chat-serve"
    assert sent["DesiredCapacity"] == str(nodes)
    # A deadline has set the most to 0; a stop leaves the most of the plan.
    assert sent.get("MaxSize") == ("3" if nodes else None)


@pytest.mark.enable_socket
def test_google_is_asked_where_the_group_is(cloud: Cloud) -> None:
    def answer(request: Request) -> Answer:
        if request.method == "POST":
            return 200, {"status": "RUNNING"}
        assert "filter=name%3Dchat-serve" in request.path
        group = {"name": "chat-serve", "targetSize": 0}
        return 200, {
            "items": {
                "zones/us-east4-a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}},
                "zones/us-east4-b": {"instanceGroupManagers": [group]},
            }
        }

    cloud.answer = answer
    set_size("gcp", SIZE)
    assert urlsplit(cloud.asked[-1].path).path == (
        "/compute/v1/projects/proj/zones/us-east4-b"
        "/instanceGroupManagers/chat-serve/resize"
    )
    assert cloud.asked[-1].path.endswith("?size=3")


@pytest.mark.enable_socket
def test_azure_is_asked_for_a_capacity(cloud: Cloud) -> None:
    set_size("azure", SIZE)
    [request] = cloud.asked
    assert request.method == "PATCH"
    assert urlsplit(request.path).path == (
        "/subscriptions/sub/resourceGroups/chat-1234/providers"
        "/Microsoft.Compute/virtualMachineScaleSets/chat-serve"
    )
    assert request.document() == {"sku": {"capacity": 3}}


@pytest.mark.enable_socket
@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_what_a_cloud_refuses_is_an_error_with_a_next_step(
    provider: str, cloud: Cloud
) -> None:
    cloud.answer = lambda _: (403, AWS_REFUSED if provider == "aws" else {})
    with pytest.raises(CredentialError, match="size of serve"):
        set_size(provider, SIZE)


@pytest.mark.enable_socket
def test_a_group_that_is_gone_is_missing(cloud: Cloud) -> None:
    cloud.answer = lambda _: (200, {"items": {}})
    with pytest.raises(MissingError):
        set_size("gcp", SIZE)


def test_sizes_are_those_of_the_plan(tonnage) -> None:
    status = status_of(tonnage, "chat-8b")
    [size] = planned_sizes(status)
    assert (size.name, size.group, size.nodes) == ("serve", "chat-8b-serve", 1)
    assert status.facts is not None
    assert size.usd_hour == status.facts.usd_hour


def test_machines_beyond_a_commitment_cost_more_than_it(
    tonnage, here: Path
) -> None:
    spec = (ROOT / "blueprints" / "chat-8b.yaml").read_text()
    (here / "spec.yaml").write_text(spec + "buy: {spot: never, commit: 3y}\n")
    code, _, err = tonnage(
        "apply", "spec.yaml", "--simulate", "--commitments-bought", "--yes"
    )
    assert code == 0, err
    options = PlanningOptions(simulate="default")
    [size] = planned_sizes(standing_stack("chat-8b", options))
    assert size.committed == size.nodes == 1
    for machines, told in (("1", "1 machine, $"), ("2", "2 machines, >= $")):
        _, _, err = tonnage("scale", "chat-8b", machines, "--simulate")
        assert told in err


def test_whole_replicas_are_asked_for() -> None:
    sizes = [replace(SIZE, step=2), replace(SIZE, name="prefill")]
    assert find_group(sizes, "chat", "serve", 4).name == "serve"
    for name, nodes, message in (
        ("", 1, "2 pools"),
        ("serve", 3, "whole replicas of 2"),
    ):
        with pytest.raises(UsageError, match=message):
            find_group(sizes, "chat", name, nodes)
    with pytest.raises(MissingError, match="no pool decode"):
        find_group(sizes, "chat", "decode", 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("start", "chat-8b"), "chat-8b serve: 1 machine, $0.70/h"),
        (("stop", "chat-8b"), "chat-8b serve: 0 machines, $0.00/h"),
        (("scale", "chat-8b", "3"), "chat-8b serve: 3 machines, $2.11/h"),
    ],
)
def test_commands_say_what_it_costs(
    tonnage, words: tuple[str, ...], told: str
) -> None:
    status_of(tonnage, "chat-8b")
    code, _, err = tonnage(*words, "--simulate", "--yes")
    assert code == 2
    assert told in err
    assert "its machines always run" in err


def test_stop_says_what_the_rest_costs(tonnage) -> None:
    status = status_of(tonnage, "chat-8b")
    assert status.facts is not None
    _, out, _ = tonnage(
        "plan", str(ROOT / "blueprints/chat-8b.yaml"), "-f", "json"
    )
    bill = {
        line["name"]: Decimal(line["usd"])
        for line in json.loads(out)["cost"]["lines"]
    }
    # The gateway of Google Cloud is paid by the machine and hour.
    stays = ("public address", "load balancer", "object storage")
    watched = ("alert", "scheduler job", "workflow")
    expected = sum(bill[name] for name in (*stays, *watched))
    assert status.facts.standing_usd_month == expected
    _, _, err = tonnage("stop", "chat-8b", "--simulate", "--yes")
    assert f"stays: ${expected:.0f} a month" in err
    _, _, err = tonnage("start", "chat-8b", "--simulate", "--yes")
    assert "stays:" not in err
