"""Good answers of three clouds: files in the shape that a cloud documents, one for each call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tests.loopback import Request

DATA = Path(__file__).parent / "data"
# What a fault does to an answer starts from its document.
Document = dict[str, Any]

# A service lists the machine types that its filter names.
GCP_TYPES: Final = ("g2-standard-4", "a3-highgpu-8g")
PATHS: Final = {
    "gcp_token": r"/token$",
    "gcp_region": r"/compute/v1/projects/proj/regions/[\w-]+$",
    "gcp_services": r"/service/v1/",
    "gcp_quota_infos": r"/quota/v1/",
    "gcp_machine_types": r"/aggregated/machineTypes$",
    "gcp_reservations": r"/aggregated/reservations$",
    "gcp_rights": r"/project/v1/.*:testIamPermissions$",
    "gcp_skus": r"/billing/v1/skus$",
    "gcp_advice": r"/advice/capacity$",
    "gcp_commitments": r"/regions/[\w-]+/commitments$",
    "gcp_commitments_everywhere": r"/aggregated/commitments$",
    "gcp_instances": r"/aggregated/instances$",
    "aws_DescribeSavingsPlans": r"/DescribeSavingsPlans$",
    "aws_DescribeSavingsPlanRates": r"/DescribeSavingsPlanRates$",
    "azure_price_reservations": r"/Microsoft.Capacity/reservations$",
    "azure_savings_plans": r"/Microsoft.BillingBenefits/savingsPlans$",
    "azure_scale_sets": r"/subscriptions/sub/providers/.*/virtualMachineScaleSets$",
    "azure_set_machines": r"/virtualMachineScaleSets/[\w-]+/virtualMachines$",
    "azure_cost": r"/Microsoft.CostManagement/query$",
    "azure_subscription": r"/subscriptions/sub$",
    "azure_providers": r"/subscriptions/sub/providers$",
    "azure_usages": r"/usages$",
    "azure_skus": r"/Microsoft.Compute/skus$",
    "azure_permissions": r"/permissions$",
    "azure_retail": r"/retail/prices$",
    "azure_groups": r"/capacityReservationGroups$",
    "azure_reservations": r"/capacityReservations$",
    "azure_reservation": r"/capacityReservations/\w+$",
    "azure_spot_scores": r"/placementScores/spot/generate$",
}
# Services of AWS whose answers are XML, and the name of the elements of their lists.
EC2_ITEM, QUERY_ITEM = "item", "member"
QUERY_CALLS: Final = ("aws_GetCallerIdentity", "aws_SimulatePrincipalPolicy")
JSON_CALLS: Final = (
    "aws_GetMetricStatistics",
    "aws_GetProducts",
    "aws_GetServiceQuota",
    "aws_ListRequestedServiceQuotaChangeHistoryByQuota",
    "aws_DescribeSavingsPlans",
    "aws_DescribeSavingsPlanRates",
    "aws_GetSavingsPlansUtilizationDetails",
    "aws_GetCostAndUsage",
)


def call_of(request: Request) -> str:
    """Return the name of a call, which is that of the file with its answer."""
    target = request.headers.get("X-Amz-Target")
    if target is not None:
        return f"aws_{target.rpartition('.')[2]}"
    action = re.match(rb"Action=(\w+)", request.body)
    if action is not None:
        return f"aws_{action[1].decode()}"
    path = request.path.partition("?")[0]
    [call] = [call for call, form in PATHS.items() if re.search(form, path)]
    return call


@cache
def record_of(call: str) -> Document:
    """Return the file of a call.

    from      whose shape it is
    answer    the document; it is in the file that `from` names where there is none
    next      what a page has besides, that is followed by another
    tomorrow  what it may have besides, and that changes nothing: rows, words, fields
    may_lack  fields that a good answer may lack, and why
    maps      fields whose members are not fields
    texts     lists whose rows are JSON in a text
    """
    record: Document = json.loads((DATA / f"{call}.json").read_text())
    if "answer" not in record:
        record["answer"] = _stored(call, record["from"])
    return record


def _stored(call: str, path: str) -> Document:
    """Return an answer from a file of another test."""
    stored = json.loads((Path(__file__).parents[3] / path).read_text())
    answers = {
        "gcp_machine_types": lambda: {
            "items": {
                "zones/us-central1-a": {
                    "machineTypes": [
                        row
                        for row in stored["machineTypes"]
                        if row["name"] in GCP_TYPES
                    ]
                },
                "zones/us-central1-b": {
                    "warning": {"code": "NO_RESULTS_ON_PAGE"}
                },
            }
        },
        "gcp_skus": lambda: {"skus": stored["sold"]},
        "azure_retail": lambda: {
            "Items": [*stored["rows"]["on demand"], *stored["rows"]["spot"]]
        },
        "azure_groups": lambda: {"value": stored["groups"][:1]},
        "azure_reservations": lambda: {
            "value": [{"name": stored["reservations"]["zonal"][0]["name"]}]
        },
        "azure_reservation": lambda: stored["reservations"]["zonal"][0],
        "azure_spot_scores": lambda: stored["answer"],
    }
    answer: Document = answers[call]()
    return answer


def document_of(call: str) -> Document:
    """Return a copy of the good answer to a call."""
    document: Document = deepcopy(record_of(call)["answer"])
    return document


def text_of(call: str, document: Document) -> str:
    """Write a document as the service of a call does."""
    if call.startswith("aws_") and call not in JSON_CALLS:
        item = QUERY_ITEM if call in QUERY_CALLS else EC2_ITEM
        name = call.removeprefix("aws_")
        return f"<{name}Response>{_xml(document, item)}</{name}Response>"
    for name in record_of(call).get("texts", ()):
        if name in document:
            rows = [json.dumps(row) for row in document[name]]
            document = {**document, name: rows}
    return json.dumps(document)


def _xml(value: Any, item: str) -> str:
    if isinstance(value, dict):
        return "".join(
            f"<{name}>{_xml(member, item)}</{name}>"
            for name, member in value.items()
        )
    if isinstance(value, list):
        return "".join(f"<{item}>{_xml(row, item)}</{item}>" for row in value)
    return escape(str(value))


def merged(document: Any, more: Any) -> Any:
    """Return a document with more: lists go on, members are added, and others are replaced."""
    if isinstance(document, dict) and isinstance(more, dict):
        return document | {
            name: merged(document[name], value) if name in document else value
            for name, value in more.items()
        }
    if isinstance(document, list) and isinstance(more, list):
        return document + more
    return more


def emptied(document: Document) -> Document:
    """Return a page without its part of the list."""
    return {
        name: type(value)()
        if isinstance(value, list) or name == "items"
        else emptied(value)
        if isinstance(value, dict)
        else value
        for name, value in document.items()
    }


def field_names(call: str) -> list[str]:
    """Return the names of all fields of the answer to a call, at any depth."""
    names: set[str] = set()

    def note(fields: Document) -> Document:
        names.update(fields)
        return fields

    changed(call, document_of(call), note)
    return sorted(names)


def changed(
    call: str, value: Any, change: Callable[[Document], Document]
) -> Any:
    """Return a document in which a change was made to all fields, the inner ones first."""
    if isinstance(value, list):
        return [changed(call, row, change) for row in value]
    if not isinstance(value, dict):
        return value
    maps = record_of(call).get("maps", ())
    inner = {
        name: {
            key: changed(call, member, change) for key, member in held.items()
        }
        if name in maps and isinstance(held, dict)
        else changed(call, held, change)
        for name, held in value.items()
    }
    return change(inner)
