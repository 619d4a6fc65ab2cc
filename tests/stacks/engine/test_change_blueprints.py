"""Each field of each blueprint is changed under its stack, as `plan` and `apply` do it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.cli.compose import PlanningOptions, SpecFile, open_engine
from planner.cli.planning import find_plan
from planner.errors import SpecError
from planner.market.offer import Catalog
from planner.plan.types import Changes, Plan
from planner.solve.settings import Memory
from planner.spec.load import load_spec
from stacks.engine.keep import held_data
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import ROOT, present
from tests.stacks.engine.test_change_fields import changed, check_step
from tests.stacks.engine.test_simulated import objects, quiet

BLUEPRINTS = sorted((ROOT / "blueprints").glob("*.yaml"))
# What makes another stack, or none.
IDENTITY = ("apiVersion", "kind", "name")
# Another value of what is no number.
WORDS: dict[str, Any] = {
    "buy.commit": "none",
    "buy.spot": "allowed",
    "data.location": "s3://another-bucket/data",
    "fits.for": "inference",
    "fits.model": "llama-3.2-3b",
    "labels.env": "test",
    "labels.team": "others",
    "model.name": "llama-3.2-3b",
    "model.precision": "bf16",
    "shutdown.schedule": "weekdays 08:00-19:00 UTC",
    "traffic.profile": "constant",
    "train.method": "pretrain",
    "train.precision": "bf16",
    "where.accelerators.allow": ["h100*", "h200*", "a100-80gb*"],
    "where.clouds": ["gcp"],
    "where.regions": ["us-*", "eastus*"],
}
# As many of the changed fields of a blueprint have a fleet, and so are carried out.
CARRIED_OUT = 0.8
NUMBER = re.compile(r"[\d.]+")


def fields(block: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in block.items():
        if isinstance(value, dict):
            yield from fields(value, f"{path}{key}.")
        elif path or key not in IDENTITY:
            yield f"{path}{key}", value


def other_value(path: str, value: Any) -> Any:
    """Another value of a field: a word of the table, a share below, any other number above."""
    if path in WORDS:
        return WORDS[path]
    if isinstance(value, int):
        return 2 * value
    text = str(value)
    number = float(present(NUMBER.match(text)).group())
    scaled = number * (0.8 if text.endswith("%") else 1.5)
    return NUMBER.sub(f"{scaled:g}", text, count=1)


class Stack:
    """A blueprint that stands on simulated clouds."""

    def __init__(self, here: Path, catalog: Catalog, blueprint: Path) -> None:
        self.catalog = catalog
        self.folder = here / ".tonnage"
        self.base = here / "base"
        self.document = yaml.safe_load(blueprint.read_text())
        self.name = self.document["name"]
        self.options = PlanningOptions(simulate="default", stack=self.name)
        # Most changes leave the machines as they are simulated.
        self.memory = Memory()
        self.engine().apply(self.plan(self.document), quiet)
        shutil.copytree(self.folder, self.base)

    def engine(self) -> SimulatedEngine:
        found = open_engine(self.options)
        assert isinstance(found, SimulatedEngine)
        return found

    def plan(self, document: dict[str, Any]) -> Plan:
        file_bytes = yaml.safe_dump(document).encode()
        spec = load_spec(file_bytes, "spec.yaml")
        return find_plan(
            SpecFile(path="spec.yaml", file_bytes=file_bytes, spec=spec),
            self.catalog,
            self.options,
            self.memory,
        ).plan

    def change(self, path: str, value: Any) -> bool:
        """Change a field, apply what the plan says, and check that; whether there is a fleet."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.base, self.folder)
        try:
            plan = self.plan(changed(self.document, path, value))
        except SpecError:
            return False
        if not plan.solution.pools:
            return False
        engine = self.engine()
        told = present(plan.changes)
        steps = {step.name: step for step in engine.preview(plan)}
        before = objects(engine)
        engine.apply(plan, quiet, RunControl(allow=frozenset({"outage"})))
        after = objects(engine)
        assert held(before) <= after.keys()
        for name, step in steps.items():
            check_step(step, name, before, after)
        assert {found["name"] for found in after.values()} <= steps.keys()
        assert counts(told) == {
            action: sum(step.action == action for step in steps.values())
            for action in counts(told)
        }
        assert engine.apply(plan, quiet).steps == ()
        return True


def held(world_objects: dict[str, Any]) -> set[str]:
    return {i for i, found in world_objects.items() if held_data(found["type"])}


def counts(told: Changes) -> dict[str, int]:
    return {
        "create": len(told.create),
        "update": len(told.update),
        "replace": len(told.replace) + len(told.replace_first),
        "delete": len(told.delete),
        "keep": len(told.keep),
        "same": told.unchanged,
    }


@pytest.mark.parametrize("blueprint", BLUEPRINTS, ids=lambda path: path.stem)
def test_what_a_plan_tells_is_what_an_apply_does(
    here: Path, catalog: Catalog, blueprint: Path
) -> None:
    stack = Stack(here, catalog, blueprint)
    done = [
        stack.change(path, other_value(path, value))
        for path, value in fields(stack.document)
    ]
    assert sum(done) >= CARRIED_OUT * len(done)
