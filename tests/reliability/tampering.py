"""Plans that were changed: by a byte, or by somebody who has made a new digest."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from planner.cli.binding import refuse_underived
from planner.cli.compose import PlanningOptions, SpecFile
from planner.errors import TonnageError
from planner.plan.canonical import digest, dump_plan, parse_plan
from tests.conftest import spec_of

if TYPE_CHECKING:
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
