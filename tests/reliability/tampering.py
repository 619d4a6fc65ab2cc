"""Plans that were changed: by a byte, or by somebody who has made a new digest."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from planner.cli.binding import refuse_underived
from planner.cli.compose import PlanningOptions, SpecFile
from planner.errors import StaleError, TonnageError
from planner.plan.canonical import digest, dump_plan, parse_plan
from planner.plan.staleness import PresentInputs, check_staleness
from planner.plan.status import StackStatus
from tests.conftest import spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Catalog
    from planner.plan.types import Plan

# Parts of a document that are carried out.
BOUND_PARTS = ("cost", "graph", "shutdown")


def flipped_is_refused(plan: Plan, seed: int) -> bool:
    """Flip a bit of a plan; whether it is refused, or still says the same."""
    whole = dump_plan(plan).encode()
    generator = random.Random(seed)
    flipped = bytearray(whole)
    place = generator.randrange(len(flipped))
    flipped[place] ^= 1 << generator.randrange(7)
    try:
        parsed = parse_plan(bytes(flipped), "p.json")
    except TonnageError:
        return True
    return parsed == plan


def forged_is_refused(
    plan: Plan, text: str, catalog: Catalog, seed: int
) -> bool:
    """Change a value of what is carried out, with a right digest; whether it is refused."""
    document = json.loads(dump_plan(plan))
    generator = random.Random(seed)
    part = document[generator.choice(BOUND_PARTS)]
    _change_leaf(part, generator)
    document["digest"] = digest(document)
    spec_file = SpecFile(
        path="spec.yaml", file_bytes=text.encode(), spec=spec_of(text)
    )
    try:
        forged = parse_plan(json.dumps(document).encode(), "p.json")
        refuse_underived(forged, spec_file, catalog, PlanningOptions())
    except TonnageError:
        return True
    return forged.graph == plan.graph and forged.cost == plan.cost


def stale_cases(plan: Plan) -> Iterator[tuple[str, bool]]:
    """Change each thing that a plan was made from; yield it, and whether the plan is refused."""
    present = PresentInputs(
        normalized=plan.spec.normalized,
        files=dict(plan.inputs.files),
        calibration_sha256=plan.inputs.calibration_sha256,
        catalog_sha256=plan.catalog.sha256,
        plugins=plan.inputs.plugins,
    )
    check_staleness(plan, present, None)
    for path in _leaf_paths(plan.spec.normalized):
        normalized = json.loads(json.dumps(plan.spec.normalized))
        holder = normalized
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = _another(holder[path[-1]])
        changed = replace(present, normalized=normalized)
        yield ".".join(map(str, path)), _is_stale(plan, changed)
    others: dict[str, PresentInputs] = {
        "catalog": replace(present, catalog_sha256="0" * 64),
        "calibration": replace(present, calibration_sha256="0" * 64),
        **{
            f"plugin {name}": replace(
                present, plugins={**present.plugins, name: "0.0.1"}
            )
            for name in present.plugins
        },
    }
    for name, changed in others.items():
        yield name, _is_stale(plan, changed)
    standing = StackStatus(
        stack=plan.stack.name,
        started="",
        plan="0" * 64,
        state_sha256="0" * 64,
        complete=True,
        operation="applied",
        resources=(),
        retained=(),
        pending=(),
        outputs={},
        facts=None,
    )
    yield "stack", _is_stale(plan, present, standing)


def _is_stale(
    plan: Plan, present: PresentInputs, status: StackStatus | None = None
) -> bool:
    try:
        check_staleness(plan, present, status)
    except StaleError:
        return True
    return False


def _leaf_paths(value: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            for path in _leaf_paths(value[key]):
                yield (key, *path)
    else:
        yield ()


def _change_leaf(part: Any, generator: random.Random) -> None:
    """Change one value, wherever it is."""
    holder: Any = part
    while True:
        keys = (
            sorted(holder) if isinstance(holder, dict) else range(len(holder))
        )
        key = generator.choice(list(keys))
        value = holder[key]
        if isinstance(value, dict | list) and value:
            holder = value
            continue
        holder[key] = _another(value)
        return


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}1"
    return "1"
