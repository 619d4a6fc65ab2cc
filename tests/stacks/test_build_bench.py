"""The stack of a benchmark: that of a batch, but for its program and the folder that it writes."""

from __future__ import annotations

import json

import pytest

from planner.facts.cloud import clouds
from stacks.build import build_stack
from stacks.spec.stack import BENCH_FOLDER
from tests.conftest import find, spec_of
from tests.stacks.runtime.vm.sandbox import SPECS, SWEEP
from tests.stacks.test_build import check


@pytest.mark.parametrize("provider", sorted(clouds()))
def test_it_differs_from_a_batch_in_what_it_measures_alone(
    catalog, provider: str
) -> None:
    text = SPECS["bench"] + f"where: {{clouds: [{provider}]}}\n"
    spec, solution = spec_of(text), find(catalog, text, keep=0)
    batch = build_stack(spec, solution, "chat").graph
    measuring = build_stack(spec, solution, "chat", SWEEP).graph
    check(measuring)
    before = {resource.name: resource for resource in batch.resources}
    after = {resource.name: resource for resource in measuring.resources}
    assert after.keys() == before.keys()
    changed = {
        name
        for name, resource in after.items()
        if resource.inputs != before[name].inputs
    }
    # Its machines, their program, and on two clouds the right to write results.
    assert changed
    assert all(
        any(word in name for word in ("template", "nodes", "program"))
        or f"/{BENCH_FOLDER}/" in json.dumps(after[name].inputs)
        for name in changed
    )
    assert not any(
        f"/{BENCH_FOLDER}/" in json.dumps(resource.inputs)
        for resource in batch.resources
        if "program" not in resource.name and "template" not in resource.name
    )
    assert measuring.outputs == batch.outputs
