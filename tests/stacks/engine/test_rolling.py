"""How clouds bring a new template to running machines."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stacks.engine.rolling import rolling_rules


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 100])
def test_no_more_machines_are_away_than_there_are(cloud, nodes) -> None:
    rule = rolling_rules()[cloud]
    assert 0 <= rule.nodes_away(nodes) <= nodes
    everything = replace(rule, nodes_at_once=1000)
    assert everything.nodes_away(nodes) == nodes
