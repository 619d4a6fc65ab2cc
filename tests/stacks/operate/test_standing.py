"""What the state of a stack says of its bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from planner.errors import UsageError
from stacks.operate.standing import bucket_of, upload_of


def status_of(tonnage, spec: str):
    """The status of a blueprint that was applied to simulated clouds."""
    from planner.cli.compose import PlanningOptions, standing_stack

    root = Path(__file__).resolve().parents[3]
    code, _, err = tonnage(
        "apply", str(root / f"blueprints/{spec}.yaml"), "--simulate", "--yes"
    )
    assert code == 0, err
    return standing_stack(spec, PlanningOptions(simulate="default"))


@pytest.mark.parametrize(
    ("spec", "prefix"),
    [
        ("chat-8b", "models/llama-3.1-8b/"),
        ("classify-backlog", "models/qwen3-8b/"),
        ("lora-8b", "job/"),
    ],
)
def test_machines_wait_for_the_upload_that_people_are_told_of(
    tonnage, spec: str, prefix: str
) -> None:
    status = status_of(tonnage, spec)
    assert upload_of(status).prefix == prefix
    bucket = bucket_of(status, Path("buckets"))
    assert bucket.name == status.outputs["bucket"]
    assert bucket.simulated_folder == Path("buckets") / bucket.name
    assert bucket_of(status, None).simulated_folder is None


def test_a_workspace_waits_for_nothing(tonnage) -> None:
    with pytest.raises(UsageError, match="wait for no upload"):
        upload_of(status_of(tonnage, "workspace-night"))


def test_a_stack_that_is_half_made_has_no_bucket(tonnage) -> None:
    status = replace(status_of(tonnage, "chat-8b"), outputs={})
    with pytest.raises(UsageError, match="no bucket yet"):
        bucket_of(status, None)
