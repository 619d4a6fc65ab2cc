"""Who is told of trouble: channels of the stack, and an alert on failures.

A budget belongs to a billing account, which a project does not know; docs/machines.md has the
command that makes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.gcp import observe, storage
from stacks.graph import Resource, ref
from stacks.spec.metric import TROUBLE

if TYPE_CHECKING:
    from planner.facts.receiver import Receiver
    from stacks.spec.stack import StackSpec

# Types of channels, and the label that holds the address.
CHANNELS: Final = {
    "mail": ("email", "email_address"),
    "webhook": ("webhook_tokenauth", "url"),
    "topic": ("pubsub", "topic"),
}


def resources(stack: StackSpec) -> list[Resource]:
    """The channels, and the alert on all machines of the stack."""
    channels = [
        _channel(stack, number, receiver)
        for number, receiver in enumerate(stack.receivers)
    ]
    return [*channels, _trouble_alert(stack, channels)]


def _channel(stack: StackSpec, number: int, receiver: Receiver) -> Resource:
    channel_type, address_label = CHANNELS[receiver.kind]
    return Resource(
        type="gcp:monitoring/notificationChannel:NotificationChannel",
        name=f"alarms-{number}",
        inputs={
            "displayName": f"{stack.name}: {receiver.kind} {number}",
            "type": channel_type,
            "labels": {address_label: receiver.mail_address},
            # Otherwise a channel that an alert still names cannot be deleted.
            "forceDelete": True,
            "userLabels": storage.resource_labels(stack),
        },
    )


def _trouble_alert(stack: StackSpec, channels: list[Resource]) -> Resource:
    """An alert on a machine that has failed, or whose work has; one for each machine."""
    trouble_filter = (
        f'metric.type="{observe.metric_prefix(stack)}/{TROUBLE.lower()}" '
        'AND resource.type="gce_instance"'
    )
    condition: dict[str, Any] = {
        "displayName": "a machine or its work has failed",
        "conditionThreshold": {
            "filter": trouble_filter,
            "comparison": "COMPARISON_GT",
            "thresholdValue": 0,
            "duration": "0s",
            "trigger": {"count": 1},
            "aggregations": [
                {
                    "alignmentPeriod": "300s",
                    "perSeriesAligner": "ALIGN_MAX",
                }
            ],
        },
    }
    return Resource(
        type="gcp:monitoring/alertPolicy:AlertPolicy",
        name="trouble-alert",
        inputs={
            "displayName": f"{stack.name}: trouble",
            "combiner": "OR",
            "conditions": [condition],
            "notificationChannels": [
                ref(channel.name, "name") for channel in channels
            ],
            "alertStrategy": {"autoClose": "1800s"},
            "documentation": {
                "content": f"Look at `tonnage logs {stack.name}`.",
                "mimeType": "text/markdown",
            },
            "userLabels": storage.resource_labels(stack),
        },
        # An alert on a metric that nobody has described yet is refused.
        depends_on=(f"{TROUBLE.lower()}-metric",),
    )
