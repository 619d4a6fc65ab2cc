"""What an apply does to what stands."""

from __future__ import annotations

import pytest

from stacks.engine.change import diff_steps
from stacks.engine.fill import built_on_digests
from stacks.engine.state import ResourceRecord
from stacks.graph import Graph, Resource, ref


def graph_of(kept: list[str], **inputs: object) -> Graph:
    disk = Resource(
        type="gcp:compute/disk:Disk",
        name="home",
        inputs=dict(inputs),
        options={"ignore_changes": kept},
    )
    return Graph(provider="gcp", region="us-east4", resources=(disk,))


def record_of(**inputs: object) -> ResourceRecord:
    return ResourceRecord(
        type="gcp:compute/disk:Disk",
        id="disk-1",
        inputs=dict(inputs),
        outputs={},
        needs=(),
        place=("gcp", "us-east4"),
    )


@pytest.mark.parametrize(
    ("kept", "target", "action"),
    [
        ([], {"size": 200, "zone": "a"}, "same"),
        ([], {"size": 100, "zone": "a"}, "update"),
        ([], {"size": 200, "zone": "b"}, "replace"),
        (["size", "zone"], {"size": 100, "zone": "b"}, "same"),
        (["size"], {"size": 100, "zone": "b"}, "replace"),
        # What was not there before is no change of it.
        (["type"], {"size": 200, "zone": "a", "type": "ssd"}, "update"),
    ],
)
def test_what_is_kept_is_not_changed(
    kept: list[str], target: dict[str, object], action: str
) -> None:
    steps = diff_steps(
        graph_of(kept, **target),
        {"home": record_of(size=200, zone="a")},
        lambda _, before, after: [
            name for name in ("zone",) if before[name] != after[name]
        ],
        {},
    )
    assert [step.action for step in steps] == [action]


def subnet(zone: str, cidr: str = "10.0.0.0/24", vpc: str = "vpc-1") -> dict:
    return {"availabilityZone": zone, "cidrBlock": cidr, "vpcId": vpc}


@pytest.mark.parametrize(
    ("target", "region", "deletes_first"),
    [
        # Two subnets of a VPC cannot have one range.
        (subnet("b"), "us-east-1", True),
        (subnet("b", cidr="10.0.1.0/24"), "us-east-1", False),
        # In another region there is another VPC.
        (subnet("b"), "us-east-2", False),
    ],
)
def test_what_only_one_can_have_is_given_up_first(
    target: dict, region: str, deletes_first: bool
) -> None:
    resource = Resource(
        type="aws:ec2/subnet:Subnet", name="public", inputs=target
    )
    record = ResourceRecord(
        type=resource.type,
        id="subnet-1",
        inputs=subnet("a"),
        outputs={},
        needs=(),
        place=("aws", "us-east-1"),
    )
    [step] = diff_steps(
        Graph(provider="aws", region=region, resources=(resource,)),
        {"public": record},
        lambda _, before, after: [k for k in after if before[k] != after[k]],
        {},
    )
    assert (step.action, step.deletes_first) == ("replace", deletes_first)


def test_what_was_built_on_another_object_is_built_again() -> None:
    """A run that ended between a replacement and what refers to it left the reference behind."""
    network = Resource(type="aws:ec2/vpc:Vpc", name="vpc", inputs={})
    wall = Resource(
        type="aws:ec2/securityGroup:SecurityGroup",
        name="wall",
        inputs={
            "vpcId": ref("vpc"),
            "description": "open until ${started.month}",
        },
    )
    graph = Graph(provider="aws", region="us-east-1", resources=(network, wall))

    def actions(vpc_id: str, month: str) -> list[str]:
        records = {
            "vpc": record_at("aws:ec2/vpc:Vpc", {}, {"id": vpc_id}, {}),
            "wall": record_at(
                wall.type,
                wall.inputs,
                {},
                built_on_digests(
                    wall.inputs,
                    {"started.month": "2026-01"},
                    {"vpc": {"id": "vpc-1"}},
                ),
            ),
        }
        steps = diff_steps(
            graph, records, lambda *_: [], {"started.month": month}
        )
        return [step.action for step in steps]

    assert actions("vpc-1", "2026-01") == ["same", "same"]
    assert actions("vpc-2", "2026-01") == ["same", "update"]
    assert actions("vpc-1", "2026-02") == ["same", "update"]


def record_at(
    resource_type: str, inputs: dict, outputs: dict, built_on: dict[str, str]
) -> ResourceRecord:
    return ResourceRecord(
        type=resource_type,
        id="id-1",
        inputs=inputs,
        outputs=outputs,
        needs=(),
        place=("aws", "us-east-1"),
        built_on=built_on,
    )
