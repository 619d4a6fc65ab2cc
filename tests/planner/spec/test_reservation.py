"""Capacity that is reserved already: machines are taken from it alone, where it is."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.solve.settings import SolveSettings
from planner.spec.reservation import Reservation, reservations_of
from planner.workload.solver import why_not
from stacks.build import build_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, find, present, spec_of
from tests.stacks.told import inputs_of

AWS_ID = "cr-0a1b2c3d4e5f60718"
GCP_ID = "projects/corp-net-1/reservations/gpus"
AZURE_ID = (
    "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/net"
    "/providers/Microsoft.Compute/capacityReservationGroups/gpus"
)
RESERVED = {
    "aws": f"{AWS_ID}@us-east-1a:2xg6.xlarge",
    "gcp": f"{GCP_ID}@us-east4-a:2xg2-standard-4",
    "azure": f"{AZURE_ID}@eastus:2xStandard_NC24ads_A100_v4",
}
TRAINING = """
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 100M, storage: object}
train: {method: finetune, deadline: 14d}
buy: {reservations: ['RESERVED']}
"""


def spec(*reserved: str, rps: int = 2, extra: str = "") -> str:
    texts = ", ".join(f"'{text}'" for text in reserved)
    return chat(
        traffic=f"peak_rps: {rps}",
        extra=f"buy: {{reservations: [{texts}]{extra}}}",
    )


@pytest.mark.parametrize("cloud", clouds())
def test_machines_are_those_that_are_reserved(catalog, cloud: str) -> None:
    text = spec(RESERVED[cloud])
    [reserved] = reservations_of([RESERVED[cloud]])
    [pool] = find(catalog, text, keep=0).pools
    assert pool.instance.provider == reserved.cloud == cloud
    assert pool.instance.instance_type == reserved.instance_type
    assert reserved.is_in(pool.region)
    assert pool.nodes <= reserved.machines
    [part] = pool.purchases
    assert (part.purchase, part.reservation) == ("on_demand", reserved.id)
    zone = reserved.zone_in(pool.region)
    assert pool.zones == ((zone,) if zone else ())


@pytest.mark.parametrize(("place", "zones"), [("", None), ("-2", ["2"])])
def test_machines_of_azure_are_in_the_zone_of_their_reservation(
    catalog, place: str, zones: list[str] | None
) -> None:
    """Azure gives what is reserved in no zone to machines in no zone alone."""
    text = spec(RESERVED["azure"].replace("@eastus", f"@eastus{place}"))
    [scale_set] = inputs_of(
        launch_of(catalog, text), "VirtualMachineScaleSet"
    ).values()
    assert scale_set.get("zones") == zones


@pytest.mark.parametrize("cloud", clouds())
def test_more_than_are_reserved_are_not_planned(catalog, cloud: str) -> None:
    assert not find(catalog, spec(RESERVED[cloud], rps=300), keep=0).pools


def test_what_is_reserved_is_what_a_refusal_names(catalog) -> None:
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    text = spec(RESERVED["aws"], rps=300)
    [answer] = why_not(spec_of(text), settings, "g6.xlarge")
    assert present(answer.reason).code == "reserved"


@pytest.mark.parametrize(
    ("machines", "update", "warns"),
    [(0, "", True), (1, "", False), (0, "update: recreate", False)],
)
def test_a_roll_takes_one_machine_more_than_the_fleet(
    catalog, machines: int, update: str, warns: bool
) -> None:
    few = spec(RESERVED["aws"].replace(":2x", ":40x"), rps=20)
    [pool] = find(catalog, few, keep=0).pools
    text = few.replace(":40x", f":{pool.nodes + machines}x") + f"{update}\n"
    codes = {warning.code for warning in find(catalog, text, keep=0).warnings}
    assert ("roll" in codes) is warns


def test_of_several_reservations_that_which_is_enough_is_taken(catalog) -> None:
    few = RESERVED["aws"]
    many = few.replace("1a:2x", "1b:40x").replace("60718", "60719")
    [pool] = find(catalog, spec(few, many, rps=20), keep=0).pools
    assert pool.purchases[0].reservation.endswith("60719")
    assert pool.zones == ("us-east-1b",)


def launch_of(catalog: Any, text: str) -> Any:
    made = spec_of(text)
    solution = find(catalog, text, keep=0)
    return build_stack(made, solution, made.name).graph


def test_templates_name_the_reservation(catalog) -> None:
    [aws] = inputs_of(
        launch_of(catalog, spec(RESERVED["aws"])), "LaunchTemplate"
    ).values()
    assert aws["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": AWS_ID}
    }
    [gcp] = inputs_of(
        launch_of(catalog, spec(RESERVED["gcp"])), "InstanceTemplate"
    ).values()
    affinity = gcp["reservationAffinity"]
    assert affinity["type"] == "SPECIFIC_RESERVATION"
    assert affinity["specificReservation"]["values"] == [GCP_ID]
    [azure] = inputs_of(
        launch_of(catalog, spec(RESERVED["azure"])), "VirtualMachineScaleSet"
    ).values()
    profile = azure["virtualMachineProfile"]["capacityReservation"]
    assert profile == {"capacityReservationGroup": {"id": AZURE_ID}}


def test_a_job_on_reserved_machines_has_no_placement_of_its_own(
    catalog,
) -> None:
    """Those that are reserved have their places already, so another group would not have them."""
    reserved = f"{AWS_ID}@us-east-1a:8xp5.48xlarge"
    text = TRAINING.replace("RESERVED", reserved).replace("100M", "20B")
    solution = find(catalog, text, keep=0)
    [pool] = solution.pools
    assert 1 < pool.nodes <= 8
    graph = launch_of(catalog, text)
    assert not inputs_of(graph, "PlacementGroup")
    [group] = inputs_of(graph, "Group").values()
    assert "placementGroup" not in group


def test_machines_on_infiniband_take_no_reservation(catalog) -> None:
    """A plan takes what else is reserved, and says so where nothing is."""
    joined = f"{AZURE_ID}@eastus:8xStandard_ND96isr_H100_v5"
    text = TRAINING.replace("RESERVED", joined)
    nearest = find(catalog, text, keep=0)
    assert not nearest.pools
    assert "buy.reservations" in dict(nearest.funnel)
    other = f"{AZURE_ID}2@eastus:8xStandard_NC96ads_A100_v4"
    both = text.replace(f"'{joined}'", f"'{joined}', '{other}'")
    [pool] = find(catalog, both, keep=0).pools
    assert pool.instance.instance_type == "Standard_NC96ads_A100_v4"


@pytest.mark.parametrize(
    ("place", "region", "is_in"),
    [
        ("us-east-1a", "us-east-1", True),
        ("us-east-1a", "us-east-2", False),
        ("us-east4-a", "us-east4", True),
        ("eastus", "eastus", True),
        ("eastus-1", "eastus", True),
        # Names of regions begin with those of others.
        ("eastus2", "eastus", False),
        ("eastus", "eastus2", False),
    ],
)
def test_a_reservation_is_in_one_region(
    place: str, region: str, is_in: bool
) -> None:
    reserved = Reservation(
        cloud="aws", id="r", place=place, machines=1, instance_type="t"
    )
    assert reserved.is_in(region) is is_in


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (spec("cr-1@us-east-1a:2xg6.xlarge"), "a reservation"),
        (spec(f"{AWS_ID}@us-east-1a"), "a reservation"),
        (spec(RESERVED["aws"], extra=", spot: only"), "exclude each other"),
    ],
)
def test_what_is_no_reservation_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec_of(text)
    problem = refused.value.problems[0]
    assert told in f"{problem.message}; {problem.next_step}"
