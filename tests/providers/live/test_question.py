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

pytestmark = pytest.mark.enable_socket
GCP_ASK = MachineAsk(
    region="us-east4",
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
    quotas = [
        {"metric": "CPUS", "limit": 1e4, "usage": 0},
        {"metric": "NVIDIA_L4_GPUS", "limit": 8.0, "usage": 7.0},
    ]
    cloud.answer = lambda _: (200, {"quotas": quotas})
    [room] = rooms_of("gcp", GCP_ASK)
    assert (room.quota.limit, room.quota.used, room.is_enough) == (8, 7, False)
    one = replace(GCP_ASK, nodes=1, accelerators=1)
    assert rooms_of("gcp", one)[0].is_enough
    cloud.answer = lambda _: (200, {"quotas": quotas[:1]})
    with pytest.raises(LookupError, match="g2-standard-4"):
        rooms_of("gcp", GCP_ASK)


def family_infos(value: str, regions: list[str]) -> dict:
    return {
        "quotaInfos": [
            {
                "quotaId": f"{prefix}GPUS-PER-GPU-FAMILY-per-project-region",
                "dimensionsInfos": [
                    {
                        "dimensions": {"gpu_family": "NVIDIA_H100"},
                        "details": {"value": amount},
                        "applicableLocations": regions,
                    }
                ],
            }
            for prefix, amount in (("PREEMPTIBLE-", "999"), ("", value))
        ]
    }


@pytest.mark.parametrize(
    ("value", "is_enough"), [("0", False), ("8", True), ("-1", True)]
)
def test_a_family_of_google_is_found_over_pages(
    cloud: Cloud, value: str, is_enough: bool
) -> None:
    """A token that comes again ends the list; the quota of spot is another one."""

    def answer(request: Request) -> Answer:
        token = parse_qs(urlsplit(request.path).query).get("pageToken")
        if token is None:
            return 200, {"quotaInfos": [], "nextPageToken": "two"}
        return 200, {
            **family_infos(value, ["us-east4"]),
            "nextPageToken": "two",
        }

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
    def answer(request: Request) -> Answer:
        names = parse_qs(urlsplit(request.path).query)["names"]
        return 200, {
            "services": [
                {
                    "name": name,
                    "state": "DISABLED" if "17" in name else "ENABLED",
                }
                for name in names
            ]
        }

    cloud.answer = answer
    names = [f"s{number}.googleapis.com" for number in range(21)]
    closed = account("gcp").closed_services("us-east4", names)
    assert closed == {
        "s17.googleapis.com": "gcloud services enable s17.googleapis.com --project proj"
    }
    assert len(cloud.asked) == 2


def test_zones_of_google(cloud: Cloud) -> None:
    cloud.answer = lambda _: (
        200,
        {
            "items": {
                "zones/us-east4-a": {
                    "machineTypes": [{"name": "g2-standard-4"}]
                },
                "zones/us-east4-b": {"warning": {}},
                "zones/us-west1-a": {
                    "machineTypes": [{"name": "g2-standard-4"}]
                },
            }
        },
    )
    types = ["g2-standard-4", "a9-highgpu-8g"]
    assert account("gcp").offered_zones("us-east4", types) == {
        "g2-standard-4": {"us-east4-a"},
        "a9-highgpu-8g": set(),
    }


def test_rights_of_google_are_those_that_are_granted(cloud: Cloud) -> None:
    def answer(request: Request) -> Answer:
        asked = request.document()["permissions"]
        return 200, {"permissions": [right for right in asked if right != "b"]}

    cloud.answer = answer
    assert account("gcp").missing_rights("r", ["a", "b", "c"]) == {"b": True}
    assert cloud.asked[0].path.endswith("/projects/proj:testIamPermissions")


def azure(cores: int, family: int, restrictions: list) -> Cloud:
    usages = [
        {
            "name": {"value": name, "localizedValue": name},
            "currentValue": 0,
            "limit": limit,
        }
        for name, limit in (
            ("cores", cores),
            ("standardNDSH100v5Family", family),
            ("lowPriorityCores", 96),
        )
    ]
    skus = [
        {"resourceType": "disks", "name": AZURE_TYPE},
        {
            "resourceType": "virtualMachines",
            "name": AZURE_TYPE,
            # Case and blanks differ between the two services.
            "family": "Standard NDSH100v5 Family",
            "locationInfo": [{"location": "eastus", "zones": ["1", "2", "3"]}],
            "restrictions": restrictions,
        },
    ]
    service = Cloud()

    def answer(request: Request) -> Answer:
        assert "api-version=" in request.path
        found = usages if "/usages" in request.path else skus
        return 200, {"value": found}

    service.answer = answer
    return service


@pytest.mark.parametrize(
    ("cores", "family", "enough"),
    [(96, 96, [True, True]), (95, 96, [False, True]), (96, 0, [True, False])],
)
def test_azure_counts_cores_and_those_of_a_family(
    cloud: Cloud, cores: int, family: int, enough: list[bool]
) -> None:
    cloud.answer = azure(cores, family, []).answer
    rooms = rooms_of("azure", AZURE_ASK)
    assert [room.is_enough for room in rooms] == enough
    assert all(room.remedy.endswith(" 96") for room in rooms)
    spot = replace(AZURE_ASK, purchase="spot")
    [room] = rooms_of("azure", spot)
    assert (room.quota.name, room.is_enough) == (
        "lowPriorityCores in eastus",
        True,
    )


@pytest.mark.parametrize(
    ("restrictions", "zones"),
    [
        ([], {"", "1", "2", "3"}),
        (
            [{"type": "Zone", "restrictionInfo": {"zones": ["1", "3"]}}],
            {"", "2"},
        ),
        ([{"type": "Location", "restrictionInfo": {}}], set()),
    ],
)
def test_zones_of_azure_are_those_of_the_subscription(
    cloud: Cloud, restrictions: list, zones: set[str]
) -> None:
    cloud.answer = azure(0, 0, restrictions).answer
    types = [AZURE_TYPE, "Standard_X"]
    assert account("azure").offered_zones("eastus", types) == {
        AZURE_TYPE: zones,
        "Standard_X": set(),
    }


def test_providers_of_azure_that_are_not_registered(cloud: Cloud) -> None:
    found = [
        {"namespace": "microsoft.compute", "registrationState": "Registered"},
        {
            "namespace": "Microsoft.Network",
            "registrationState": "NotRegistered",
        },
    ]
    cloud.answer = lambda _: (200, {"value": found})
    names = ["Microsoft.Compute", "Microsoft.Network", "Microsoft.Insights"]
    closed = account("azure").closed_services("eastus", names)
    assert closed.keys() == {"Microsoft.Network", "Microsoft.Insights"}


def test_rights_of_azure_are_patterns_with_exceptions(cloud: Cloud) -> None:
    roles = [
        {
            "actions": ["*"],
            "notActions": ["Microsoft.Authorization/*/Write"],
        },
        {"actions": ["microsoft.authorization/roleassignments/write"]},
    ]
    rights = [
        "Microsoft.Compute/virtualMachineScaleSets/write",
        "Microsoft.Authorization/roleAssignments/write",
        "Microsoft.Authorization/roleDefinitions/write",
    ]
    cloud.answer = lambda _: (200, {"value": roles})
    assert account("azure").missing_rights("eastus", rights) == {
        rights[2]: True
    }


def test_a_subscription_that_is_not_active_is_no_login(cloud: Cloud) -> None:
    cloud.answer = lambda _: (
        200,
        {"displayName": "research", "state": "Warned"},
    )
    with pytest.raises(PermissionError, match="research is Warned"):
        account("azure").signed_in("eastus")


@pytest.mark.parametrize(
    ("cloud_name", "status", "error"),
    [
        ("gcp", 403, PermissionError),
        ("azure", 401, PermissionError),
        ("gcp", 404, FileNotFoundError),
        ("azure", 500, OSError),
    ],
)
def test_refusals_are_the_errors_of_the_room(
    cloud: Cloud, cloud_name: str, status: int, error: type[Exception]
) -> None:
    cloud.answer = lambda _: (status, {"error": {"message": "no"}})
    with pytest.raises(error):
        account(cloud_name).signed_in("r")


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

    def answer(request: Request) -> Answer:
        if request.method == "PATCH":
            return 200, {"reconciling": True}
        found = family_infos("0", ["us-east4"])
        metric = {
            "quotaId": "NVIDIA-L4-GPUS-per-project-region",
            "metric": "compute.googleapis.com/nvidia_l4_gpus",
        }
        return 200, {"quotaInfos": [*found["quotaInfos"], metric]}

    cloud.answer = answer
    for quota_id, asked_id, dimensions in (
        (
            "NVIDIA_L4_GPUS",
            "NVIDIA-L4-GPUS-per-project-region",
            {"region": "us-east4"},
        ),
        (
            "NVIDIA_H100",
            "GPUS-PER-GPU-FAMILY-per-project-region",
            {"region": "us-east4", "gpu_family": "NVIDIA_H100"},
        ),
    ):
        state = account("gcp").request_quota("us-east4", quota_id, 16.0)
        assert state == "it is being looked at"
        asked = cloud.asked[-1]
        name = quota_id.lower().replace("_", "-")
        assert f"/quotaPreferences/tonnage-{name}-us-east4?" in asked.path
        document = asked.document()
        assert document["quotaId"] == asked_id
        assert document["dimensions"] == dimensions
        assert document["quotaConfig"] == {"preferredValue": "16"}
    with pytest.raises(LookupError, match="NVIDIA_X"):
        account("gcp").request_quota("us-east4", "NVIDIA_X", 1.0)


def test_azure_is_asked_for_more_of_a_family(cloud: Cloud) -> None:
    cloud.answer = lambda _: (
        202,
        {"properties": {"provisioningState": "Accepted"}},
    )
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
