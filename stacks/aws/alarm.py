"""Who is told of trouble and cost: a topic of the stack, an alarm on failures, and a budget.

Alarms that give machines back are in `watch`; they tell the same topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref
from stacks.spec.metric import NAMESPACE, TROUBLE
from stacks.spec.stack import STACK_TAG

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec

PERIOD_S: Final = 300
PROTOCOLS: Final = {"mail": "email", "webhook": "https"}
# Who may publish to the topic; a policy replaces the one that lets alarms do so.
PUBLISHERS: Final = ("budgets.amazonaws.com", "cloudwatch.amazonaws.com")


def targets(stack: StackSpec) -> list[Any]:
    """The topics that alarms tell: that of the stack, and those that the account has already."""
    own_topic = [ref("alarms", "arn")] if _subscribers(stack) else []
    return own_topic + [
        receiver.address
        for receiver in stack.receivers
        if receiver.kind == "topic"
    ]


def resources(stack: StackSpec) -> list[Resource]:
    """The topic with those who hear it, the alarm of each scaling group, and the budget."""
    return [
        *_topic(stack),
        *(_trouble_alarm(stack, group) for _, group in stack.scaling_groups),
        *_budget(stack),
    ]


def _subscribers(stack: StackSpec) -> list[tuple[str, str]]:
    """The protocol and the address of everybody who hears the topic of the stack."""
    return [
        (PROTOCOLS[receiver.kind], receiver.mail_address)
        for receiver in stack.receivers
        if receiver.kind in PROTOCOLS
    ]


def _topic(stack: StackSpec) -> list[Resource]:
    subscribers = _subscribers(stack)
    if not subscribers:
        return []
    return [
        Resource(
            type="aws:sns/topic:Topic",
            name="alarms",
            inputs={"name": f"{stack.name}-alarms", "tags": stack.tags},
        ),
        Resource(
            type="aws:sns/topicPolicy:TopicPolicy",
            name="alarms-policy",
            inputs={
                "arn": ref("alarms", "arn"),
                "policy": {
                    "Version": "2012-10-17",
                    "Statement": [
                        _publish_statement(name) for name in PUBLISHERS
                    ],
                },
            },
        ),
        *(
            Resource(
                type="aws:sns/topicSubscription:TopicSubscription",
                name=f"alarms-{number}",
                inputs={
                    "topic": ref("alarms", "arn"),
                    "protocol": protocol,
                    "endpoint": address,
                },
            )
            for number, (protocol, address) in enumerate(subscribers)
        ),
    ]


def _publish_statement(service_domain: str) -> Properties:
    """A service of AWS may publish, in the name of the account that has the topic."""
    return {
        "Effect": "Allow",
        "Principal": {"Service": service_domain},
        "Action": "SNS:Publish",
        "Resource": ref("alarms", "arn"),
        "Condition": {
            "StringEquals": {"aws:SourceAccount": ref("alarms", "owner")}
        },
    }


def trouble_name(stack: StackSpec, group: ScalingGroup) -> str:
    """The name of the alarm on trouble, which a refresh of the group heeds."""
    return f"{stack.group_name(group)}-trouble"


def _trouble_alarm(stack: StackSpec, group: ScalingGroup) -> Resource:
    """An alarm on a machine that has failed, or whose work has."""
    return Resource(
        type="aws:cloudwatch/metricAlarm:MetricAlarm",
        name=f"{group.name}-trouble-alarm",
        inputs={
            "name": trouble_name(stack, group),
            "alarmDescription": "a machine or its work has failed: tonnage logs "
            f"{stack.name}",
            "namespace": NAMESPACE,
            "metricName": TROUBLE,
            "dimensions": {"AutoScalingGroupName": stack.group_name(group)},
            "statistic": "Maximum",
            "period": PERIOD_S,
            "evaluationPeriods": 1,
            "threshold": 1,
            "comparisonOperator": "GreaterThanOrEqualToThreshold",
            "treatMissingData": "notBreaching",
            "alarmActions": targets(stack),
            "tags": stack.tags,
        },
    )


def _budget(stack: StackSpec) -> list[Resource]:
    """What the plan says of a month. It counts once the tag is one that costs are shown by."""
    topics = targets(stack)
    if not topics:
        return []
    return [
        Resource(
            type="aws:budgets/budget:Budget",
            name="budget",
            inputs={
                "name": f"{stack.name}-cost-{stack.region}",
                "budgetType": "COST",
                "timeUnit": "MONTHLY",
                "limitAmount": str(stack.planned_usd),
                "limitUnit": "USD",
                "costFilters": [
                    {
                        "name": "TagKeyValue",
                        "values": [f"user:{STACK_TAG}${stack.name}"],
                    }
                ],
                "notifications": [
                    {
                        "comparisonOperator": "GREATER_THAN",
                        "notificationType": "ACTUAL",
                        "threshold": 100,
                        "thresholdType": "PERCENTAGE",
                        # A budget tells one topic.
                        "subscriberSnsTopicArns": topics[:1],
                    }
                ],
            },
            # A topic that does not let it publish is refused.
            depends_on=("alarms-policy",) if _subscribers(stack) else (),
        )
    ]
