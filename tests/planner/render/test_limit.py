"""Whether limits are met: the same answer on the page of a plan and in a list of specs."""

from __future__ import annotations

import re

from msgspec.structs import replace

from planner.render import text
from planner.render.html.served.folder import ListedSpec, folder_page
from planner.render.plan import decision_blocks
from tests.planner.render.test_bill import CHAT
from tests.stacks.engine.test_simulated import plan_of


def test_a_plan_and_a_list_say_the_same(catalog) -> None:
    plan = plan_of(catalog, CHAT)
    verified = plan.solution.verified
    assert verified is not None
    page = text.render(tuple(decision_blocks(plan)))
    claim = re.search("meets its limits with .* confidence", page)
    assert claim is not None
    for verdict, is_near in (("holds", False), ("undecided", True)):
        solution = replace(
            plan.solution, verified=replace(verified, verdict=verdict)
        )
        listed = ListedSpec(
            path="a.yaml",
            address="/a",
            ask="/ask",
            plan=replace(plan, solution=solution),
        )
        listing = folder_page("folder", [listed], [], "2026-11-18")
        assert claim[0].replace("\xa0", " ") in listing.replace("\xa0", " ")
        assert ("close to a limit" in listing) == is_near
        assert "undecided" not in listing
