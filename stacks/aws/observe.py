"""Where the logs of the machines go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.aws import identity
from stacks.graph import Resource

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec

RETENTION_DAYS: Final = 30


def resources(stack: StackSpec) -> list[Resource]:
    """The log group."""
    return [
        Resource(
            type="aws:cloudwatch/logGroup:LogGroup",
            name="logs",
            inputs={
                "name": identity.log_group_name(stack),
                "retentionInDays": RETENTION_DAYS,
                **identity.key_inputs(stack),
                "tags": stack.tags,
            },
        )
    ]
