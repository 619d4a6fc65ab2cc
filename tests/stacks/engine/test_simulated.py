"""The simulated clouds and their engine: applied twice, changed, broken, and taken away."""

from __future__ import annotations

from datetime import timedelta, timezone
from decimal import Decimal

import pytest

from planner.errors import (
    CancelledError,
    CapacityError,
    LockedError,
    MissingError,
    PolicyError,
    ResourceError,
    SpecError,
    UsageError,
)
from planner.market.offer import Catalog
from planner.plan.canonical import dump_plan, parse_plan
from planner.plan.diff import compare_plans
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.plan.types import Plan
from planner.render import text
from planner.render.plan import plan_page
from planner.solve.solution import Solution
from providers.base import ProjectIdentity
from providers.catalog.load import SnapshotPrices
from providers.simulated import world
from providers.simulated.cloud import CloudError, SimulatedCloud
from providers.simulated.world_file import read_world
from stacks.build import planned_stack
from stacks.engine.fill import (
    PLACEHOLDER,
    fill_references,
    output_at,
    placeholder_values,
)
from stacks.engine.protocol import ProgressEvent, RunControl
from stacks.engine.run import MAX_PARALLEL
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.stop import StopRequest
from stacks.graph import Graph, Resource, parse_graph, ref
from tests.conftest import (
    BLUEPRINTS,
    TODAY,
    chat,
    find,
    only,
    present,
    spec_of,
)

TEXT = chat(extra="shutdown: {idle: 30m, ttl: 72h}\nwhere: {clouds: [CLOUD]}")


MOST_PLANS = 64
# What plans are written as, for all tests of a process. A catalog stays with its plan, so that no
# other one gets its number.
_written: dict[tuple[int, str], tuple[Catalog, bytes]] = {}


def plan_of(catalog: Catalog, text: str) -> Plan:
    """The plan of a spec, written and read back."""
    key = id(catalog), text
    if key not in _written:
        if len(_written) >= MOST_PLANS:
            _written.clear()
        solution = find(catalog, text, keep=0)
        _written[key] = catalog, written_plan(catalog, text, solution)
    return parse_plan(_written[key][1], "p.json")


def written_plan(catalog: Catalog, text: str, solution: Solution) -> bytes:
    """The plan of a spec whose fleet was found, as it is written."""
    spec = spec_of(text)
    plan = assemble(
        spec,
        solution,
        catalog,
        source=SpecSource("spec.yaml", "0" * 64),
        stack=planned_stack(spec, solution, PlannedStack(name=spec.name)),
    )
    return dump_plan(plan).encode()


@pytest.fixture
def engine(here) -> SimulatedEngine:
    return SimulatedEngine(world.default_world(), here / "clouds")


def quiet(event) -> None:
    """Listens to nothing."""


EVERYTHING = RunControl(allow=frozenset({"delete-data"}))


def objects(engine: SimulatedEngine) -> dict:
    return world.load_memory(engine.shared_world.path).objects


def assert_only_plan_and_data(engine: SimulatedEngine, plan: Plan) -> None:
    """The clouds have what the plan says, and what an earlier plan left for its data."""
    retained = present(engine.stack_status(plan.stack.name)).retained
    assert len(objects(engine)) == len(plan.graph.resources) + len(retained)


def assert_nothing_to_do(engine: SimulatedEngine, plan: Plan) -> None:
    """A preview names every resource of the plan, in order, and changes none."""
    names = sorted(resource.name for resource in plan.graph.resources)
    assert [(step.name, step.action) for step in engine.preview(plan)] == [
        (name, "same") for name in names
    ]


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_apply_creates_everything_and_a_second_apply_nothing(
    engine, catalog, cloud
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    first = engine.apply(plan, quiet)
    assert {s.action for s in first.steps} == {"create"}
    assert len(objects(engine)) == len(plan.graph.resources)
    before = engine.shared_world.path.read_bytes()
    assert engine.apply(plan, quiet).steps == ()
    assert engine.shared_world.path.read_bytes() == before
    assert_nothing_to_do(engine, plan)
    assert set(first.outputs) == set(plan.graph.outputs)


TRAINED = """apiVersion: tonnage/v1
kind: Training
name: chat
model: {name: llama-3.1-8b}
data: {tokens: 2B, location: "PLACE/tokens", storage: parallel}
train: {method: pretrain, sequence: 4k, global_batch: 256, deadline: 7d}
where: {clouds: [CLOUD]}
protect: false
"""


PLACES = {
    "aws": "s3://bucket",
    "gcp": "gs://bucket",
    "azure": "abfss://bucket@account.dfs.core.windows.net",
}


def trained_on(cloud: str) -> str:
    """A training whose dataset is in a bucket of its cloud."""
    return TRAINED.replace("CLOUD", cloud).replace("PLACE", PLACES[cloud])


@pytest.mark.parametrize("cloud", sorted(PLACES))
def test_a_job_with_its_file_system_applies_and_leaves_nothing(
    engine, catalog, cloud
) -> None:
    plan = plan_of(catalog, trained_on(cloud))
    steps = [s.name for s in engine.apply(plan, quiet).steps]
    assert steps.index("data-files") < steps.index("train-spot-nodes")
    assert engine.apply(plan, quiet).steps == ()
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_destroy_leaves_nothing(engine, catalog, cloud) -> None:
    engine.apply(plan_of(catalog, TEXT.replace("CLOUD", cloud)), quiet)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}
    assert engine.stack_status("chat") is None
    assert engine.stack_names() == []


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
def test_every_blueprint_applies_shows_diffs_and_destroys(
    engine, catalog, path
) -> None:
    spec_text = path.read_text()
    plan = plan_of(catalog, spec_text)
    shown = text.render(plan_page(plan, today=TODAY))
    headline = f"{plan.spec.path}  ·  {plan.workload.kind}  ·  "
    assert shown.startswith(headline)
    assert all(pool.instance_type in shown for pool in plan.solution.pools)
    assert compare_plans(plan, plan).changes == ()
    engine.apply(plan, quiet)
    standing = engine.stack_status(plan.stack.name)
    assert standing.complete
    assert standing.plan == plan.digest
    assert len(standing.resources) == len(plan.graph.resources)
    if standing.facts.protect:
        # What a training has made is deleted by nobody in one step.
        with pytest.raises(PolicyError, match="protected"):
            engine.destroy(plan.stack.name, quiet, EVERYTHING)
        engine.apply(plan_of(catalog, f"{spec_text}\nprotect: false\n"), quiet)
    engine.destroy(plan.stack.name, quiet, EVERYTHING)
    assert objects(engine) == {}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_more_traffic_changes_only_what_it_must(engine, catalog, cloud) -> None:
    text = TEXT.replace("CLOUD", cloud)
    kinds = {p.instance.instance_type for p in find(catalog, text).pools}
    same = only(catalog, lambda o: o.instance.instance_type in kinds)
    engine.apply(plan_of(same, text), quiet)
    bigger = plan_of(same, text.replace("peak_rps: 2", "peak_rps: 40"))
    changed = engine.apply(bigger, quiet)
    assert changed.steps
    assert "delete" not in {s.action for s in changed.steps}
    assert len(changed.steps) < len(bigger.graph.resources) / 2
    assert_nothing_to_do(engine, bigger)
    assert len(objects(engine)) == len(bigger.graph.resources)


@pytest.mark.parametrize(
    "pair", [("aws", "gcp"), ("azure", "aws"), ("gcp", "azure")]
)
def test_a_stack_can_move_to_another_cloud(engine, catalog, pair) -> None:
    engine.apply(plan_of(catalog, TEXT.replace("CLOUD", pair[0])), quiet)
    there = plan_of(catalog, TEXT.replace("CLOUD", pair[1]))
    engine.apply(there, quiet)
    assert_only_plan_and_data(engine, there)
    assert_nothing_to_do(engine, there)


def test_a_move_that_fails_halfway_is_finished_by_the_next_apply(
    here, catalog
) -> None:
    rule = "faults: [{on: create, name: '*-nodes', code: InvalidParameterValue, after: 1}]"
    engine = SimulatedEngine(world_of(rule), here / "clouds")
    engine.apply(plan_of(catalog, TEXT.replace("CLOUD", "aws")), quiet)
    there = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    with pytest.raises(ResourceError):
        engine.apply(there, quiet)
    engine.apply(there, quiet)
    assert_only_plan_and_data(engine, there)
    assert present(engine.stack_status("chat")).complete


def test_replaced_names_go_before_they_come_and_take_dependents_along(
    engine, catalog
) -> None:
    text = TEXT.replace("CLOUD", "aws")
    engine.apply(plan_of(catalog, text), quiet)
    spot = plan_of(catalog, text + "buy: {spot: only}\n")
    engine.apply(spot, quiet)
    assert_only_plan_and_data(engine, spot)


def test_order_follows_dependencies_and_independent_work_overlaps(
    engine, catalog
) -> None:
    events: list[ProgressEvent] = []
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    engine.apply(plan, events.append)
    done: set[str] = set()
    running = 0
    most = 0
    needs = {
        resource.name: resource.dependencies
        for resource in parse_graph(plan.graph).resources
    }
    for event in events:
        if event.phase == "begin":
            assert set(needs[event.step.name]) <= done
            running += 1
            most = max(most, running)
        else:
            running -= 1
            done.add(event.step.name)
    assert 1 < most <= MAX_PARALLEL
    assert done == set(needs)


def world_of(text: str) -> world.World:
    return read_world(text.encode(), "world.yaml")


def test_a_failed_apply_saves_what_was_done_and_the_next_goes_on(
    here, catalog
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    broken = world_of(
        "faults: [{on: create, name: '*-nodes', code: InvalidParameterValue}]"
    )
    engine = SimulatedEngine(broken, here / "clouds")
    with pytest.raises(ResourceError, match="InvalidParameterValue"):
        engine.apply(plan, quiet)
    standing = present(engine.stack_status("chat"))
    assert not standing.complete
    assert 10 < len(standing.resources) < len(plan.graph.resources)
    rest = engine.apply(plan, quiet)
    assert 0 < len(rest.steps) < 20
    assert present(engine.stack_status("chat")).complete
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_every_single_failure_recovers_without_a_leftover(
    here, catalog
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    for index, resource in enumerate(plan.graph.resources):
        rule = f"faults: [{{on: create, name: {resource.name}, code: InvalidParameterValue}}]"
        engine = SimulatedEngine(world_of(rule), here / str(index))
        with pytest.raises(ResourceError):
            engine.apply(plan, quiet)
        engine.apply(plan, quiet)
        assert len(objects(engine)) == len(plan.graph.resources)
        engine.destroy("chat", quiet, EVERYTHING)
        assert objects(engine) == {}


@pytest.mark.parametrize(
    ("rule", "code"), [("capacity", "capacity"), ("quota", "quota")]
)
def test_no_capacity_or_quota_is_told_as_such(
    here, catalog, rule, code
) -> None:
    engine = SimulatedEngine(
        world_of(f"{rule}: [{{nodes: 0}}]"), here / "clouds"
    )
    with pytest.raises(CapacityError) as caught:
        engine.apply(plan_of(catalog, TEXT.replace("CLOUD", "azure")), quiet)
    assert caught.value.exit_code == 14
    assert caught.value.problems[0].code == code


def test_capacity_is_shared_between_stacks(here, catalog) -> None:
    engine = SimulatedEngine(
        world_of("capacity: [{nodes: 1}]"), here / "clouds"
    )
    text = TEXT.replace("CLOUD", "gcp").replace("peak_rps: 2", "peak_rps: 0.2")
    engine.apply(plan_of(catalog, text), quiet)
    with pytest.raises(CapacityError, match="1 used"):
        engine.apply(
            plan_of(catalog, text.replace("name: chat", "name: other")), quiet
        )


def test_the_deadline_counts_from_the_first_apply(engine, catalog) -> None:
    # Both rates are served by machines of the same type.
    text = TEXT.replace("[CLOUD]", "[aws], accelerators: {allow: [l40s]}")
    smaller = plan_of(catalog, text.replace("peak_rps: 2", "peak_rps: 3"))
    engine.apply(smaller, quiet)
    found = next(
        o for o in objects(engine).values() if o["name"] == "serve-deadline"
    )
    expected = world.default_world().clock + timedelta(hours=72)
    assert found["inputs"]["scheduleExpression"] == expected.strftime(
        "at(%Y-%m-%dT%H:%M:%S)"
    )
    bigger = plan_of(catalog, text.replace("peak_rps: 2", "peak_rps: 12"))
    assert bigger.solution.pools[0].nodes > smaller.solution.pools[0].nodes
    engine.apply(bigger, quiet)
    again = next(
        o for o in objects(engine).values() if o["name"] == "serve-deadline"
    )
    assert (
        again["inputs"]["scheduleExpression"]
        == found["inputs"]["scheduleExpression"]
    )


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_another_ttl_moves_the_deadline(engine, catalog, cloud) -> None:
    text = TEXT.replace("CLOUD", cloud)
    engine.apply(plan_of(catalog, text), quiet)
    longer = plan_of(catalog, text.replace("ttl: 72h", "ttl: 96h"))
    changed = {step.name for step in engine.apply(longer, quiet).steps}
    deadline = world.default_world().clock + timedelta(hours=96)
    written = [
        name
        for name, inputs in (
            (found["name"], str(found["inputs"]))
            for found in objects(engine).values()
        )
        if deadline.strftime("%Y-%m-%dT") in inputs
        or f" {deadline.day} {deadline.month} *" in inputs
    ]
    assert written
    assert set(written) <= changed
    assert engine.drift("chat") == ()
    assert engine.apply(longer, quiet).steps == ()


@pytest.mark.parametrize("pair", [("aws", "azure"), ("gcp", "aws")])
def test_a_move_that_was_cut_can_be_taken_back(engine, catalog, pair) -> None:
    """What stands at home is taken back, not made again."""
    home, away = (
        plan_of(catalog, TEXT.replace("CLOUD", cloud)) for cloud in pair
    )
    engine.apply(home, quiet)
    at_home = set(objects(engine))
    stop = StopRequest()

    def listen(event: ProgressEvent) -> None:
        if event.elapsed_s > 60:
            stop.make()

    with pytest.raises(CancelledError):
        engine.apply(away, listen, RunControl(stop=stop))
    assert set(objects(engine)) > at_home
    assert engine.drift("chat") == ()
    engine.apply(home, quiet, EVERYTHING)
    assert set(objects(engine)) == at_home


def test_two_at_a_time_is_refused(engine, catalog) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    with (
        engine.store.lock("chat", "a test"),
        pytest.raises(LockedError) as caught,
    ):
        engine.apply(plan, quiet)
    assert caught.value.exit_code == 12
    assert objects(engine) == {}


def test_a_damaged_state_is_refused_and_left_alone(engine, catalog) -> None:
    engine.apply(plan_of(catalog, TEXT.replace("CLOUD", "aws")), quiet)
    path = engine.store.path("chat")
    whole = path.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        whole.replace(b'"serial":', b'"serial":1'),
        b"",
        b"[]",
        whole.replace(b"chat", b"\xd7\xff"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(UsageError, match="damaged"):
            engine.stack_status("chat")
        assert path.read_bytes() == damaged


def test_destroying_what_does_not_exist_is_not_found(engine) -> None:
    with pytest.raises(MissingError):
        engine.destroy("nothing", quiet, EVERYTHING)


def test_world_files_report_all_their_problems() -> None:
    with pytest.raises(SpecError) as caught:
        world_of(
            "clok: x\ncapacity: [{nodes: many}]\nfaults: [{on: explode, code: X}]"
        )
    assert [p.code for p in caught.value.problems] == [
        "unknown-key",
        "quantity",
        "choice",
    ]


def test_a_world_has_prices_of_its_own(catalog) -> None:
    cheap = world_of(
        'prices: [{provider: azure, instance_type: "*", usd_hour: 0.001}]'
    )
    priced = world.WorldPrices(cheap, SnapshotPrices()).catalog()
    assert find(priced, chat()).pools[0].instance.provider == "azure"
    assert priced.sha256 != catalog.sha256


def test_the_cloud_refuses_what_clouds_refuse() -> None:
    memory = world.WorldMemory()
    cloud = SimulatedCloud(world.default_world(), memory, "us-east-1")
    vpc, _ = cloud.create(
        "aws:ec2/vpc:Vpc", "vpc", {"cidrBlock": "10.0.0.0/16"}
    )
    subnet, _ = cloud.create("aws:ec2/subnet:Subnet", "subnet", {"vpcId": vpc})
    with pytest.raises(CloudError, match="DependencyViolation"):
        cloud.delete(vpc)
    cloud.create("aws:s3/bucket:Bucket", "a", {"bucket": "same"})
    with pytest.raises(CloudError, match="AlreadyExists"):
        cloud.create("aws:s3/bucket:Bucket", "b", {"bucket": "same"})
    with pytest.raises(CloudError, match="NotFound"):
        cloud.update("gone", {})
    cloud.delete(subnet)
    cloud.delete(vpc)
    cloud.delete(vpc)
    assert cloud.read(vpc) is None


def graph(*resources: Resource) -> Graph:
    return Graph(provider="aws", region="r", resources=resources)


def test_a_deadline_is_utc_whatever_the_zone_of_the_clock() -> None:
    """Clouds read the text as UTC: the same instant gives the same text."""
    clock = world.default_world().clock
    elsewhere = clock.astimezone(timezone(timedelta(hours=2)))
    assert placeholder_values(ProjectIdentity("p"), elsewhere, Decimal(60)) == (
        placeholder_values(ProjectIdentity("p"), clock, Decimal(60))
    )


@pytest.mark.parametrize(
    ("stated", "filled"),
    [
        ("20260201T000000Z", "2026-02-01T00:00:00Z"),
        # A cloud refuses what is over, and an apply takes some minutes.
        ("20251201T000000Z", "2026-01-01T00:15:00Z"),
    ],
)
def test_a_time_that_is_over_is_soon_after_the_first_apply(
    stated: str, filled: str
) -> None:
    known = placeholder_values(
        ProjectIdentity("p"), world.default_world().clock, None
    )
    assert fill_references(f"${{from.{stated}}}", known, {}) == filled


def test_references_and_texts_are_filled() -> None:
    known = placeholder_values(
        ProjectIdentity("p"), world.default_world().clock, Decimal(60)
    )
    outputs = {"lb": {"pools": [{"id": "x"}]}}
    assert fill_references(
        {"a": [ref("lb", "pools[0].id")]}, known, outputs
    ) == {"a": ["x"]}
    assert (
        fill_references("at(${deadline.at})", known, {})
        == "at(2026-01-01T00:01:00)"
    )
    assert fill_references({"a": ["${project} ${HOME}"]}, known, {}) == {
        "a": ["p ${HOME}"]
    }
    assert output_at({"a": {"b": 1}}, "a.b") == 1
    assert not PLACEHOLDER.search("${deadline} ${N##*_}")
