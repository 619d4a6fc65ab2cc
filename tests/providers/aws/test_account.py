"""What an account of AWS answers, with the real clients and their own models of the answers."""

from __future__ import annotations

from copy import deepcopy

import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY

from providers.aws import account
from providers.live.question import MachineAsk, quota_rooms
from tests.providers.aws.conftest import Stubbed
from tests.providers.shapes import Document, answer_of

ASK = MachineAsk(
    region="us-east-1",
    instance_type="p5.48xlarge",
    purchase="on_demand",
    nodes=1,
    vcpus=192,
    accelerators=8,
)
CODE = {"ServiceCode": "ec2", "QuotaCode": "L-417A185B"}
QUOTA = answer_of("aws/GetServiceQuota")
METRIC = QUOTA["Quota"]["UsageMetric"]
USE_ASKED = {
    "Namespace": METRIC["MetricNamespace"],
    "MetricName": METRIC["MetricName"],
    "Dimensions": [
        {"Name": name, "Value": value}
        for name, value in METRIC["MetricDimensions"].items()
    ],
    "StartTime": ANY,
    "EndTime": ANY,
    "Period": 300,
    "Statistics": ["Maximum"],
}
REQUESTS = "ListRequestedServiceQuotaChangeHistoryByQuota"
DECISIONS = {"ec2:Action7": "implicitDeny", "ec2:Action100": "explicitDeny"}


@pytest.fixture
def stubbed(stub_services) -> Stubbed:
    answer: Stubbed = stub_services(account)
    return answer


def answer_quota(stubbed: Stubbed, limit: float, used: float) -> None:
    """Let a quota have a limit and a use; more of it was once refused."""
    quota, use = deepcopy(QUOTA), answer_of("aws/GetMetricStatistics")
    quota["Quota"]["Value"] = limit
    use["Datapoints"][0]["Maximum"] = used
    stubbed(
        ("GetServiceQuota", CODE, quota),
        ("GetMetricStatistics", USE_ASKED, use),
        (REQUESTS, CODE, "denied"),
    )


@pytest.mark.parametrize(
    ("limit", "used", "is_enough"),
    [(0, 0, False), (192, 0, True), (192, 96, False), (384, 192, True)],
)
def test_a_quota_counts_what_is_used_and_what_is_asked_for(
    stubbed: Stubbed, limit: float, used: float, is_enough: bool
) -> None:
    answer_quota(stubbed, limit, used)
    [room] = quota_rooms(account, "aws", ASK)
    assert room.is_enough == is_enough
    assert (room.quota.limit, room.quota.used, room.asked) == (limit, used, 192)
    wanted = f"request aws us-east-1 L-417A185B {used + 192:g}"
    assert wanted in room.remedy


def test_a_quota_that_nobody_counts_is_not_taken_for_used(
    stubbed: Stubbed,
) -> None:
    quota = answer_of("aws/GetServiceQuota", "uncounted")
    quota["Quota"]["Value"] = 100.0
    stubbed(("GetServiceQuota", CODE, quota), (REQUESTS, CODE, "empty"))
    [room] = quota_rooms(account, "aws", ASK)
    assert (room.quota.used, room.is_enough) == (None, False)
    assert "uses an unknown number" in room.text


def test_what_nobody_has_used_is_zero(stubbed: Stubbed) -> None:
    """A quota that is counted has a point once there is a use of it."""
    stubbed(
        ("GetServiceQuota", CODE, "ordinary"),
        ("GetMetricStatistics", USE_ASKED, "empty"),
        (REQUESTS, CODE, "empty"),
    )
    [room] = quota_rooms(account, "aws", ASK)
    assert (room.quota.used, room.quota.requested) == (0, None)


def test_what_is_asked_for_already_is_told(stubbed: Stubbed) -> None:
    requests = answer_of(f"aws/{REQUESTS}")
    requests["RequestedQuotas"] += answer_of(f"aws/{REQUESTS}", "denied")[
        "RequestedQuotas"
    ]
    stubbed(
        ("GetServiceQuota", CODE, "ordinary"),
        ("GetMetricStatistics", USE_ASKED, "ordinary"),
        (REQUESTS, CODE, requests),
    )
    [room] = quota_rooms(account, "aws", ASK)
    assert "384 are asked for already" in room.remedy


def test_a_quota_that_was_never_changed_has_its_default(
    stubbed: Stubbed,
) -> None:
    stubbed(
        ("GetServiceQuota", CODE, "none"),
        ("GetAWSDefaultServiceQuota", CODE, "ordinary"),
        (REQUESTS, CODE, "empty"),
    )
    assert quota_rooms(account, "aws", ASK)[0].quota.limit == 0


def test_a_quota_that_there_is_not_is_an_error(stubbed: Stubbed) -> None:
    stubbed(
        ("GetServiceQuota", CODE, "none"),
        ("GetAWSDefaultServiceQuota", CODE, "none"),
    )
    with pytest.raises(ClientError, match="NoSuchResource"):
        quota_rooms(account, "aws", ASK)


def test_zones_are_those_that_offer_a_type(stubbed: Stubbed) -> None:
    types = ["p5.48xlarge", "p9.big"]
    asked = {
        "LocationType": "availability-zone",
        "Filters": [{"Name": "instance-type", "Values": types}],
    }
    stubbed(("DescribeInstanceTypeOfferings", asked, "ordinary"))
    assert account.offered_zones("us-east-1", types) == {
        "p5.48xlarge": {"us-east-1b", "us-east-1f"},
        "p9.big": set(),
    }


@pytest.mark.parametrize(
    ("case", "closed"), [("none", 0), ("opted_in", 0), ("ordinary", 1)]
)
def test_a_region_may_be_off(stubbed: Stubbed, case: str, closed: int) -> None:
    asked = {"RegionNames": ["eu-south-2"], "AllRegions": True}
    stubbed(("DescribeRegions", asked, case))
    assert len(account.closed_services("eu-south-2", ())) == closed


@pytest.mark.parametrize(
    ("case", "source"),
    [
        ("user", "arn:aws:iam::123456789012:user/ada"),
        ("ordinary", "arn:aws:iam::123456789012:role/Admin"),
    ],
)
def test_rights_are_those_of_the_role_that_was_taken(
    stubbed: Stubbed, case: str, source: str
) -> None:
    """More than a call takes are asked for in several."""
    rights = [f"ec2:Action{number}" for number in range(101)]
    stubbed(("GetCallerIdentity", {}, case))
    for some in (rights[:100], rights[100:]):
        stubbed(
            (
                "SimulatePrincipalPolicy",
                {"PolicySourceArn": source, "ActionNames": some},
                decisions(some),
            )
        )
    # A policy may allow an action for names that are not asked for here.
    assert account.missing_rights("us-east-1", rights) == {
        "ec2:Action7": False,
        "ec2:Action100": True,
    }


def decisions(rights: list[str]) -> Document:
    """What is decided about rights: those that nobody mentions are allowed."""
    document = answer_of("aws/SimulatePrincipalPolicy")
    allowed = document["EvaluationResults"][0]
    document["EvaluationResults"] = [
        {
            **allowed,
            "EvalActionName": right,
            "EvalDecision": DECISIONS.get(right, allowed["EvalDecision"]),
        }
        for right in rights
    ]
    return document


def test_who_may_do_everything_lacks_nothing(stubbed: Stubbed) -> None:
    stubbed(
        ("GetCallerIdentity", {}, "user"),
        ("SimulatePrincipalPolicy", None, "none"),
    )
    assert account.missing_rights("us-east-1", ["ec2:RunInstances"]) == {}


def test_the_root_user_has_no_policies(stubbed: Stubbed) -> None:
    stubbed(("GetCallerIdentity", {}, "none"))
    with pytest.raises(LookupError, match="root"):
        account.missing_rights("us-east-1", ["ec2:RunInstances"])


def test_endpoints_with_the_names_of_services_have_their_stacks(
    stubbed: Stubbed,
) -> None:
    document = answer_of("aws/DescribeVpcEndpoints")
    [logs] = document["VpcEndpoints"]
    foreign = {
        **logs,
        "ServiceName": "com.amazonaws.us-east-1.ssm",
        "Tags": [{"Key": "owner", "Value": "b"}],
    }
    gateway = answer_of("aws/DescribeVpcEndpoints", "gateway")["VpcEndpoints"]
    document["VpcEndpoints"] += [foreign, *gateway]
    asked = {"Filters": [{"Name": "vpc-id", "Values": ["vpc-1"]}]}
    stubbed(("DescribeVpcEndpoints", asked, document))
    assert account.named_endpoints("us-east-1", "vpc-1") == {
        "com.amazonaws.us-east-1.logs": {"tonnage-stack": "chat"},
        "com.amazonaws.us-east-1.ssm": {"owner": "b"},
    }


def test_more_of_a_quota_is_asked_for(stubbed: Stubbed) -> None:
    asked = {**CODE, "DesiredValue": 192.0}
    stubbed(("RequestServiceQuotaIncrease", asked, "ordinary"))
    assert account.request_quota("us-east-1", "L-417A185B", 192.0) == "PENDING"


def test_what_is_asked_for_already_is_not_asked_again(stubbed: Stubbed) -> None:
    stubbed(("RequestServiceQuotaIncrease", None, "none"))
    with pytest.raises(ClientError, match="ResourceAlreadyExists"):
        account.request_quota("us-east-1", "L-417A185B", 192.0)
