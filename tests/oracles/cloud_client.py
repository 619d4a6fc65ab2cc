"""The clients of Google Cloud and Azure: which fields an answer has, and of which types they are.

The program asks by REST and has none of them. They come with `pip install --group clients`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)


class ClientType(NamedTuple):
    """A type of a client: its module and its name.

    row  the field with rows of the type; empty where the whole answer is of it
    """

    module: str
    name: str
    row: str = ""


COMPUTE: Final = "google.cloud.compute_v1"
AZURE_COMPUTE: Final = "azure.mgmt.compute.models"
TYPES: Final = {
    "gcp/regions.get": ClientType(COMPUTE, "Region"),
    "gcp/machineTypes.aggregatedList": ClientType(
        COMPUTE, "MachineTypeAggregatedList"
    ),
    "gcp/reservations.aggregatedList": ClientType(
        COMPUTE, "ReservationAggregatedList"
    ),
    "gcp/advice.capacity": ClientType(COMPUTE, "CapacityAdviceResponse"),
    "gcp/regionCommitments.list": ClientType(COMPUTE, "CommitmentList"),
    "gcp/regionCommitments.aggregatedList": ClientType(
        COMPUTE, "CommitmentAggregatedList"
    ),
    "gcp/instances.aggregatedList": ClientType(
        COMPUTE, "InstanceAggregatedList"
    ),
    "gcp/skus.list": ClientType(
        "google.cloud.billing_v1.types", "ListSkusResponse"
    ),
    "gcp/quotaInfos.list": ClientType(
        "google.cloud.cloudquotas_v1.types", "ListQuotaInfosResponse"
    ),
    "gcp/quotaPreferences.patch": ClientType(
        "google.cloud.cloudquotas_v1.types", "QuotaPreference"
    ),
    "gcp/services.batchGet": ClientType(
        "google.cloud.service_usage_v1.types", "BatchGetServicesResponse"
    ),
    "gcp/projects.testIamPermissions": ClientType(
        "google.iam.v1.iam_policy_pb2", "TestIamPermissionsResponse"
    ),
    "gcp/models.fetch": ClientType(
        "google.cloud.gkerecommender_v1.types", "FetchModelsResponse"
    ),
    "gcp/benchmarkingData.fetch": ClientType(
        "google.cloud.gkerecommender_v1.types", "FetchBenchmarkingDataResponse"
    ),
    "azure/Subscriptions_Get": ClientType(
        "azure.mgmt.resource.subscriptions.models", "Subscription"
    ),
    "azure/Providers_List": ClientType(
        "azure.mgmt.resource.resources.models", "Provider", "value"
    ),
    "azure/Usage_List": ClientType(AZURE_COMPUTE, "Usage", "value"),
    "azure/ResourceSkus_List": ClientType(
        AZURE_COMPUTE, "ResourceSku", "value"
    ),
    "azure/CapacityReservationGroups_ListBySubscription": ClientType(
        AZURE_COMPUTE, "CapacityReservationGroup", "value"
    ),
    "azure/CapacityReservations_ListByCapacityReservationGroup": ClientType(
        AZURE_COMPUTE, "CapacityReservation", "value"
    ),
    "azure/CapacityReservations_Get": ClientType(
        AZURE_COMPUTE, "CapacityReservation"
    ),
    "azure/VirtualMachineScaleSets_ListAll": ClientType(
        AZURE_COMPUTE, "VirtualMachineScaleSet", "value"
    ),
    "azure/VirtualMachineScaleSetVMs_List": ClientType(
        AZURE_COMPUTE, "VirtualMachineScaleSetVM", "value"
    ),
    "azure/VirtualMachines_List": ClientType(
        AZURE_COMPUTE, "VirtualMachine", "value"
    ),
    "azure/SpotPlacementScores_Post": ClientType(
        "azure.mgmt.computerecommender.models", "SpotPlacementScoresResponse"
    ),
    "azure/Permissions_List": ClientType(
        "azure.mgmt.authorization.v2022_04_01.models", "Permission", "value"
    ),
    "azure/Reservation_ListAll": ClientType(
        "azure.mgmt.reservations.models", "ReservationResponse", "value"
    ),
    "azure/SavingsPlan_ListAll": ClientType(
        "azure.mgmt.billingbenefits.models", "SavingsPlanModel", "value"
    ),
    "azure/Quota_CreateOrUpdate": ClientType(
        "azure.mgmt.quota.models", "QuotaRequestDetails"
    ),
    "azure/Query_Usage": ClientType(
        "azure.mgmt.costmanagement.models", "QueryResult"
    ),
}
# What a page of Azure has besides its rows.
LINK: Final = "nextLink"
# What a list of JSON may be read as, by the type that a client declares.
PLAIN: Final[dict[Any, tuple[type, ...]]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    Decimal: (int, float),
}


def is_here(call: str) -> bool:
    """Tell whether the client of a call is installed."""
    try:
        return find_spec(TYPES[call].module) is not None
    except ModuleNotFoundError:
        return False


def strange_paths(call: str, document: dict[str, Any]) -> list[str]:
    """Return the paths of an answer that its client does not know, or knows with another type."""
    stated = TYPES[call]
    if call.startswith("gcp/"):
        return list(_strange_to_google(stated, document))
    kind = getattr(importlib.import_module(stated.module), stated.name)
    if not stated.row:
        return list(_strange(kind, document, ""))
    known = {stated.row, LINK}
    return [
        *(name for name in document if name not in known),
        *(
            path
            for row in document[stated.row]
            for path in _strange(kind, row, f"{stated.row}[]")
        ),
    ]


def _strange_to_google(
    stated: ClientType, document: dict[str, Any]
) -> Iterator[str]:
    """Yield what the message of an answer refuses, as its reader says it."""
    json_format = importlib.import_module("google.protobuf.json_format")
    kind = getattr(_google_types(stated.module), stated.name)
    # Some are written with proto-plus, which has the message inside.
    message = kind() if stated.module.endswith("_pb2") else kind.pb()()
    try:
        json_format.ParseDict(document, message, ignore_unknown_fields=False)
    except json_format.ParseError as error:
        yield str(error)


@cache
def _google_types(name: str) -> Any:
    """Return the module of a client's types.

    Of Compute Engine it is loaded alone: all of its clients beside it take three seconds.
    """
    if name != COMPUTE:
        return importlib.import_module(name)
    package = find_spec(name)
    assert package is not None
    assert package.submodule_search_locations is not None
    [folder] = package.submodule_search_locations
    spec = spec_from_file_location(
        "compute_types", Path(folder) / "types" / "compute.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _strange(kind: Any, value: Any, path: str) -> Iterator[str]:
    """Yield the paths at which a value is not of a kind that a client of Azure declares."""
    kinds = _alternatives(kind)
    if value is None or Any in kinds:
        return
    declared = kinds[0]
    home = get_origin(declared) or declared
    if isinstance(value, list) and home is list:
        for row in value:
            yield from _strange(get_args(declared)[0], row, f"{path}[]")
    elif isinstance(value, dict) and home is dict:
        for member in value.values():
            yield from _strange(get_args(declared)[1], member, f"{path}.*")
    elif isinstance(value, dict) and hasattr(declared, "__mro__"):
        fields = _azure_fields(declared)
        for name, inner in value.items():
            inner_path = f"{path}.{name}" if path else name
            if name not in fields:
                yield inner_path
                continue
            yield from _strange(fields[name], inner, inner_path)
    elif not _is_plain(kinds, value):
        yield f"{path}: {value!r} is no {declared}"


def _alternatives(kind: Any) -> list[Any]:
    """Return the kinds of which a value may be."""
    if get_origin(kind) in (Union, UnionType):
        return [inner for inner in get_args(kind) if inner is not type(None)]
    return [kind]


def _is_plain(kinds: list[Any], value: Any) -> bool:
    for kind in kinds:
        if get_origin(kind) is Literal and value in get_args(kind):
            return True
        allowed = PLAIN.get(kind)
        # Times and days are texts.
        if (
            allowed is None
            and isinstance(kind, type)
            and issubclass(kind, date)
        ):
            allowed = (str,)
        if allowed and isinstance(value, allowed):
            return isinstance(value, bool) == (bool in allowed)
    return False


@cache
def _azure_fields(kind: type) -> Mapping[str, Any]:
    """Return the kinds of the fields of a model, by their names in JSON."""
    # The older models have a table, in words of its own.
    table = getattr(kind, "_attribute_map", None)
    if table is not None:
        return {row["key"]: Any for row in table.values()}
    package = kind.__module__.rpartition(".")[0]
    hints = get_type_hints(
        kind, localns={"_models": importlib.import_module(package)}
    )
    fields = {}
    for ancestor in kind.__mro__:
        for name, member in vars(ancestor).items():
            if hasattr(member, "_rest_name_input"):
                # A name that is given in JSON is that of the attribute otherwise.
                fields[member._rest_name_input or name] = hints[name]
    return fields
