"""What an account of AWS answers, with the real clients and their own models of the answers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.stub import ANY

from providers.aws import account
from providers.live.question import MachineAsk, quota_rooms
from tests.providers.aws.conftest import Answers, Stubbed

ASK = MachineAsk(
    region="us-east-1",
    instance_type="p5.48xlarge",
    purchase="on_demand",
    nodes=1,
    vcpus=192,
    accelerators=8,
)
METRIC = {
    "MetricNamespace": "AWS/Usage",
    "MetricName": "ResourceCount",
    "MetricDimensions": {"Class": "P/OnDemand", "Resource": "vCPU"},
    "MetricStatisticRecommendation": "Maximum",
}
DECISIONS = {"ec2:Action7": "implicitDeny", "ec2:Action100": "explicitDeny"}


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(account)
    return answer


def quota_answers(
    value: float, used: float | None, open_value: float
) -> Answers:
    code = {"ServiceCode": "ec2", "QuotaCode": "L-417A185B"}
    requests = [
        {"DesiredValue": 96.0, "Status": "DENIED"},
        *(
            [{"DesiredValue": open_value, "Status": "PENDING"}]
            * bool(open_value)
        ),
    ]
    return {
        "service-quotas": [
            (
                "get_service_quota",
                code,
                {
                    "Quota": {
                        "QuotaName": "Running On-Demand P instances",
                        "Value": value,
                        **({"UsageMetric": METRIC} if used is not None else {}),
                    }
                },
            ),
            (
                "list_requested_service_quota_change_history_by_quota",
                code,
                {"RequestedQuotas": requests},
            ),
        ],
        "cloudwatch": []
        if used is None
        else [
            (
                "get_metric_statistics",
                {
                    "Namespace": "AWS/Usage",
                    "MetricName": "ResourceCount",
                    "Dimensions": [
                        {"Name": "Class", "Value": "P/OnDemand"},
                        {"Name": "Resource", "Value": "vCPU"},
                    ],
                    "StartTime": ANY,
                    "EndTime": ANY,
                    "Period": 300,
                    "Statistics": ["Maximum"],
                },
                {
                    "Datapoints": [
                        {"Timestamp": datetime.now(UTC), "Maximum": used}
                    ]
                },
            )
        ],
    }


@pytest.mark.parametrize(
    ("value", "used", "is_enough"),
    [(0, 0, False), (192, 0, True), (192, 96, False), (384, 192, True)],
)
def test_a_quota_counts_what_is_used_and_what_is_asked_for(
    stubbed, value: float, used: float, is_enough: bool
) -> None:
    stubbed(quota_answers(value, used, 0))
    [room] = quota_rooms(account, "aws", ASK)
    assert room.is_enough == is_enough
    assert (room.quota.limit, room.quota.used, room.asked) == (value, used, 192)
    wanted = f"request aws us-east-1 L-417A185B {used + 192:g}"
    assert wanted in room.remedy


def test_a_quota_that_nobody_counts_is_not_taken_for_used(stubbed) -> None:
    stubbed(quota_answers(100, None, 0))
    [room] = quota_rooms(account, "aws", ASK)
    assert (room.quota.used, room.is_enough) == (None, False)
    assert "uses an unknown number" in room.text


def test_what_is_asked_for_already_is_told(stubbed) -> None:
    stubbed(quota_answers(0, 0, 384))
    [room] = quota_rooms(account, "aws", ASK)
    assert "384 are asked for already" in room.remedy


def test_a_quota_that_was_never_changed_has_its_default(stubbed) -> None:
    code = {"ServiceCode": "ec2", "QuotaCode": "L-417A185B"}
    quota = {"QuotaName": "Running On-Demand P instances", "Value": 0.0}
    stubbed(
        {
            "service-quotas": [
                (
                    "get_service_quota",
                    code,
                    {"error": "NoSuchResourceException"},
                ),
                ("get_aws_default_service_quota", code, {"Quota": quota}),
                (
                    "list_requested_service_quota_change_history_by_quota",
                    code,
                    {"RequestedQuotas": []},
                ),
            ]
        }
    )
    assert quota_rooms(account, "aws", ASK)[0].quota.limit == 0


def test_zones_are_those_that_offer_a_type(stubbed) -> None:
    offered = [
        {
            "InstanceType": "p5.48xlarge",
            "LocationType": "availability-zone",
            "Location": f"us-east-1{letter}",
        }
        for letter in "bf"
    ]
    stubbed(
        {
            "ec2": [
                (
                    "describe_instance_type_offerings",
                    {
                        "LocationType": "availability-zone",
                        "Filters": [
                            {
                                "Name": "instance-type",
                                "Values": ["p5.48xlarge", "p9.big"],
                            }
                        ],
                    },
                    {"InstanceTypeOfferings": offered},
                )
            ]
        }
    )
    assert account.offered_zones("us-east-1", ["p5.48xlarge", "p9.big"]) == {
        "p5.48xlarge": {"us-east-1b", "us-east-1f"},
        "p9.big": set(),
    }


@pytest.mark.parametrize(
    ("status", "closed"),
    [("opt-in-not-required", 0), ("opted-in", 0), ("not-opted-in", 1)],
)
def test_a_region_may_be_off(stubbed, status: str, closed: int) -> None:
    stubbed(
        {
            "ec2": [
                (
                    "describe_regions",
                    {"RegionNames": ["eu-south-2"], "AllRegions": True},
                    {"Regions": [{"OptInStatus": status}]},
                )
            ]
        }
    )
    assert len(account.closed_services("eu-south-2", ())) == closed


@pytest.mark.parametrize(
    ("principal", "source"),
    [
        (
            "arn:aws:iam::123456789012:user/ada",
            "arn:aws:iam::123456789012:user/ada",
        ),
        (
            "arn:aws:sts::123456789012:assumed-role/Admin/session",
            "arn:aws:iam::123456789012:role/Admin",
        ),
    ],
)
def test_rights_are_those_of_the_role_that_was_taken(
    stubbed, principal: str, source: str
) -> None:
    """More than a call takes are asked for in several."""
    rights = [f"ec2:Action{number}" for number in range(101)]
    calls = [
        (
            "simulate_principal_policy",
            {"PolicySourceArn": source, "ActionNames": some},
            {
                "EvaluationResults": [
                    {
                        "EvalActionName": right,
                        "EvalDecision": DECISIONS.get(right, "allowed"),
                    }
                    for right in some
                ],
                "IsTruncated": False,
            },
        )
        for some in (rights[:100], rights[100:])
    ]
    identity = {"UserId": "U", "Account": "1", "Arn": principal}
    stubbed({"sts": [("get_caller_identity", {}, identity)], "iam": calls})
    # A policy may allow an action for names that are not asked for here.
    assert account.missing_rights("us-east-1", rights) == {
        "ec2:Action7": False,
        "ec2:Action100": True,
    }


def test_the_root_user_has_no_policies(stubbed) -> None:
    identity = {
        "UserId": "U",
        "Account": "1",
        "Arn": "arn:aws:iam::123456789012:root",
    }
    stubbed({"sts": [("get_caller_identity", {}, identity)]})
    with pytest.raises(LookupError, match="root"):
        account.missing_rights("us-east-1", ["ec2:RunInstances"])


def test_endpoints_with_the_names_of_services_have_their_stacks(
    stubbed,
) -> None:
    def endpoint(name: str, has_name: bool, tags: dict[str, str]) -> dict:
        return {
            "ServiceName": name,
            "PrivateDnsEnabled": has_name,
            "Tags": [{"Key": key, "Value": tags[key]} for key in tags],
        }

    found = [
        endpoint("com.amazonaws.us-east-1.logs", True, {"tonnage-stack": "a"}),
        endpoint("com.amazonaws.us-east-1.ssm", True, {"owner": "b"}),
        endpoint("com.amazonaws.us-east-1.s3", False, {}),
    ]
    stubbed(
        {
            "ec2": [
                (
                    "describe_vpc_endpoints",
                    {"Filters": [{"Name": "vpc-id", "Values": ["vpc-1"]}]},
                    {"VpcEndpoints": found},
                )
            ]
        }
    )
    assert account.named_endpoints("us-east-1", "vpc-1") == {
        "com.amazonaws.us-east-1.logs": {"tonnage-stack": "a"},
        "com.amazonaws.us-east-1.ssm": {"owner": "b"},
    }


def test_more_of_a_quota_is_asked_for(stubbed: Stubbed) -> None:
    stubbed(
        {
            "service-quotas": [
                (
                    "request_service_quota_increase",
                    {
                        "ServiceCode": "ec2",
                        "QuotaCode": "L-417A185B",
                        "DesiredValue": 192.0,
                    },
                    {"RequestedQuota": {"Id": "r", "Status": "PENDING"}},
                )
            ]
        }
    )
    assert account.request_quota("us-east-1", "L-417A185B", 192.0) == "PENDING"
