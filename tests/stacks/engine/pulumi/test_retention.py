"""What tonnage keeps beside the state of Pulumi: also where a run that goes on takes uploads."""

from __future__ import annotations

from pathlib import Path

from planner.plan.status import StackFacts
from providers.simulated import world
from stacks.engine.pulumi.retention import RetainedObjects
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.store import FolderStore
from tests.conftest import present
from tests.stacks.engine.test_handover import service
from tests.stacks.engine.test_simulated import plan_of


def test_uploads_for_another_model_are_announced_before_it_comes(
    here: Path, catalog
) -> None:
    """The same model in the same place takes what is there already."""
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    text = service("gcp", "bucket")
    engine.apply(plan_of(catalog, text), lambda _: None)
    standing = present(engine.stack_status("chat"))
    kept = RetainedObjects(FolderStore(here / "states"), "chat")
    kept.announce_uploads(present(standing.facts), standing)
    assert kept.coming is None
    other = StackFacts.of(
        plan_of(catalog, text.replace("llama-3.1-8b", "qwen2.5-7b", 1))
    )
    kept.announce_uploads(other, standing)
    # Another process sees it, until the run has ended.
    seen = RetainedObjects(kept.file.store, "chat")
    coming = present(seen.coming)
    assert coming.bucket == standing.outputs["bucket"]
    assert present(coming.facts.workload.model).name == "qwen2.5-7b"
    seen.settle({})
    assert RetainedObjects(kept.file.store, "chat").coming is None
