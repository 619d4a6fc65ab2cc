"""Generator of docs/clouds: what is built on a cloud, its cost, and what binds it."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict, replace

from planner import figures
from planner.cli.compose import PlanningOptions, SpecFile
from planner.cli.planning import find_plan
from planner.facts.cloud import clouds
from planner.facts.rule import PHASES, rules_of
from planner.render.rule import when_text
from planner.solve.settings import Memory
from planner.spec.load import load_spec
from providers.catalog.load import load_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.facts.rule import Phase
    from planner.market.offer import Catalog, Instance, Offer
    from planner.plan.types import Plan

INTRO: Final = (
    "Made by `make docs` from the tables, and from the smallest spec of each kind: what tonnage "
    "builds here, what that costs beside the machines, which rights `apply` needs, and which "
    "rules may refuse."
)
MACHINES_INTRO: Final = (
    "Families by accelerator. A fabric joins the machines of one replica, or of one job. What a "
    "rule refuses is not planned."
)
FAMILIES_INTRO: Final = (
    "The cheapest stack of each kind on the machines of one family: what its machines cost, and "
    "what is paid beside them, a month or for the run. A cell is empty where no fleet of the "
    "family meets the spec. The last column has what is built beside the resources above."
)
RIGHTS_INTRO: Final = (
    "Who applies a plan needs these, to create, read, change and delete. `apply` asks the account "
    "for them before it makes anything."
)
RULES_INTRO: Final = "`tonnage check --explain RULE` says each with its source."
# The smallest spec of each kind.
SPECS: Final = {
    "service": """\
kind: Inference
model: {name: llama-3.1-8b}
sla: {ttft_p95: 1.5s, tpot_p95: 80ms}
traffic: {peak_rps: 2, input_tokens: {mean: 900}, output_tokens: {mean: 220}}
shutdown: {idle: 1h}
""",
    "batch": """\
kind: Batch
model: {name: llama-3.1-8b}
deadline: 8h
traffic: {total_requests: 100k, input_tokens: {mean: 900}, output_tokens: {mean: 220}}
""",
    "training": """\
kind: Training
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 200M}
train: {method: finetune, deadline: 3d}
""",
    "training over machines": """\
kind: Training
model: {name: llama-3.1-405b}
data: {location: s3://sets/chat, tokens: 1B}
train: {method: continued, deadline: 14d}
""",
    "workspace": """\
kind: Workspace
accelerator: {memory: 20GiB}
""",
}


def cloud_page(cloud: str) -> str:
    """Return the page of a cloud."""
    # Pages are of the embedded catalog, whichever one their author uses.
    catalog = load_catalog()
    # The machines of a family are among those of the cloud: they are simulated once.
    memories = {kind: Memory() for kind in SPECS}
    plans = {
        kind: _plan_of(kind, cloud, catalog, memory)
        for kind, memory in memories.items()
    }
    families = ("family", "accelerator", "GPUs", "fabric", "bought", "refused")
    sections = (
        ("What is built", "", ("resource", *SPECS), _resource_rows(plans)),
        (
            "What it costs beside the machines",
            "",
            ("", "line", "USD"),
            _cost_rows(plans),
        ),
        ("Machines", MACHINES_INTRO, families, _family_rows(cloud, catalog)),
        (
            "What a family costs, and what is built for it",
            FAMILIES_INTRO,
            ("family", "accelerator", *SPECS, "is built too"),
            _family_stack_rows(cloud, catalog, plans, memories),
        ),
        ("Rights", RIGHTS_INTRO, ("service", "rights"), _right_rows(cloud)),
        (
            "Rules",
            RULES_INTRO,
            ("rule", "when", "why", "what helps", "then"),
            _rule_rows(cloud),
        ),
    )
    lines = [f"# {clouds()[cloud].title}", "", INTRO, ""]
    for title, intro, columns, rows in sections:
        lines += [f"## {title}", "", *([intro, ""] if intro else [])]
        lines += [*_table(columns, rows), ""]
    return "\n".join(lines)


def _plan_of(kind: str, cloud: str, catalog: Catalog, memory: Memory) -> Plan:
    text = (
        f"apiVersion: tonnage/v1\nname: {kind.replace(' ', '-')}\nwhere: {{clouds: [{cloud}]}}\n"
        f"{SPECS[kind]}"
    )
    path = f"{kind}.yaml"
    spec = load_spec(text.encode(), path)
    spec_file = SpecFile(path=path, file_bytes=text.encode(), spec=spec)
    options = PlanningOptions(alternatives=0)
    # A page says nothing of what the wishes of a spec cost.
    return find_plan(spec_file, catalog, options, memory).plan


def _table(
    titles: Iterable[str], rows: Iterable[tuple[str, ...]]
) -> Iterator[str]:
    """Yield the lines of a table; a bar in a cell would end it."""
    columns = tuple(titles)
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"


def _resource_rows(plans: dict[str, Plan]) -> Iterator[tuple[str, ...]]:
    """Yield how many resources of each type the smallest stack of each kind has."""
    counts = {kind: _counts(plan) for kind, plan in plans.items()}
    for type_ in sorted(
        {type_ for found in counts.values() for type_ in found}
    ):
        yield (
            f"`{type_}`",
            *(str(found[type_] or "") for found in counts.values()),
        )


def _cost_rows(plans: dict[str, Plan]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of each bill that pay for no machines."""
    for kind, plan in plans.items():
        for number, line in enumerate(
            line for line in plan.cost.lines if line.pool is None
        ):
            usd = (
                "?"
                if line.usd is None
                else figures.dollars(line.usd, cents=True)
            )
            yield (
                f"{kind}, per {plan.cost.period}" if number == 0 else "",
                line.name,
                usd,
            )


def _family_stack_rows(
    cloud: str,
    catalog: Catalog,
    plans: dict[str, Plan],
    memories: dict[str, Memory],
) -> Iterator[tuple[str, ...]]:
    """Yield what stacks of each kind cost on each family that is sold.

    Their resources are compared with those of `plans`, on the cheapest family of the kind.
    """
    for family, offers in _sold_families(cloud, catalog).items():
        of_family = replace(catalog, offers=tuple(offers))
        found = {
            kind: _plan_of(kind, cloud, of_family, memory)
            for kind, memory in memories.items()
        }
        if any(plan.solution.pools for plan in found.values()):
            yield (
                *family,
                *map(_cost_text, found.values()),
                _more_text(found, plans),
            )


def _sold_families(
    cloud: str, catalog: Catalog
) -> dict[tuple[str, str], list[Offer]]:
    """Return the offers of a cloud by family and accelerator, sorted."""
    families: dict[tuple[str, str], list[Offer]] = {}
    for offer in catalog.offers:
        if offer.provider == cloud:
            key = (offer.instance.family, offer.instance.accelerator)
            families.setdefault(key, []).append(offer)
    return dict(sorted(families.items()))


def _cost_text(plan: Plan) -> str:
    """Return what machines cost and what is paid beside them; nothing where nothing is planned."""
    if not plan.solution.pools:
        return ""
    machines, beside = (
        sum(
            (
                line.usd
                for line in plan.cost.lines
                if (line.pool is None) == is_beside and line.usd is not None
            ),
            Decimal(0),
        )
        for is_beside in (False, True)
    )
    return f"{figures.dollars(machines)} + {figures.dollars(beside)}"


def _more_text(found: dict[str, Plan], plans: dict[str, Plan]) -> str:
    """Return the resources that stacks have beside others of their kinds, the most of any kind."""
    more: Counter[str] = Counter()
    for kind, plan in found.items():
        more |= _counts(plan) - _counts(plans[kind])
    return ", ".join(
        f"{count} {type_.rpartition(':')[2]}"
        for type_, count in sorted(more.items())
    )


def _counts(plan: Plan) -> Counter[str]:
    return Counter(resource.type for resource in plan.graph.resources)


def _family_rows(cloud: str, catalog: Catalog) -> Iterator[tuple[str, ...]]:
    families: dict[tuple[str, str], list[Instance]] = {}
    for instance in _instances(cloud, catalog):
        key = (instance.family, instance.accelerator)
        families.setdefault(key, []).append(instance)
    for (family, accelerator), instances in sorted(families.items()):
        sizes = sorted({instance.accelerators for instance in instances})
        fabrics = sorted({instance.fabric for instance in instances} - {"none"})
        bought = [
            word
            for word, is_sold in (
                ("on demand", any(i.on_demand for i in instances)),
                ("spot", any(i.spot for i in instances)),
            )
            if is_sold
        ]
        refused = sorted(
            {
                rule.id
                for rule in rules_of("machine", cloud)
                if all(rule.is_broken(asdict(i)) for i in instances)
            }
        )
        yield (
            family,
            accelerator,
            " ".join(map(str, sizes)),
            " ".join(fabrics),
            ", ".join(bought),
            ", ".join(f"`{rule_id}`" for rule_id in refused),
        )


def _instances(cloud: str, catalog: Catalog) -> list[Instance]:
    found = {
        offer.instance.instance_type: offer.instance
        for offer in (*catalog.offers, *catalog.unlisted)
        if offer.instance.provider == cloud
    }
    return [found[name] for name in sorted(found)]


def _right_rows(cloud: str) -> Iterator[tuple[str, ...]]:
    """Yield the rights of all types of a cloud, by the service that gives them."""
    from stacks.engine.account import all_rights

    package = clouds()[cloud].package
    services: dict[str, list[str]] = {}
    for right in all_rights(f"{package}:"):
        service, verb = _service_of(right)
        services.setdefault(service, []).append(verb)
    for service, verbs in sorted(services.items()):
        yield f"`{service}`", ", ".join(f"`{verb}`" for verb in verbs)


def _service_of(right: str) -> tuple[str, str]:
    """Return the service of a right and the rest: its names are divided by :, / or a point."""
    for divider in (":", "/", "."):
        service, found, rest = right.partition(divider)
        if found and (divider != "." or "/" not in right):
            return service, rest
    return right, ""


def _rule_rows(cloud: str) -> Iterator[tuple[str, ...]]:
    phases: list[Phase] = list(PHASES)
    for phase in phases:
        for rule in rules_of(phase, cloud):
            yield (
                f"`{rule.id}`",
                when_text(rule),
                rule.reason,
                rule.remedy,
                PHASES[phase],
            )
