"""Lookups of AWS objects: the real client checks requests, and the answers that it is given."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from planner.facts import table
from stacks.aws import find

LOOKUPS = {
    row["type"]: row["lookup"]
    for row in table.read_rows(
        table.data_text("stacks", "import_ids.csv"),
        "import_ids.csv",
        dict.fromkeys(
            ("type", "template", "lookup", "again", "note", "source", "as_of"),
            str,
        ),
    )
    if row["type"].startswith("aws:") and row["lookup"]
}
TAGS = {"tonnage-stack": "chat", "Name": "chat-net"}
TAG_LIST = [{"Key": key, "Value": value} for key, value in TAGS.items()]
TAG_FILTERS = [
    {"Name": "tag:Name", "Values": ["chat-net"]},
    {"Name": "tag:tonnage-stack", "Values": ["chat"]},
]


def found_ids(
    monkeypatch: pytest.MonkeyPatch,
    resource_type: str,
    inputs: dict[str, Any],
    request: dict[str, Any],
    answer: dict[str, Any],
) -> list[str]:
    """Look a resource up, with an answer that the client has checked."""
    lookup = LOOKUPS[resource_type]
    client_name, operation = lookup.partition("|")[0].split(".")
    client = boto3.client(
        client_name,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )

    @contextmanager
    def service(name: str, region: str) -> Any:
        assert (name, region) == (client_name, "us-east-1")
        yield client

    monkeypatch.setattr(find, "service", service)
    with Stubber(client) as stub:
        stub.add_response(operation, answer, request)
        return find.object_ids(lookup, inputs, "us-east-1")


def test_objects_are_found_by_their_tags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found_ids(
        monkeypatch,
        "aws:ec2/vpc:Vpc",
        {"cidrBlock": "10.0.0.0/16", "tags": TAGS},
        {"Filters": TAG_FILTERS},
        {"Vpcs": [{"VpcId": "vpc-1"}, {"VpcId": "vpc-2"}]},
    ) == ["vpc-1", "vpc-2"]


def test_what_is_being_deleted_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found_ids(
        monkeypatch,
        "aws:ec2/natGateway:NatGateway",
        {"tags": TAGS},
        {"Filter": TAG_FILTERS},
        {
            "NatGateways": [
                {"NatGatewayId": "nat-old", "State": "deleted"},
                {"NatGatewayId": "nat-new", "State": "pending"},
            ]
        },
    ) == ["nat-new"]


def test_objects_are_found_by_a_name_that_was_made_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arn = "arn:aws:elasticloadbalancing:us-east-1:1:loadbalancer/net/b/1"
    assert found_ids(
        monkeypatch,
        "aws:lb/loadBalancer:LoadBalancer",
        {"name": "balancer-1a2b"},
        {"Names": ["balancer-1a2b"]},
        {"LoadBalancers": [{"LoadBalancerArn": arn}]},
    ) == [arn]


def test_rules_are_found_by_what_they_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = {
        "GroupId": "sg-1",
        "IsEgress": False,
        "IpProtocol": "tcp",
        "FromPort": 8000,
        "ToPort": 8000,
        "CidrIpv4": "10.0.0.0/8",
    }
    assert found_ids(
        monkeypatch,
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        {
            "securityGroupId": "sg-1",
            "ipProtocol": "tcp",
            "fromPort": 8000,
            "toPort": 8000,
            "cidrIpv4": "10.0.0.0/8",
        },
        {"Filters": [{"Name": "group-id", "Values": ["sg-1"]}]},
        {
            "SecurityGroupRules": [
                {**rule, "SecurityGroupRuleId": "sgr-1"},
                {**rule, "SecurityGroupRuleId": "sgr-2", "FromPort": 22},
                {**rule, "SecurityGroupRuleId": "sgr-3", "IsEgress": True},
            ]
        },
    ) == ["sgr-1"]


def test_tags_are_compared_where_a_service_has_no_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found_ids(
        monkeypatch,
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        {"tags": TAGS},
        {},
        {
            "FileSystems": [
                {"FileSystemId": "fs-0123456789abcdef0", "Tags": TAG_LIST},
                {"FileSystemId": "fs-0123456789abcdef1", "Tags": TAG_LIST[:1]},
                {
                    "FileSystemId": "fs-0123456789abcdef2",
                    "Tags": TAG_LIST,
                    "Lifecycle": "DELETING",
                },
            ]
        },
    ) == ["fs-0123456789abcdef0"]
