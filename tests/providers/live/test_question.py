"""What Google Cloud and Azure answer before something is built, at services like theirs."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.market.live import QuotaFact
from providers.live.question import (
    MachineAsk,
    QuotaRoom,
    quota_rooms,
    rules_by_quota,
)
from tests.loopback import Answer, Cloud, Request
from tests.providers.shapes import Document, answer_of, call_of
from tests.providers.shapes.service import refuse, said, serve

pytestmark = pytest.mark.enable_socket
GCP_ASK = MachineAsk(
    region="us-central1",
    instance_type="g2-standard-4",
    purchase="on_demand",
    nodes=2,
    vcpus=8,
    accelerators=2,
)
AZURE_TYPE = "Standard_ND96isr_H100_v5"
AZURE_ASK = MachineAsk(
    region="eastus",
    instance_type=AZURE_TYPE,
    purchase="on_demand",
    nodes=1,
    vcpus=96,
    accelerators=8,
)


def account(cloud: str):
    return import_module(f"providers.{cloud}.account")


def rooms_of(cloud: str, ask: MachineAsk) -> list[QuotaRoom]:
    return quota_rooms(account(cloud), cloud, ask)


@pytest.mark.parametrize("cloud", clouds())
def test_every_purchase_of_a_known_machine_has_its_quota(
    cloud: str, catalog
) -> None:
    """Where none is known, that is said and not taken for enough."""
    unknown = set()
    for offer in catalog.offers:
        instance = offer.instance
        if instance.provider != cloud or offer.purchase not in (
            "on_demand",
            "spot",
        ):
            continue
        name = instance.instance_type
        counted = rules_by_quota(cloud, [name], offer.purchase)
        if not counted:
            unknown.add((instance.family, offer.purchase))
        assert all(types == (name,) for types in counted.values())
    assert unknown == {
        "aws": {("p6-b200", "spot"), ("p6-b300", "spot")},
        "azure": set(),
    }.get(cloud, unknown)
    if cloud == "gcp":
        assert not any(family.startswith(("g2", "a2")) for family, _ in unknown)


def test_a_quota_of_google_has_its_use_beside_its_limit(cloud: Cloud) -> None:
    region = answer_of("gcp/regions.get")
    region["quotas"][1]["usage"] = 7.0
    serve(cloud, {"gcp/regions.get": region})
    [room] = rooms_of("gcp", GCP_ASK)
    assert (room.quota.limit, room.quota.used, room.is_enough) == (8, 7, False)
    one = replace(GCP_ASK, nodes=1, accelerators=1)
    assert rooms_of("gcp", one)[0].is_enough
    serve(cloud, {"gcp/regions.get": "none"})
    with pytest.raises(LookupError, match="g2-standard-4"):
        rooms_of("gcp", GCP_ASK)


@pytest.mark.parametrize(
    ("limit", "is_enough"), [("0", False), ("8", True), ("-1", True)]
)
def test_a_family_of_google_is_found_over_pages(
    cloud: Cloud, limit: str, is_enough: bool
) -> None:
    """A token that comes again ends the list; the quota of spot is another one."""
    page = answer_of("gcp/quotaInfos.list") | {"nextPageToken": "two"}
    _, family, _ = page["quotaInfos"]
    family["dimensionsInfos"][0]["details"]["value"] = limit

    def answer(request: Request) -> Answer:
        token = parse_qs(urlsplit(request.path).query).get("pageToken")
        first = answer_of("gcp/quotaInfos.list", "empty")
        first["nextPageToken"] = "two"
        return said(call_of(request), first if token is None else page)

    cloud.answer = answer
    ask = replace(
        GCP_ASK, instance_type="a3-highgpu-8g", nodes=1, accelerators=8
    )
    [room] = rooms_of("gcp", ask)
    assert (room.is_enough, room.quota.used) == (is_enough, None)
    with pytest.raises(LookupError, match="us-west1"):
        rooms_of("gcp", replace(ask, region="us-west1"))
    assert len(cloud.asked) == 4


def test_services_of_google_that_are_off(cloud: Cloud) -> None:
    enabled, disabled = answer_of("gcp/services.batchGet")["services"]

    def answer(request: Request) -> Answer:
        names = parse_qs(urlsplit(request.path).query)["names"]
        found = [
            {**(disabled if "17" in name else enabled), "name": name}
            for name in names
        ]
        return said(call_of(request), {"services": found})

    cloud.answer = answer
    names = [f"s{number}.googleapis.com" for number in range(21)]
    closed = account("gcp").closed_services("us-east4", names)
    assert closed == {
        "s17.googleapis.com": "gcloud services enable s17.googleapis.com --project proj"
    }
    assert len(cloud.asked) == 2
    serve(cloud, {"gcp/services.batchGet": "none"})
    assert account("gcp").closed_services("us-east4", names) == {}


def test_zones_of_google(cloud: Cloud) -> None:
    """Of the region alone, and where a zone has the type."""
    listed = answer_of("gcp/machineTypes.aggregatedList")
    zones = listed["items"]
    zones["zones/us-west1-a"] = zones["zones/us-central1-a"]
    serve(cloud, {"gcp/machineTypes.aggregatedList": listed})
    types = ["g2-standard-4", "a3-highgpu-8g", "a9-highgpu-8g"]
    assert account("gcp").offered_zones("us-central1", types) == {
        "g2-standard-4": {"us-central1-a"},
        "a3-highgpu-8g": {"us-central1-a"},
        "a9-highgpu-8g": set(),
    }


def test_rights_of_google_are_those_that_are_granted(cloud: Cloud) -> None:
    granted = "compute.instances.create"
    ask = account("gcp").missing_rights
    serve(cloud)
    assert ask("r", [granted, "b"]) == {"b": True}
    assert cloud.asked[0].document() == {"permissions": [granted, "b"]}
    serve(cloud, {"gcp/projects.testIamPermissions": "empty"})
    assert ask("r", [granted, "b"]) == {granted: True, "b": True}


def azure_quotas(cores: int, family: int) -> dict[str, Document]:
    """Quotas of Azure with other limits, none of which is used.

    The service of machine types writes the name of a family in another way.
    """
    usages = answer_of("azure/Usage_List")
    limits = {"cores": cores, "standardNDSH100v5Family": family}
    for row in usages["value"]:
        row["currentValue"] = 0
        row["limit"] = limits.get(row["name"]["value"], row["limit"])
    listed = answer_of("azure/ResourceSkus_List")
    for row in listed["value"]:
        if "family" in row:
            row["family"] = "Standard NDSH100v5 Family"
    return {"azure/Usage_List": usages, "azure/ResourceSkus_List": listed}


@pytest.mark.parametrize(
    ("cores", "family", "enough"),
    [(96, 96, [True, True]), (95, 96, [False, True]), (96, 0, [True, False])],
)
def test_azure_counts_cores_and_those_of_a_family(
    cloud: Cloud, cores: int, family: int, enough: list[bool]
) -> None:
    serve(cloud, azure_quotas(cores, family))
    rooms = rooms_of("azure", AZURE_ASK)
    assert [room.is_enough for room in rooms] == enough
    assert all(room.remedy.endswith(" 96") for room in rooms)
    spot = replace(AZURE_ASK, purchase="spot")
    [room] = rooms_of("azure", spot)
    assert (room.quota.name, room.is_enough) == (
        "Total Regional Low-priority vCPUs in eastus",
        True,
    )


@pytest.mark.parametrize(
    ("case", "zones"),
    [("ordinary", {"", "1", "2"}), ("whole_region", set()), ("empty", set())],
)
def test_zones_of_azure_are_those_of_the_subscription(
    cloud: Cloud, case: str, zones: set[str]
) -> None:
    serve(cloud, {"azure/ResourceSkus_List": case})
    types = [AZURE_TYPE, "Standard_X"]
    assert account("azure").offered_zones("eastus", types) == {
        AZURE_TYPE: zones,
        "Standard_X": set(),
    }


def test_a_type_without_restrictions_is_in_all_zones(cloud: Cloud) -> None:
    listed = answer_of("azure/ResourceSkus_List")
    for row in listed["value"]:
        row["restrictions"] = []
    serve(cloud, {"azure/ResourceSkus_List": listed})
    assert account("azure").offered_zones("eastus", [AZURE_TYPE]) == {
        AZURE_TYPE: {"", "1", "2", "3"}
    }


def test_providers_of_azure_that_are_not_registered(cloud: Cloud) -> None:
    """Their names are in any case, and one that is not listed is none that is registered."""
    listed = answer_of("azure/Providers_List")
    listed["value"][0]["namespace"] = "microsoft.compute"
    serve(cloud, {"azure/Providers_List": listed})
    names = ["Microsoft.Compute", "Microsoft.Network", "Microsoft.Insights"]
    closed = account("azure").closed_services("eastus", names)
    assert closed.keys() == {"Microsoft.Network", "Microsoft.Insights"}


def test_rights_of_azure_are_patterns_with_exceptions(cloud: Cloud) -> None:
    rights = [
        "Microsoft.Compute/virtualMachineScaleSets/write",
        "Microsoft.Authorization/roleAssignments/write",
        "Microsoft.Authorization/roleDefinitions/write",
    ]
    serve(cloud)
    assert account("azure").missing_rights("eastus", rights) == {
        rights[2]: True
    }


def test_a_subscription_that_is_not_active_is_no_login(cloud: Cloud) -> None:
    serve(cloud, {"azure/Subscriptions_Get": "none"})
    with pytest.raises(PermissionError, match="research is Warned"):
        account("azure").signed_in("eastus")


@pytest.mark.parametrize("cloud_name", ["gcp", "azure"])
@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("permission", PermissionError),
        ("stranger", PermissionError),
        ("unknown", FileNotFoundError),
        ("broken", OSError),
    ],
)
def test_refusals_are_the_errors_of_the_room(
    cloud: Cloud, cloud_name: str, case: str, error: type[Exception]
) -> None:
    refuse(cloud, case)
    with pytest.raises(error) as raised:
        account(cloud_name).signed_in("r")
    assert raised.type is error


def test_an_unknown_use_counts_as_none() -> None:
    quota = QuotaFact(
        machine_types=("m",),
        purchase="spot",
        unit="vcpus",
        id="q",
        name="q",
        limit=5,
        used=None,
    )
    room = QuotaRoom(quota=quota, asked=5, remedy="ask")
    assert room.is_enough
    assert not replace(room, asked=6).is_enough


def test_google_is_asked_for_more_by_a_preference(cloud: Cloud) -> None:
    """Its name is that of the quota and the region: who asks again changes it."""
    serve(cloud)
    for quota_id, asked_id, dimensions in (
        (
            "NVIDIA_L4_GPUS",
            "NVIDIA-L4-GPUS-per-project-region",
            {"region": "us-central1"},
        ),
        (
            "NVIDIA_H100",
            "GPUS-PER-GPU-FAMILY-per-project-region",
            {"region": "us-central1", "gpu_family": "NVIDIA_H100"},
        ),
    ):
        state = account("gcp").request_quota("us-central1", quota_id, 16.0)
        assert state == "it is being looked at"
        asked = cloud.asked[-1]
        name = quota_id.lower().replace("_", "-")
        assert f"/quotaPreferences/tonnage-{name}-us-central1?" in asked.path
        document = asked.document()
        assert document["quotaId"] == asked_id
        assert document["dimensions"] == dimensions
        assert document["quotaConfig"] == {"preferredValue": "16"}
    with pytest.raises(LookupError, match="NVIDIA_X"):
        account("gcp").request_quota("us-central1", "NVIDIA_X", 1.0)


def test_a_preference_that_is_decided_says_so(cloud: Cloud) -> None:
    serve(cloud, {"gcp/quotaPreferences.patch": "none"})
    ask = account("gcp").request_quota
    assert ask("us-central1", "NVIDIA_L4_GPUS", 16.0) == "it is decided"


def test_a_request_that_azure_does_not_take_is_an_error(cloud: Cloud) -> None:
    serve(cloud, {"azure/Quota_CreateOrUpdate": "none"})
    with pytest.raises(OSError, match="400"):
        account("azure").request_quota("eastus", "cores", 96.0)


def test_azure_is_asked_for_more_of_a_family(cloud: Cloud) -> None:
    serve(cloud)
    family = "standardNDSH100v5Family"
    state = account("azure").request_quota("eastus", family, 96.0)
    assert state == "Accepted"
    [asked] = cloud.asked
    assert asked.method == "PUT"
    assert f"/Microsoft.Quota/quotas/{family}?" in asked.path
    assert asked.document()["properties"]["limit"]["value"] == 96


def test_who_is_not_reached_is_told_without_the_whole_address(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = account("gcp")
    url = "http://127.0.0.1:9/compute/v1"
    monkeypatch.setattr(asking, "COMPUTE_URL", url)
    with pytest.raises(OSError, match=r"^127\.0\.0\.1:9: .*refused") as told:
        asking.signed_in("us-east4")
    assert "/compute/v1" not in str(told.value)
