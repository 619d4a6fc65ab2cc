"""The plugin as the engine of Pulumi calls it: a preview says what is not known yet."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pulumi", reason="the pulumi extra is not installed")
from pulumi.runtime.proto import provider_pb2
from pulumi.runtime.rpc import UNKNOWN

from providers.simulated import world
from providers.simulated.plugin import (
    SimulatedProvider,
    dict_to_struct,
    struct_to_dict,
)

BALANCER = "azure-native:network:LoadBalancer"
POOLS = "backendAddressPools"


@pytest.fixture
def provider(tmp_path: Path) -> SimulatedProvider:
    return SimulatedProvider("1.0.0", tmp_path, world.default_world())


def test_numbers_stay_whole_and_nulls_are_left_out() -> None:
    properties = {"a": 1, "b": [2.5, {"c": None, "d": 3}], "e": None}
    assert struct_to_dict(dict_to_struct(properties)) == {
        "a": 1,
        "b": [2.5, {"d": 3}],
    }


def test_a_preview_of_a_creation_does_not_know_what_the_cloud_adds(
    provider: SimulatedProvider,
) -> None:
    """The ids within a balancer are given by the cloud, also of what an input names."""
    answer = provider.Create(
        provider_pb2.CreateRequest(
            type=BALANCER,
            properties=dict_to_struct(
                {"loadBalancerName": "one", POOLS: [{"name": "nodes"}]}
            ),
            preview=True,
        ),
        None,
    )
    found = struct_to_dict(answer.properties)
    assert answer.id == ""
    assert found["loadBalancerName"] == "one"
    assert found[POOLS] == UNKNOWN
    assert not provider.world.view().memory.objects


def test_a_preview_of_an_update_forgets_only_what_changes(
    provider: SimulatedProvider,
) -> None:
    inputs = {"loadBalancerName": "one", POOLS: [{"name": "nodes"}]}
    outputs = {**inputs, POOLS: [{"name": "nodes", "id": "pool-1"}]}

    def previewed(changes: dict) -> dict:
        answer = provider.Update(
            provider_pb2.UpdateRequest(
                type=BALANCER,
                id="balancer-1",
                olds=dict_to_struct(outputs),
                old_inputs=dict_to_struct(inputs),
                news=dict_to_struct({**inputs, **changes}),
                preview=True,
            ),
            None,
        )
        return struct_to_dict(answer.properties)

    assert previewed({"tags": {"team": "a"}}) == {
        **outputs,
        "tags": {"team": "a"},
    }
    assert previewed({POOLS: [{"name": "others"}]})[POOLS] == UNKNOWN
