"""What is built of a spec, as files; `pytest --update-golden` writes them, and the diff is read.

`tests/cases/<cloud>/<name>/spec.yaml` is planned with the embedded catalog, and `graph.json`
beside it is what apply would create. Scripts stand there as lists of lines, for the diff, and the
program of a node as the names of its files with what it knows.
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any

import pytest

from planner.facts.cloud import clouds
from stacks.build import build_stack
from stacks.runtime.vm.program import unpacked
from tests.conftest import ROOT, Golden, find, spec_of
from tests.stacks.test_build import check

CASES = sorted((ROOT / "tests" / "cases").glob("*/*/spec.yaml"))
SCRIPT_START = b"#!"


def case_name(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.parent.name}"


@pytest.mark.parametrize("path", CASES, ids=case_name)
def test_a_spec_builds_the_stored_graph(
    path: Path, catalog, golden: Golden
) -> None:
    text = path.read_text()
    spec = spec_of(text)
    solution = find(catalog, text, keep=0)
    assert solution.pools, solution.bindings
    graph = build_stack(spec, solution, spec.name).graph
    check(graph)
    document = {
        "provider": graph.provider,
        "region": graph.region,
        "outputs": graph.outputs,
        "resources": {
            f"{resource.type} {resource.name}": {
                "inputs": resource.inputs,
                "depends_on": resource.depends_on,
                "options": resource.options,
            }
            for resource in graph.resources
        },
    }
    shown = json.dumps(readable(document), indent=1, sort_keys=True) + "\n"
    golden(path.with_name("graph.json"), shown)


def readable(value: Any) -> Any:
    """Scripts as lines, whether they are encoded or not."""
    if isinstance(value, dict):
        if str(value.get("key", "")).startswith("program/"):
            return {
                "bucket": value["bucket"],
                "files": sorted(unpacked(value["content"])),
            }
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    if isinstance(value, str):
        script = _decoded(value)
        before, packed, after = _parts(script)
        if packed:
            return {"script": (before + after).split("\n"), **_program(packed)}
        return script.split("\n") if "\n" in script else script
    return value


def _parts(script: str) -> tuple[str, str, str]:
    """A script without the program that it installs, which stands in triple quotes."""
    before, _, rest = script.partition('packed = """')
    packed, _, after = rest.partition('"""')
    return before, packed, after


def _program(packed: str) -> dict[str, Any]:
    node_files = unpacked(packed)
    settings = json.loads(node_files["/etc/tonnage/node.json"])
    # Its digest changes with every line of the program.
    settings["program"] = bool(settings["program"])
    return {"files": sorted(node_files), "settings": settings}


def _decoded(text: str) -> str:
    try:
        decoded = base64.b64decode(text, validate=True)
    except binascii.Error:
        return text
    return decoded.decode() if decoded.startswith(SCRIPT_START) else text


def test_every_cloud_has_the_same_cases() -> None:
    cases: dict[str, set[str]] = {}
    for path in CASES:
        cases.setdefault(path.parent.parent.name, set()).add(path.parent.name)
    assert set(cases) == set(clouds())
    assert len({frozenset(names) for names in cases.values()}) == 1
