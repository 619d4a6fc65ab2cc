"""What an apply does to what stands."""

from __future__ import annotations

import pytest

from stacks.engine.change import diff_steps
from stacks.engine.state import ResourceRecord
from stacks.graph import Graph, Resource


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
    )
    assert [step.action for step in steps] == [action]
