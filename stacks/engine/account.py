"""Preflight of an apply on real clouds: what the account of the user would refuse."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from planner.cost.capacity_block import BLOCK_PURCHASE
from planner.facts import table
from planner.facts.cloud import clouds
from planner.market.capacity import quota_purchase
from planner.market.live import NO_ZONE
from planner.spec.reservation import zone_name
from providers.catalog.metering import node_group
from providers.live.question import MachineAsk, quota_rooms
from stacks.engine.failure import RefusedCall
from stacks.spec.stack import STACK_TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from planner.market.offer import Instance
    from planner.plan.graph import PlannedGraph
    from planner.plan.types import Plan, Pool
    from providers.live.question import AccountModule

# What cannot be asked is no reason to stop: the cloud itself answers when something is made.
UNANSWERED: Final = (ModuleNotFoundError, OSError, LookupError)
# A note is read at once.
SHOWN_RIGHTS: Final = 5
# What is done to a resource.
VERBS: Final = ("create", "read", "update", "delete")


def account_refusals(
    plan: Plan,
    standing: Sequence[Pool],
    instances: Mapping[str, Instance],
    note: Callable[[str], None],
) -> list[RefusedCall]:
    """Return what an account would refuse of a plan, all at once, before anything is made.

    `standing` are the pools that stand already, and `instances` the machine types of the cloud by
    name. What the account does not answer is told to `note`.
    """
    cloud, region = plan.graph.provider, plan.graph.region
    try:
        account: AccountModule = import_module(f"providers.{cloud}.account")
        account.signed_in(region)
    except PermissionError as error:
        return [RefusedCall("the login", str(error), "credentials")]
    except UNANSWERED as error:
        note(f"the account is not asked: {error}")
        return []
    types = {resource.type for resource in plan.graph.resources}
    rollings = plan.changes.rolling if plan.changes is not None else ()
    built_zones = zones_of(plan.graph)
    asks = machine_asks(
        [
            replace(pool, zones=built_zones.get(pool.instance_type, pool.zones))
            for pool in plan.solution.pools
        ],
        standing,
        instances,
        {rolling.pool: rolling.surge for rolling in rollings},
    )
    questions: dict[str, Callable[[], list[RefusedCall]]] = {
        "services": lambda: _closed_services(account, region, types),
        "rights": lambda: _missing_rights(account, region, types, note),
        "endpoints": lambda: _taken_endpoints(account, plan),
        **{
            f"quota of {ask.instance_type}": lambda ask=ask: _quotas(  # type: ignore[misc]
                account, cloud, ask
            )
            for ask in asks
        },
        **{
            f"zones of {ask.instance_type}": lambda ask=ask: _zones(  # type: ignore[misc]
                account, cloud, ask
            )
            for ask in asks
        },
    }
    refusals = []
    for what, question in questions.items():
        try:
            refusals += question()
        except UNANSWERED as error:
            note(f"{what}: not asked: {error}")
    return refusals


def zones_of(graph: PlannedGraph) -> dict[str, tuple[str, ...]]:
    """Return the zones in which the groups of a graph start machines, by machine type.

    A plan names all zones that a fleet may be in, and builds it in some, or in one.
    """
    objects = {
        resource.name: {
            "type": resource.type,
            "inputs": _by_name(resource.inputs),
        }
        for resource in graph.resources
    }
    zones: dict[str, tuple[str, ...]] = {}
    for found in objects.values():
        group = node_group(
            found["type"], found["inputs"], objects, graph.region
        )
        if group is not None:
            machine = group.offer_key[2]
            zones[machine] = (*zones.get(machine, ()), *group.zones)
    return zones


def _by_name(value: Any) -> Any:
    """Return inputs in which the name of a resource stands for what is referred to."""
    if isinstance(value, list | tuple):
        return [_by_name(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return value["$ref"]
    return {key: _by_name(part) for key, part in value.items()}


def machine_asks(
    pools: Iterable[Pool],
    standing: Iterable[Pool],
    instances: Mapping[str, Instance],
    surges: Mapping[str, int] | None = None,
) -> list[MachineAsk]:
    """Return the machines that pools add to those that stand, by place, type and purchase.

    Reserved machines are bought on demand: a reservation is a price. Those of a capacity block
    are there, and count against no quota; those of flex start count as machines on spot do. An
    elastic pool is asked for with all machines that it may have. `surges` are the machines that
    come before others go while a new template rolls, by pool.
    """
    counts: dict[tuple[str, str, str], int] = {}
    zones: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for sign, some_pools in ((1, pools), (-1, standing)):
        for pool in some_pools:
            for number, part in enumerate(pool.purchases):
                if part.purchase == BLOCK_PURCHASE:
                    continue
                nodes = part.nodes
                if number == 0 and pool.elastic is not None:
                    nodes += max(0, pool.elastic.most_nodes - pool.nodes)
                if number == 0 and sign > 0:
                    nodes += (surges or {}).get(pool.name, 0)
                purchase = quota_purchase(part.purchase)
                key = (pool.region, pool.instance_type, purchase)
                counts[key] = counts.get(key, 0) + sign * nodes
                zones.setdefault(key, pool.zones)
    return [
        MachineAsk(
            region=region,
            instance_type=instance_type,
            purchase=purchase,
            nodes=nodes,
            vcpus=nodes * instances[instance_type].vcpu,
            accelerators=nodes * instances[instance_type].accelerators,
            zones=zones[region, instance_type, purchase],
        )
        for (region, instance_type, purchase), nodes in sorted(counts.items())
        if nodes > 0
    ]


def _closed_services(
    account: AccountModule, region: str, types: set[str]
) -> list[RefusedCall]:
    wanted = {service for type_ in types if (service := _services().get(type_))}
    return [
        RefusedCall(f"the service {name}", "it is switched off", "api", remedy)
        for name, remedy in account.closed_services(region, wanted).items()
    ]


def _missing_rights(
    account: AccountModule,
    region: str,
    types: set[str],
    note: Callable[[str], None],
) -> list[RefusedCall]:
    """Return the rights to make something that are lacking; of others somebody is only told.

    Those to change and to delete may be given on what is made, and no policy has it yet.
    """
    creating = {
        right for type_ in types for right in rights_of(type_, "create")
    }
    rights = sorted(
        creating | {right for type_ in types for right in rights_of(type_)}
    )
    missing = account.missing_rights(region, rights)
    lacking = [
        right
        for right, is_sure in missing.items()
        if is_sure and right in creating
    ]
    unsure = [right for right in missing if right not in lacking]
    if unsure:
        more = len(unsure) - SHOWN_RIGHTS
        note(
            f"rights: no policy seems to give {', '.join(unsure[:SHOWN_RIGHTS])}"
            + (f" and {more} more" if more > 0 else "")
        )
    if not lacking:
        return []
    return [
        RefusedCall(
            "the rights of who is signed in",
            f"{len(lacking)} of {len(rights)} are missing: {', '.join(lacking)}",
            "permission",
            "ask for them, then apply the same plan",
        )
    ]


def _taken_endpoints(account: AccountModule, plan: Plan) -> list[RefusedCall]:
    """Return the endpoints whose names lead elsewhere in a network that there is already."""
    network = (plan.spec.normalized.get("network") or {}).get("id")
    wanted = {
        str(resource.inputs["serviceName"])
        for resource in plan.graph.resources
        if resource.inputs.get("privateDnsEnabled")
    }
    if not network or not wanted:
        return []
    standing = {
        service: tags.get(STACK_TAG, "")
        for service, tags in account.named_endpoints(
            plan.graph.region, network
        ).items()
    }
    return [
        RefusedCall(
            f"the endpoint of {service}",
            f"{network} has one already{_of_stack(standing[service])}, and a name leads to one "
            "place",
            "conflict",
            "let the machines use it: network: {private_endpoints: false}",
        )
        for service in sorted(wanted & standing.keys())
        if standing[service] != plan.stack.name
    ]


def _of_stack(stack_name: str) -> str:
    return f" (of the stack {stack_name})" if stack_name else ""


def _quotas(
    account: AccountModule, cloud: str, ask: MachineAsk
) -> list[RefusedCall]:
    step = f"{ask.nodes} x {ask.instance_type}"
    return [
        RefusedCall(
            step,
            f"{clouds()[cloud].quota_code}: {room.text}",
            "quota",
            f"raise it: {room.remedy}",
        )
        for room in quota_rooms(account, cloud, ask)
        if not room.is_enough
    ]


def _zones(
    account: AccountModule, cloud: str, ask: MachineAsk
) -> list[RefusedCall]:
    offered = account.offered_zones(ask.region, [ask.instance_type])[
        ask.instance_type
    ]
    wanted = set(ask.zones)
    is_enough = (
        wanted <= offered
        if clouds()[cloud].zones_together
        else not wanted or offered & wanted
    )
    if offered and is_enough:
        return []
    where = _zone_list(ask.region, wanted - offered) or ask.region
    return [
        RefusedCall(
            f"{ask.nodes} x {ask.instance_type}",
            f"{clouds()[cloud].capacity_code}: the account cannot have it in {where}",
            "capacity",
            "plan it where it is offered: "
            f"where: {{zones: [{_zone_list(ask.region, offered)}]}}"
            if offered - {NO_ZONE}
            else "",
        )
    ]


def _zone_list(region: str, zones: set[str]) -> str:
    return ", ".join(
        zone_name(region, zone) for zone in sorted(zones - {NO_ZONE})
    )


@cache
def _right_rows() -> dict[tuple[str, str], tuple[str, ...]]:
    columns: table.Columns = {
        "type": table.nonempty_text,
        "verb": table.one_of(*VERBS),
        "permission": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rights: dict[tuple[str, str], list[str]] = {}
    for row in table.load_rows("stacks", "permissions.csv", columns):
        key = (row["type"], row["verb"])
        rights.setdefault(key, []).append(row["permission"])
    return {key: tuple(found) for key, found in rights.items()}


def rights_of(resource_type: str, *verbs: str) -> tuple[str, ...]:
    """Return the rights that verbs on a type of resource take, sorted; all verbs without any."""
    rows = _right_rows()
    found = {
        right
        for verb in verbs or VERBS
        for right in rows.get((resource_type, verb), ())
    }
    return tuple(sorted(found))


def all_rights(prefix: str) -> tuple[str, ...]:
    """Return the rights that all types with a prefix take, sorted."""
    return tuple(
        sorted(
            {
                right
                for (type_, _), found in _right_rows().items()
                if type_.startswith(prefix)
                for right in found
            }
        )
    )


@cache
def _services() -> dict[str, str]:
    """Return the service that has to be switched on for a type of resource."""
    columns: table.Columns = {
        "type": table.nonempty_text,
        "service": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["type"]: row["service"]
        for row in table.load_rows("stacks", "services.csv", columns)
    }
