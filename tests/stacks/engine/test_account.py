"""What an account would refuse is told at once, before anything is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from planner.cli.apply import ask_account
from planner.errors import (
    CapacityError,
    CredentialError,
    ResourceError,
    TonnageError,
)
from planner.facts.cloud import clouds
from planner.market.live import QuotaFact
from planner.spec.reservation import zone_name
from stacks.engine import account
from stacks.engine.account import (
    account_refusals,
    machine_asks,
    rights_of,
    zones_of,
)
from stacks.engine.failure import NEXT_STEPS
from tests.conftest import chat, present
from tests.stacks.engine.test_simulated import TEXT, plan_of

CLOUDS = tuple(clouds())


class Account:
    """An account that allows everything, but for what a test takes away."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.zones: set[str] = set()

    def _answer(self, name: str, usual: Any) -> Any:
        self.asked.append(name)
        answer = self.answers.get(name, usual)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def signed_in(self, _region: str) -> str:
        return str(self._answer("signed_in", "ada"))

    def closed_services(
        self, _region: str, services: Iterable[str]
    ) -> dict[str, str]:
        self.services = set(services)
        return dict(self._answer("closed_services", {}))

    def quotas(
        self, _region: str, machine_types: Iterable[str], purchase: str
    ) -> list[QuotaFact]:
        return [
            QuotaFact(
                machine_types=tuple(machine_types),
                purchase=purchase,
                unit="vcpus",
                id="q",
                name="Q",
                limit=self._answer("quotas", None),
                used=1,
            )
        ]

    def offered_zones(
        self, _region: str, machine_types: Iterable[str]
    ) -> dict[str, set[str]]:
        zones = set(self._answer("offered_zones", self.zones))
        return dict.fromkeys(machine_types, zones)

    def named_endpoints(
        self, _region: str, _network: str
    ) -> dict[str, dict[str, str]]:
        return dict(self._answer("named_endpoints", {}))

    def missing_rights(
        self, _region: str, rights: list[str]
    ) -> dict[str, bool]:
        """All rights that are asked for, or one that the cloud is not sure of."""
        self.rights = rights
        answer = self._answer("missing_rights", None)
        return {} if answer is None else dict.fromkeys(rights, answer)


def asked(monkeypatch, catalog, cloud: str, **answers: Any):
    """Return account, refusals and notes of a plan."""
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    fake = Account(**answers)
    fake.zones = set(plan.solution.pools[0].zones)
    monkeypatch.setattr(account, "import_module", lambda _: fake)
    notes: list[str] = []
    refusals = account_refusals(
        plan, (), instances_of(catalog, cloud), notes.append
    )
    return fake, refusals, notes


def instances_of(catalog, cloud: str):
    return {
        offer.instance.instance_type: offer.instance
        for offer in catalog.offers
        if offer.instance.provider == cloud
    }


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_account_that_allows_all_refuses_nothing(
    monkeypatch, catalog, cloud: str
) -> None:
    fake, refusals, notes = asked(monkeypatch, catalog, cloud)
    assert (refusals, notes) == ([], [])
    assert len(fake.asked) == 5
    assert len(fake.rights) > 20
    # Services of AWS are never off.
    assert bool(fake.services) == (cloud != "aws")


@pytest.mark.parametrize("cloud", CLOUDS)
def test_all_that_is_refused_is_told_at_once_with_its_remedy(
    monkeypatch, catalog, cloud: str
) -> None:
    fake, refusals, notes = asked(
        monkeypatch,
        catalog,
        cloud,
        closed_services={"compute": "switch on compute"},
        missing_rights=True,
        quotas=2.0,
        offered_zones={"elsewhere"},
    )
    # Rights to change and delete may be given on what does not exist yet.
    assert [note.partition(":")[0] for note in notes] == ["rights"]
    assert [refusal.kind for refusal in refusals] == [
        "api",
        "permission",
        "quota",
        "capacity",
    ]
    assert {refusal.kind for refusal in refusals} <= NEXT_STEPS.keys()
    remedies = " ".join(refusal.remedy for refusal in refusals)
    for remedy in ("switch on compute", "tonnage quota request", "elsewhere"):
        assert remedy in remedies
    assert f"of {len(fake.rights)} are missing" in refusals[1].message
    assert "of which the account has 2 and uses 1" in refusals[2].message


def test_without_a_login_nothing_else_is_asked(monkeypatch, catalog) -> None:
    fake, [refusal], _ = asked(
        monkeypatch, catalog, "gcp", signed_in=PermissionError("expired")
    )
    assert (refusal.kind, fake.asked) == ("credentials", ["signed_in"])


@pytest.mark.parametrize(
    "error", [PermissionError("denied"), OSError("slow"), LookupError("none")]
)
def test_what_is_not_answered_is_noted_and_stops_nothing(
    monkeypatch, catalog, error: Exception
) -> None:
    _, refusals, notes = asked(
        monkeypatch,
        catalog,
        "aws",
        closed_services=error,
        missing_rights=error,
        quotas=error,
        offered_zones=error,
    )
    assert refusals == []
    assert len(notes) == 4
    assert all("not asked" in note and str(error) in note for note in notes)


def test_without_the_packages_of_a_cloud_it_is_noted(
    monkeypatch, catalog
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))

    def missing(_: str):
        raise ModuleNotFoundError("No module named 'boto3'")

    monkeypatch.setattr(account, "import_module", missing)
    notes: list[str] = []
    instances = instances_of(catalog, "aws")
    assert account_refusals(plan, (), instances, notes.append) == []
    assert "boto3" in notes[0]


def test_rights_that_a_cloud_is_not_sure_of_stop_nothing(
    monkeypatch, catalog
) -> None:
    _, refusals, [note] = asked(
        monkeypatch, catalog, "aws", missing_rights=False
    )
    assert refusals == []
    assert "seems to give" in note
    assert "more" in note


def test_only_what_is_added_is_asked_for(catalog) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    [pool] = plan.solution.pools
    instances = instances_of(catalog, "aws")
    [ask] = machine_asks([pool], [], instances)
    instance = instances[pool.instance_type]
    assert (ask.nodes, ask.vcpus, ask.accelerators) == (
        pool.nodes,
        pool.nodes * instance.vcpu,
        pool.nodes * instance.accelerators,
    )
    assert machine_asks([pool], [pool], instances) == []
    elsewhere = replace(pool, region="eu-west-1")
    assert machine_asks([pool], [elsewhere], instances) == [ask]
    grown = replace(
        pool,
        purchases=(
            replace(pool.purchases[0], nodes=pool.nodes + 3),
            replace(pool.purchases[0], purchase="spot", nodes=2),
        ),
    )
    added = {
        found.purchase: found.nodes
        for found in machine_asks([grown], [pool], instances)
    }
    assert added == {"on_demand": 3, "spot": 2}


@pytest.mark.parametrize("cloud", clouds())
def test_zones_are_those_in_which_machines_are_started(
    catalog, cloud: str
) -> None:
    """Of the zones of a pool a fleet in one zone uses the first alone."""
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    [pool] = plan.solution.pools
    zones = zones_of(plan.graph)[pool.instance_type]
    spread = clouds()[cloud].spread_zones
    assert zones == pool.zones[:spread]
    desk = plan_of(
        catalog,
        "apiVersion: tonnage/v1\nkind: Workspace\nname: desk\n"
        f"accelerator: {{memory: 20GiB}}\nwhere: {{clouds: [{cloud}]}}\n",
    )
    [pool] = desk.solution.pools
    assert zones_of(desk.graph)[pool.instance_type] == pool.zones[:1]


def test_a_roll_asks_for_the_machines_that_come_before_others_go(
    catalog,
) -> None:
    [pool] = plan_of(catalog, TEXT.replace("CLOUD", "aws")).solution.pools
    instances = instances_of(catalog, "aws")
    assert machine_asks([pool], [pool], instances, {}) == []
    [ask] = machine_asks([pool], [pool], instances, {pool.name: 1})
    assert ask.nodes == 1
    assert machine_asks([pool], [pool], instances, {"other": 1}) == []


def test_quota_of_an_elastic_service_is_that_of_all_its_machines(
    catalog,
) -> None:
    text = chat(
        traffic="peak_rps: 40",
        extra="elastic: {least: 0.5, most: 2}\nwhere: {clouds: [aws]}",
    )
    [pool] = plan_of(catalog, text).solution.pools
    most = present(pool.elastic).most_nodes
    assert most > pool.nodes
    [ask] = machine_asks([pool], [], instances_of(catalog, "aws"))
    assert ask.nodes == most


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"signed_in": PermissionError("expired")}, CredentialError),
        ({"missing_rights": True}, CredentialError),
        ({"quotas": 0.0}, CapacityError),
        ({"closed_services": {"x": "y"}, "quotas": 0.0}, ResourceError),
    ],
)
def test_an_apply_ends_before_it_begins(
    monkeypatch, catalog, answers: dict, error: type[TonnageError]
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    fake = Account(**answers)
    fake.zones = set(plan.solution.pools[0].zones)
    monkeypatch.setattr(account, "import_module", lambda _: fake)
    with pytest.raises(error) as refused:
        ask_account(plan, None, catalog)
    assert {problem.cause for problem in refused.value.problems} == {
        "nothing was made yet"
    }
    fake.answers = {}
    ask_account(plan, None, catalog)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_type_that_is_built_has_its_rights(catalog, cloud: str) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    assert [
        resource.type
        for resource in plan.graph.resources
        if not rights_of(resource.type)
    ] == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_zone_that_the_account_has_not_is_named_with_a_way_around_it(
    monkeypatch, catalog, cloud: str
) -> None:
    """Groups of AWS take what their other zones have; a scale set of Azure is refused whole."""
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    [pool] = plan.solution.pools
    used = zones_of(plan.graph)[pool.instance_type]
    others = set(pool.zones) - {used[0]}
    _, refusals, _ = asked(monkeypatch, catalog, cloud, offered_zones=others)
    assert bool(refusals) == (cloud != "aws")
    if not refusals:
        return
    [refusal] = refusals
    assert zone_name(pool.region, used[0]) in refusal.message
    text = TEXT.replace("CLOUD", cloud)
    wanted = refusal.remedy.partition("zones: ")[2].rstrip("}")
    moved = plan_of(
        catalog, text.replace("where: {", f"where: {{zones: {wanted}, ")
    )
    assert set(moved.solution.pools[0].zones) <= others
    assert moved.solution.pools[0].instance_type == pool.instance_type


@pytest.mark.parametrize(
    ("stack", "told"),
    [("", "has one already, and"), ("other", "(of the stack other)")],
)
def test_names_of_services_lead_to_one_endpoint_of_a_network(
    monkeypatch, catalog, stack: str, told: str
) -> None:
    """An endpoint of the stack itself is in nobody's way, and neither is one without a name."""
    given = (
        "network: {id: vpc-0a1b2c3d4e5f60718, range: 10.20.0.0/20, private_endpoints: true, "
        "subnets: [subnet-0a1b2c3d4e5f60711@us-east-1a]}"
    )
    plan = plan_of(catalog, chat(extra=f"where: {{clouds: [aws]}}\n{given}"))
    services = [
        resource.inputs["serviceName"]
        for resource in plan.graph.resources
        if resource.inputs.get("privateDnsEnabled")
    ]
    assert len(services) > 1
    names = {
        services[0]: {"tonnage-stack": stack} if stack else {},
        services[1]: {"tonnage-stack": plan.stack.name},
        "com.other": {},
    }
    fake = Account(named_endpoints=names)
    fake.zones = set(plan.solution.pools[0].zones)
    monkeypatch.setattr(account, "import_module", lambda _: fake)
    [refusal] = account_refusals(
        plan, (), instances_of(catalog, "aws"), lambda _: None
    )
    assert (refusal.step, refusal.kind) == (
        f"the endpoint of {services[0]}",
        "conflict",
    )
    assert told in refusal.message
    assert "private_endpoints: false" in refusal.remedy


@pytest.mark.parametrize(
    ("offered", "is_refused"), [({""}, False), (set(), True)]
)
def test_machines_in_no_zone_are_had_in_their_region(
    monkeypatch, catalog, offered: set[str], is_refused: bool
) -> None:
    """A scale set on InfiniBand is in no zone, and some types have none to be in."""
    plan = plan_of(
        catalog,
        chat(
            extra="where: {clouds: [azure], accelerators: {allow: [h100-sxm]}}"
        ),
    )
    [pool] = plan.solution.pools
    assert zones_of(plan.graph) == {pool.instance_type: ()}
    fake = Account(offered_zones=offered)
    monkeypatch.setattr(account, "import_module", lambda _: fake)
    refusals = account_refusals(
        plan, (), instances_of(catalog, "azure"), lambda _: None
    )
    assert [refusal.kind for refusal in refusals] == (
        ["capacity"] if is_refused else []
    )
    assert all(pool.region in refusal.message for refusal in refusals)
