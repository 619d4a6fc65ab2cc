"""Simulated clouds refuse nonsense, and take what real clouds take."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.simulated import world
from providers.simulated.check import input_problems
from providers.simulated.cloud import CloudError, SimulatedCloud
from stacks.engine.simulated import SimulatedEngine
from tests.reliability.graphs import mistakes, refusal_of
from tests.stacks.engine.test_simulated import (
    TEXT,
    objects,
    plan_of,
    quiet,
    trained_on,
)

# Mistakes that are passed over between two that are tried; all are in `make reliability`.
STRIDE = 9
# Of 200 mistakes and more, nearly all are refused.
LEAST_SHARE = 0.98


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_nearly_every_mistake_is_refused(
    catalog, cloud: str, tmp_path: Path
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    tried = list(mistakes(plan))[::STRIDE]
    refusals = [
        refusal_of(mistake, plan, world.default_world(), tmp_path / str(number))
        for number, mistake in enumerate(tried)
    ]
    assert len(tried) > 45
    assert sum(map(bool, refusals)) >= LEAST_SHARE * len(tried)
    # A refusal names the resource, and what is wrong with it.
    for mistake, refusal in zip(tried, refusals, strict=True):
        assert refusal is None or any(
            word in refusal for word in (mistake.resource.name, "p9.gigantic")
        )


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_two_stacks_live_in_one_world(
    catalog, cloud: str, tmp_path: Path
) -> None:
    engine = SimulatedEngine(world.default_world(), tmp_path)
    text = TEXT.replace("CLOUD", cloud)
    one = plan_of(catalog, text)
    other = plan_of(catalog, text.replace("name: chat", "name: other"))
    engine.apply(one, quiet)
    engine.apply(other, quiet)
    assert len(objects(engine)) == len(one.graph.resources) + len(
        other.graph.resources
    )


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_what_a_cloud_cannot_change_in_place_it_does_not(
    catalog, cloud: str, tmp_path: Path
) -> None:
    text = trained_on(cloud)
    engine = SimulatedEngine(world.default_world(), tmp_path)
    plan = plan_of(catalog, text)
    engine.apply(plan, quiet)
    network_type, changed_inputs, used_type = {
        "aws": (
            "aws:ec2/vpc:Vpc",
            {"cidrBlock": "10.99.0.0/16"},
            "aws:ec2/vpc:Vpc",
        ),
        "gcp": (
            "gcp:compute/network:Network",
            {"name": "another"},
            "gcp:compute/network:Network",
        ),
        "azure": (
            "azure-native:network:VirtualNetwork",
            {"virtualNetworkName": "another"},
            "azure-native:network:NetworkSecurityGroup",
        ),
    }[cloud]

    def first_of(resource_type: str) -> tuple[str, dict[str, object]]:
        return next(
            (object_id, found["inputs"])
            for object_id, found in objects(engine).items()
            if found["type"] == resource_type
        )

    network_id, inputs = first_of(network_type)
    with (
        engine.shared_world.call(plan.graph.region) as clouds,
        pytest.raises(CloudError, match="cannot be changed"),
    ):
        clouds.update(network_id, {**inputs, **changed_inputs})
    used_id, _ = first_of(used_type)
    with (
        engine.shared_world.call(plan.graph.region) as clouds,
        pytest.raises(CloudError, match="still used by"),
    ):
        clouds.delete(used_id)


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"cidrBlock": "10.0.0.0/99"}, "does not appear to be"),
        ({"cidrBlock": "10.1.0.0/20"}, "overlaps with 10.1.0.0/16"),
        ({"cidrBlock": "10.9.0.0/16"}, "lies outside of its network"),
        ({"vpcId": "vpc-gone"}, "'vpc-gone' is no Vpc that exists"),
        ({"availabilityZone": "eu-west-1a"}, "is no zone of us-east-1"),
        ({"availabilityZone": "us-east-1"}, "is no zone of us-east-1"),
        ({"mapPublicIpOnLaunch": "yes"}, "must be a boolean"),
        ({"cidrBlok": "10.0.0.0/20"}, "did you mean cidrBlock"),
    ],
)
def test_each_mistake_is_told_as_such(
    inputs: dict[str, object], problem: str
) -> None:
    memory = world.WorldMemory()
    cloud = SimulatedCloud(world.default_world(), memory, "us-east-1")
    vpc, _ = cloud.create(
        "aws:ec2/vpc:Vpc", "net", {"cidrBlock": "10.0.0.0/13"}
    )
    subnet = "aws:ec2/subnet:Subnet"
    cloud.create(subnet, "old", {"vpcId": vpc, "cidrBlock": "10.1.0.0/16"})
    right = {"vpcId": vpc, "cidrBlock": "10.2.0.0/20"}
    assert input_problems(subnet, right, memory.objects, "us-east-1") == []
    found = input_problems(
        subnet, {**right, **inputs}, memory.objects, "us-east-1"
    )
    assert len(found) >= 1
    assert problem in "; ".join(found)
