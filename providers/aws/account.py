"""What an account of AWS allows: who is signed in, regions, quotas, zones, rights."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from planner.market.live import QuotaFact
from providers.aws.client import service
from providers.live.question import rules_by_quota

if TYPE_CHECKING:
    from collections.abc import Iterable

    from providers.live.question import QuotaRule

# A call simulates at most so many rights.
RIGHTS_AT_ONCE: Final = 100
# A filter takes at most so many values.
TYPES_AT_ONCE: Final = 200
USAGE_WINDOW: Final = timedelta(minutes=15)
# By a statement that denies; others are only allowed by none.
DENIED: Final = "explicitDeny"
OPEN_REQUESTS: Final = ("PENDING", "CASE_OPENED")


def signed_in(region: str) -> str:
    """Return the principal that is signed in."""
    with service("sts", region) as client:
        return str(client.get_caller_identity()["Arn"])


def closed_services(region: str, services: Iterable[str]) -> dict[str, str]:  # noqa: ARG001
    """Return the region when the account has not opted in to it: services are never off."""
    with service("ec2", "us-east-1") as client:
        [found] = client.describe_regions(
            RegionNames=[region], AllRegions=True
        )["Regions"]
    if found["OptInStatus"] != "not-opted-in":
        return {}
    return {region: f"aws account enable-region --region-name {region}"}


def quotas(
    region: str, machine_types: Iterable[str], purchase: str
) -> list[QuotaFact]:
    """Return the quotas of families and purchases that count machines, each with its use."""
    counted = rules_by_quota("aws", machine_types, purchase)
    return [_quota_fact(region, rule, types) for rule, types in counted.items()]


def _quota_fact(
    region: str, rule: QuotaRule, machine_types: tuple[str, ...]
) -> QuotaFact:
    code = rule.quota
    with service("service-quotas", region) as client:
        try:
            quota = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)[
                "Quota"
            ]
        except client.exceptions.NoSuchResourceException:
            # One that was never changed is not in the list of the account.
            quota = client.get_aws_default_service_quota(
                ServiceCode="ec2", QuotaCode=code
            )["Quota"]
    return QuotaFact(
        machine_types=machine_types,
        purchase=rule.purchase,
        unit=rule.unit,
        id=code,
        name=f"{quota['QuotaName']} in {region}",
        limit=float(quota["Value"]),
        used=_used(region, quota.get("UsageMetric") or {}),
        requested=_requested(region, code),
    )


def request_quota(region: str, quota_id: str, wanted: float) -> str:
    """Ask for a higher limit of a quota, and return what has become of it so far."""
    with service("service-quotas", region) as client:
        request = client.request_service_quota_increase(
            ServiceCode="ec2", QuotaCode=quota_id, DesiredValue=wanted
        )["RequestedQuota"]
    return str(request["Status"])


def _used(region: str, metric: dict[str, Any]) -> float | None:
    """Return how much of a quota is in use; none where nobody counts it."""
    if not metric:
        return None
    now = datetime.now(UTC)
    with service("cloudwatch", region) as client:
        points = client.get_metric_statistics(
            Namespace=metric["MetricNamespace"],
            MetricName=metric["MetricName"],
            Dimensions=[
                {"Name": name, "Value": value}
                for name, value in metric["MetricDimensions"].items()
            ],
            StartTime=now - USAGE_WINDOW,
            EndTime=now,
            Period=300,
            Statistics=["Maximum"],
        )["Datapoints"]
    return max((float(point["Maximum"]) for point in points), default=0.0)


def _requested(region: str, code: str) -> float | None:
    """Return the highest limit that is asked for and not yet decided; none where nobody asks."""
    with service("service-quotas", region) as client:
        pages = client.get_paginator(
            "list_requested_service_quota_change_history_by_quota"
        ).paginate(ServiceCode="ec2", QuotaCode=code)
        return max(
            (
                float(request["DesiredValue"])
                for page in pages
                for request in page["RequestedQuotas"]
                if request["Status"] in OPEN_REQUESTS
            ),
            default=None,
        )


def offered_zones(
    region: str, machine_types: Iterable[str]
) -> dict[str, set[str]]:
    """Return the zones in which machine types are offered."""
    zones: dict[str, set[str]] = {name: set() for name in machine_types}
    names = sorted(zones)
    with service("ec2", region) as client:
        paginator = client.get_paginator("describe_instance_type_offerings")
        for start in range(0, len(names), TYPES_AT_ONCE):
            pages = paginator.paginate(
                LocationType="availability-zone",
                Filters=[
                    {
                        "Name": "instance-type",
                        "Values": names[start : start + TYPES_AT_ONCE],
                    }
                ],
            )
            for page in pages:
                for found in page["InstanceTypeOfferings"]:
                    zones[found["InstanceType"]].add(found["Location"])
    return zones


def named_endpoints(region: str, network: str) -> dict[str, dict[str, str]]:
    """Return the services whose names lead to an endpoint of a network, each with its tags."""
    with service("ec2", region) as client:
        pages = client.get_paginator("describe_vpc_endpoints").paginate(
            Filters=[{"Name": "vpc-id", "Values": [network]}]
        )
        return {
            found["ServiceName"]: {
                tag["Key"]: tag["Value"] for tag in found.get("Tags", ())
            }
            for page in pages
            for found in page["VpcEndpoints"]
            if found.get("PrivateDnsEnabled")
        }


def missing_rights(region: str, rights: list[str]) -> dict[str, bool]:
    """Return the actions that policies do not allow, and whether that is sure.

    Without the resources that are to be made, only what is denied by name is sure: a policy may
    allow an action for some names alone.
    """
    principal = _policy_source(signed_in(region))
    missing: dict[str, bool] = {}
    with service("iam", region) as client:
        for start in range(0, len(rights), RIGHTS_AT_ONCE):
            pages = client.get_paginator("simulate_principal_policy").paginate(
                PolicySourceArn=principal,
                ActionNames=rights[start : start + RIGHTS_AT_ONCE],
            )
            missing |= {
                result["EvalActionName"]: result["EvalDecision"] == DENIED
                for page in pages
                for result in page["EvaluationResults"]
                if result["EvalDecision"] != "allowed"
            }
    return missing


def _policy_source(principal: str) -> str:
    """Return whose policies count: of a session that has taken a role, that role.

    Raises LookupError for the root user, whom no policy binds.
    """
    if principal.endswith(":root"):
        raise LookupError("no policy binds the root user")
    if ":assumed-role/" not in principal:
        return principal
    head, _, session = principal.partition(":assumed-role/")
    account = head.replace(":sts:", ":iam:")
    return f"{account}:role/{session.partition('/')[0]}"
