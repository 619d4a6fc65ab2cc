"""Generator of docs/buying.md: reference workloads in every way to buy them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from planner.cli.compose import (
    PlanningOptions,
    read_spec,
    solve_settings,
)
from planner.cli.ownership import (
    machines_of_ones_own,
    names_of_own_machines,
)
from planner.cli.planning import find_plan
from planner.render import markdown
from planner.render.buying import buying_page as ways_page
from planner.solve.settings import Memory
from planner.spec.model import Workspace
from planner.workload.buying import buy_in_every_way
from providers.catalog.load import load_catalog

OWN_MACHINES: Final = "on-premises/h100.yaml"
INTRO: Final = (
    "Made by `make docs` from the blueprints that serve, answer a batch or train; `tonnage "
    "explain SPEC --ways` says the same of a spec of yours. Each row with machines of ours is a"
    " plan of its own that meets the limits of the spec, verified by the simulation, so "
    "machines and regions differ. Its prices are those of the catalog, each with its source and"
    " date: `tonnage explain SPEC` with that block `buy` lists them, and those of services and "
    "small clouds. The row of small clouds is a plan too, whose bill has the machines alone. It "
    "and what the same tokens cost at a service are "
    "[comparisons](bills.md#what-else-the-same-work-would-cost), not offers. Machines of your own "
    f"are those of `blueprints/{OWN_MACHINES}` at its prices, sized by the same simulation, "
    "a share of their month where a job ends; a spec of yours names its own file in "
    "`where.on_premises`. What a commitment loses is held against the same machines on demand in "
    "rows of scenarios (`planner/market/data/scenarios.csv`); another machine may cost less on "
    "demand, as its row says."
)


def buying_page(blueprints: Path = Path("blueprints")) -> str:
    """Return the page: of each workload, what each way to buy it costs, and what it risks."""
    # Pages are of the embedded catalog, whichever one their author uses.
    catalog = load_catalog()
    options = PlanningOptions(alternatives=0)
    sections = ["# Ways to buy", "", INTRO, ""]
    for path in sorted(blueprints.glob("*.yaml")):
        spec_file = read_spec(str(path))
        if isinstance(spec_file.spec, Workspace):
            continue
        # The ways to buy differ in no machine, so they simulate the same ones.
        memory = Memory()
        # A page says nothing of what the wishes of a spec cost.
        plan = find_plan(spec_file, catalog, options, memory).plan
        settings = solve_settings(spec_file, catalog, options, memory)
        spec = spec_file.spec
        with_own = replace(
            spec, where=replace(spec.where, on_premises=OWN_MACHINES)
        )
        model = plan.workload.model.name if plan.workload.model else "a model"
        sections += [
            f"## {spec_file.spec.name}",
            "",
            f"{model}, `blueprints/{path.name}`",
            "",
            markdown.render(
                ways_page(
                    plan,
                    buy_in_every_way(spec, settings),
                    machines_of_ones_own(plan, with_own, settings),
                    names_of_own_machines(with_own, settings),
                )
            ),
        ]
    return "\n".join(sections)
