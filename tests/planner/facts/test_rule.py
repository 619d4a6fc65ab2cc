"""Rules as data: each refuses what it is there for, and nothing that is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from planner.errors import MissingError
from planner.facts.cloud import clouds
from planner.facts.cloud_limit import cloud_limit
from planner.facts.rule import (
    EVERY_CLOUD,
    Condition,
    broken_rules,
    find_rule,
    rule_of_limit,
    rules,
    rules_of,
)
from planner.solve.cloud_rule import (
    GROUP_LIMIT,
    PROFILE_LIMIT,
    RESERVED_LIMIT,
)
from stacks.build import build_stack
from tests.conftest import ROOT, find, spec_of
from tests.planner.spec.test_block import training
from tests.planner.spec.test_reservation import RESERVED
from tests.planner.spec.test_reservation import spec as reserving

CASES = sorted((ROOT / "tests/cases").glob("*/*/graph.json"))
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
GCP_TEMPLATE = "gcp:compute/instanceTemplate:InstanceTemplate"
BUCKET = {"type": "aws:s3/bucket:Bucket", "$name": "models"}
# What breaks each rule on graphs: one resource, and what it refers to.
BREAKING: dict[str, dict[str, Any]] = {
    "aws-block-mixed": {
        "type": GROUP,
        "mixedInstancesPolicy": {
            "launchTemplate": {
                "launchTemplateSpecification": {
                    "launchTemplateId": {"$ref": "block", "output": "id"}
                },
                "overrides": [{}],
            },
        },
    },
    "aws-block-placement": {
        "type": GROUP,
        "launchTemplate": {"id": {"$ref": "block", "output": "id"}},
        "placementGroup": "p",
    },
    "aws-fabric-address": {
        "type": TEMPLATE,
        "networkInterfaces": [
            {"networkCardIndex": 0, "associatePublicIpAddress": "true"},
            {"networkCardIndex": 1},
        ],
    },
    "aws-reservation-types": {
        "type": GROUP,
        "mixedInstancesPolicy": {
            "launchTemplate": {
                "launchTemplateSpecification": {
                    "launchTemplateId": {"$ref": "reserved", "output": "id"}
                },
                "overrides": [{}],
            },
        },
    },
    "aws-warm-spot": {
        "type": GROUP,
        "warmPool": {},
        "mixedInstancesPolicy": {},
    },
    "azure-availability-spot": {
        "type": "azure-native:compute:VirtualMachine",
        "priority": "Spot",
        "availabilitySet": {"id": "a"},
    },
    "azure-infiniband-mix": {
        "type": SCALE_SET,
        "singlePlacementGroup": True,
        "priorityMixPolicy": {},
    },
    "azure-infiniband-mode": {
        "type": SCALE_SET,
        "singlePlacementGroup": True,
        "orchestrationMode": "Flexible",
    },
    "azure-infiniband-reservation": {
        "type": SCALE_SET,
        "singlePlacementGroup": True,
        "virtualMachineProfile": {"capacityReservation": {}},
    },
    "gcp-flex-spot": {
        "type": GCP_TEMPLATE,
        "scheduling": {"provisioningModel": "FLEX_START", "preemptible": True},
    },
    "gcp-reservation-spot": {
        "type": GCP_TEMPLATE,
        "scheduling": {"provisioningModel": "SPOT"},
        "reservationAffinity": {"type": "SPECIFIC_RESERVATION"},
    },
    "gcp-roce-firewall": {
        "type": "gcp:compute/firewall:Firewall",
        "network": {"$ref": "rails", "output": "id"},
    },
    "sec-aws-metadata": {"type": TEMPLATE, "metadataOptions": {}},
    "sec-aws-hops": {
        "type": TEMPLATE,
        "metadataOptions": {"httpPutResponseHopLimit": 3},
    },
    "sec-aws-public-address": {
        "type": TEMPLATE,
        "networkInterfaces": [{"associatePublicIpAddress": "true"}],
    },
    "sec-aws-open-ingress": {
        "type": "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        "cidrIpv4": "0.0.0.0/0",
    },
    "sec-aws-disk": {
        "type": TEMPLATE,
        # One disk that is encrypted does not speak for the others.
        "blockDeviceMappings": [
            {"ebs": {"encrypted": "true"}},
            {"ebs": {"volumeSize": 8}},
        ],
    },
    "sec-aws-bucket-public": BUCKET,
    "sec-aws-bucket-tls": BUCKET,
    "sec-aws-balancer-public": {"type": "aws:lb/loadBalancer:LoadBalancer"},
    "sec-aws-admin": {
        "type": "aws:iam/rolePolicy:RolePolicy",
        "policy": '{"Statement":[{"Action":"*"}]}',
    },
    "sec-aws-admin-list": {
        "type": "aws:iam/rolePolicy:RolePolicy",
        "policy": '{"Statement":[{"Action":["*"]}]}',
    },
    "sec-aws-admin-managed": {
        "type": "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "policyArn": "arn:aws:iam::aws:policy/AdministratorAccess",
    },
    "sec-aws-identity": {
        "type": "aws:iam/rolePolicy:RolePolicy",
        "policy": '{"Statement":[{"Action":["s3:GetObject","iam:*"]}]}',
    },
    "sec-aws-open-ingress6": {
        "type": "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        "cidrIpv6": "::/0",
    },
    "sec-aws-volume": {"type": "aws:ebs/volume:Volume"},
    "sec-aws-egress": {"type": "aws:ec2/natGateway:NatGateway"},
    "sec-aws-flow-logs": {"type": "aws:ec2/vpc:Vpc", "$name": "own"},
    "sec-aws-own-key": {"type": TEMPLATE, "blockDeviceMappings": [{"ebs": {}}]},
    "sec-azure-egress": {"type": "azure-native:network:NatGateway"},
    "sec-azure-flow-logs": {
        "type": "azure-native:network:VirtualNetwork",
        "$name": "own",
    },
    "sec-azure-open-ingress-list": {
        "type": "azure-native:network:NetworkSecurityGroup",
        "securityRules": [
            {
                "sourceAddressPrefixes": ["10.0.0.0/8", "Internet"],
                "access": "Allow",
                "direction": "Inbound",
            }
        ],
    },
    "sec-azure-own-key": {"type": SCALE_SET},
    "sec-azure-role": {
        "type": "azure-native:authorization:RoleDefinition",
        "permissions": [{"actions": ["*"]}],
    },
    "sec-gcp-egress": {"type": "gcp:compute/routerNat:RouterNat"},
    "sec-gcp-own-key": {"type": GCP_TEMPLATE, "disks": [{}]},
    "sec-gcp-role": {
        "type": "gcp:projects/iAMMember:IAMMember",
        "role": "roles/editor",
    },
    "sec-gcp-public-address": {
        "type": GCP_TEMPLATE,
        "networkInterfaces": [{"accessConfigs": [{}]}],
    },
    "sec-gcp-open-ingress": {
        "type": "gcp:compute/firewall:Firewall",
        "sourceRanges": ["10.0.0.0/8", "0.0.0.0/0"],
        "allows": [{"protocol": "tcp", "ports": ["443", "8000"]}],
    },
    "sec-gcp-bucket-public": {"type": "gcp:storage/bucket:Bucket"},
    "sec-gcp-bucket-access": {"type": "gcp:storage/bucket:Bucket"},
    "sec-gcp-balancer-public": {
        "type": "gcp:compute/forwardingRule:ForwardingRule",
        "loadBalancingScheme": "EXTERNAL",
    },
    "sec-aws-http": {"type": "aws:lb/listener:Listener", "protocol": "TCP"},
    "sec-gcp-http": {
        "type": "gcp:compute/forwardingRule:ForwardingRule",
        "ports": ["8000"],
    },
    "sec-azure-http": {
        "type": "azure-native:network:LoadBalancer",
        "loadBalancingRules": [{"frontendPort": 8000}],
    },
    "sec-gcp-login": {"type": GCP_TEMPLATE},
    "sec-gcp-account": {"type": GCP_TEMPLATE},
    "sec-gcp-boot": {"type": GCP_TEMPLATE},
    "sec-gcp-flow-logs": {"type": "gcp:compute/subnetwork:Subnetwork"},
    "sec-azure-password": {"type": SCALE_SET},
    "sec-azure-public-address": {
        "type": SCALE_SET,
        "virtualMachineProfile": {
            "networkProfile": {
                "networkInterfaceConfigurations": [
                    {
                        "ipConfigurations": [
                            {"publicIPAddressConfiguration": {"name": "p"}}
                        ]
                    }
                ]
            }
        },
    },
    "sec-azure-balancer-public": {
        "type": "azure-native:network:LoadBalancer",
        "frontendIPConfigurations": [{"publicIPAddress": {"id": "a"}}],
    },
    "sec-azure-open-ingress": {
        "type": "azure-native:network:NetworkSecurityGroup",
        "securityRules": [
            {
                "sourceAddressPrefix": "*",
                "access": "Allow",
                "direction": "Inbound",
            }
        ],
    },
    "sec-azure-store-public": {"type": "azure-native:storage:StorageAccount"},
    "sec-azure-store-keys": {"type": "azure-native:storage:StorageAccount"},
    "sec-azure-store-tls": {
        "type": "azure-native:storage:StorageAccount",
        "minimumTlsVersion": "TLS1_0",
    },
    "sec-azure-store-https": {
        "type": "azure-native:storage:StorageAccount",
        "enableHttpsTrafficOnly": False,
    },
}
OTHERS = {
    "rails": {"type": "n", "networkProfile": "p", "$name": "rails"},
    "block": {
        "type": TEMPLATE,
        "instanceMarketOptions": {"marketType": "capacity-block"},
        "$name": "block",
    },
    "reserved": {
        "type": TEMPLATE,
        "capacityReservationSpecification": {},
        "$name": "reserved",
    },
}
# What a spec may still have, as long as nobody asks for more: each is told by check --security.
TOLD = {
    "sec-aws-egress",
    "sec-aws-flow-logs",
    "sec-aws-own-key",
    "sec-azure-egress",
    "sec-azure-flow-logs",
    "sec-azure-own-key",
    "sec-gcp-egress",
    "sec-gcp-own-key",
    "sec-gcp-flow-logs",
    "sec-aws-http",
    "sec-gcp-http",
    "sec-azure-http",
    "sec-aws-balancer-public",
    "sec-azure-balancer-public",
    "sec-gcp-balancer-public",
}


def resources(path: Path) -> list[tuple[str, str, dict[str, Any]]]:
    found = json.loads(path.read_text())["resources"]
    return [(*key.split(" "), value["inputs"]) for key, value in found.items()]


@pytest.mark.parametrize(
    "rule",
    [rule for rule in rules().values() if rule.phase in ("graph", "security")],
    ids=lambda rule: rule.id,
)
def test_every_rule_on_graphs_is_broken_by_something(rule) -> None:
    """And by nothing when it is not of the type: a rule that refuses all says nothing."""
    facts = BREAKING[rule.id]
    assert rule.is_broken(facts, {**OTHERS, "own": facts})
    assert not rule.is_broken({**facts, "type": "another"}, OTHERS)


def test_there_is_no_example_without_a_rule() -> None:
    assert BREAKING.keys() <= rules().keys()


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.parent.name)
def test_nothing_that_is_built_breaks_a_rule(path: Path) -> None:
    cloud = path.parent.parent.name
    for phase in ("graph", "security"):
        broken = broken_rules(phase, cloud, resources(path))
        assert {rule.id for rule, _ in broken} <= TOLD


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("aws-block-placement", training()),
        ("aws-block-mixed", training()),
        ("aws-reservation-types", reserving(RESERVED["aws"])),
    ],
)
def test_rules_read_graphs_as_they_are_built(
    catalog, rule: str, text: str
) -> None:
    """A graph with what a rule forbids, made of one that is built, breaks it."""
    spec = spec_of(text)
    graph = build_stack(spec, find(catalog, text, keep=0), spec.name).graph
    parts = []
    for resource in graph.resources:
        inputs = dict(resource.inputs)
        if resource.type == GROUP:
            template = inputs["launchTemplate"]
            if rule == "aws-block-placement":
                inputs["placementGroup"] = "p"
            else:
                inputs["mixedInstancesPolicy"] = {
                    "launchTemplate": {
                        "launchTemplateSpecification": {
                            "launchTemplateId": template["id"]
                        },
                        "overrides": [{"instanceType": "x"}],
                    }
                }
        parts.append((resource.type, resource.name, inputs))
    untouched = [(r.type, r.name, r.inputs) for r in graph.resources]
    assert broken_rules("graph", "aws", untouched) == []
    assert rule in {
        found.id for found, _ in broken_rules("graph", "aws", parts)
    }


def test_every_rule_on_machines_refuses_one_that_is_sold(catalog) -> None:
    """And each machine that is refused is refused for one reason."""
    refused: dict[str, set[str]] = {}
    every = (*catalog.offers, *catalog.unlisted)
    for instance in {offer.instance for offer in every}:
        for rule in (
            *rules_of("machine", instance.provider),
            *rules_of("software", instance.provider),
        ):
            if rule.is_broken(asdict(instance)):
                refused.setdefault(rule.id, set()).add(instance.instance_type)
    known = {
        rule.id
        for rule in rules().values()
        if rule.phase in ("machine", "software")
    }
    # These are in no catalog of prices, but may be in that of a user.
    assert known - refused.keys() == {
        "arm64-image",
        "gaudi-image",
        "nvlink-rack-reservation",
    }


def test_every_limit_that_refuses_a_fleet_has_a_rule() -> None:
    """And every rule on fleets names a limit that there is."""
    for rule in rules().values():
        if rule.phase == "fleet":
            assert rule.cloud != EVERY_CLOUD
            assert rule.limit is not None, rule.id
    for cloud in clouds():
        for limit in (
            f"infiniband_{GROUP_LIMIT}",
            f"tcpx_{GROUP_LIMIT}",
            RESERVED_LIMIT,
        ):
            if cloud_limit(cloud, limit) is not None:
                assert rule_of_limit(cloud, limit) is not None
        if cloud_limit(cloud, PROFILE_LIMIT) is not None:
            assert rule_of_limit(cloud, PROFILE_LIMIT) is not None


@pytest.mark.parametrize(
    ("path", "operator", "value", "facts", "holds"),
    [
        ("a.b", "is", "1", {"a": [{"b": 2}, {"b": 1}]}, True),
        ("a.b", "is", "1", {"a": {"b": [2, 3]}}, False),
        ("a", "is", "true", {"a": True}, True),
        ("a", "not", "x", {}, True),
        ("a", "not", "x", {"a": ["x", "y"]}, False),
        ("a", "in", "x|y", {"a": "y"}, True),
        ("a", "above", "2", {"a": 2}, False),
        ("a", "above", "2", {"a": "3"}, False),
        ("a", "below", "1", {"a": 0.5}, True),
        ("a", "overlaps", "10.0.0.0/8", {"a": "10.4.0.0/16"}, True),
        ("a", "overlaps", "10.0.0.0/8", {"a": "11.0.0.0/16"}, False),
        ("a", "has", "b=1|2,c=x", {"a": [{"b": 2, "c": "x"}]}, True),
        # What two elements have together, none of them has.
        ("a", "has", "b=1,c=x", {"a": [{"b": 1}, {"c": "x"}]}, False),
        ("a", "lacks", "b=1", {"a": [{"b": 1}, {"b": 2}]}, True),
        ("a", "lacks", "b=1", {"a": [{"b": 1}]}, False),
        ("a", "has", "b!=1", {"a": [{"b": 1}]}, False),
        ("a", "has", "b!=1", {"a": [{"b": [1, 2]}]}, True),
        ("a", "has", "b!=1", {"a": [{"c": 1}]}, True),
        ("a", "has", "c=3,b!=1|2", {"a": [{"b": 2, "c": 3}]}, False),
        ("a", "has", "c=3,b!=1|2", {"a": [{"b": 5, "c": 3}]}, True),
        ("a.b", "present", "", {"a": {}}, False),
        ("a.b", "absent", "", {"a": {}}, True),
    ],
)
def test_conditions(
    path: str, operator: str, value: str, facts: dict, holds: bool
) -> None:
    assert Condition(path, operator, value).holds(facts, {}) is holds


@given(
    facts=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda part: (
            st.lists(part, max_size=2)
            | st.dictionaries(st.sampled_from("abc$"), part, max_size=2)
        ),
        max_leaves=8,
    )
)
def test_whatever_a_resource_holds_a_rule_has_an_answer(facts) -> None:
    """`not` and `absent` are the opposites of `is` and `present`."""
    whole = {"a": facts}
    for path in ("a", "a.b", "a.b.c"):
        assert Condition(path, "is", "x").holds(whole, {}) != Condition(
            path, "not", "x"
        ).holds(whole, {})
        assert Condition(path, "present", "").holds(whole, {}) != Condition(
            path, "absent", ""
        ).holds(whole, {})


def test_a_rule_is_found_by_its_name() -> None:
    assert find_rule("amd-image").phase == "software"
    with pytest.raises(MissingError) as missing:
        find_rule("amd-imge")
    assert "amd-image" in missing.value.problems[0].next_step
