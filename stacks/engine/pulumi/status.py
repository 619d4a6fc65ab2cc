"""A stack as the checkpoint and the configuration of Pulumi have it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from msgspec.json import decode as json_decode

from planner.plan.status import ResourceRef, StackFacts, StackStatus
from stacks.engine.keep import held_gib
from stacks.engine.pulumi.checkpoint import pending_operations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from planner.plan.status import Coming, Operation
    from planner.plan.types import Properties
    from stacks.engine.pulumi.stack import PulumiStack
    from stacks.engine.state import ResourceRecord

PLAN_OUTPUT: Final = "tonnage:plan"
STARTED_OUTPUT: Final = "tonnage:started"
FACTS_OUTPUT: Final = "tonnage:facts"
ACCOUNT_KEY: Final = "tonnage:account"
OPERATION_KEY: Final = "tonnage:operation"
RESERVED_OUTPUTS: Final = (PLAN_OUTPUT, STARTED_OUTPUT, FACTS_OUTPUT)


def status_of(
    pulumi_stack: PulumiStack,
    retained: Iterable[ResourceRecord] = (),
    coming: Coming | None = None,
) -> StackStatus:
    """Return a stack as its checkpoint and its configuration have it.

    What is `retained`, and what is `coming`, stands beside the checkpoint.
    """
    deployment = pulumi_stack.deployment
    start_config = pulumi_stack.config
    state_records = [
        state_record
        for state_record in deployment.get("resources", [])
        if state_record.get("custom")
        and "id" in state_record
        and not state_record["type"].startswith("pulumi:")
    ]
    stack_outputs = pulumi_stack.outputs
    state_json = json.dumps(
        [
            [
                state_record["urn"],
                state_record["id"],
                state_record.get("inputs"),
            ]
            for state_record in state_records
        ],
        sort_keys=True,
    )
    operation = _operation(stack_outputs, start_config, deployment)
    return StackStatus(
        stack=pulumi_stack.name,
        started=str(
            stack_outputs.get(STARTED_OUTPUT)
            or start_config.get(STARTED_OUTPUT, "")
        ),
        account=start_config.get(ACCOUNT_KEY, ""),
        plan=str(
            start_config.get(PLAN_OUTPUT) or stack_outputs.get(PLAN_OUTPUT, "")
        ),
        state_sha256=hashlib.sha256(state_json.encode()).hexdigest(),
        complete=operation == "applied",
        operation=operation,
        resources=_sorted(
            ResourceRef(
                type=state_record["type"],
                name=name_of(state_record),
                size_gib=held_gib(
                    state_record["type"], state_record.get("inputs") or {}
                ),
            )
            for state_record in state_records
        ),
        retained=_sorted(
            ResourceRef(
                type=record.type,
                name=record.id,
                size_gib=held_gib(record.type, record.inputs),
            )
            for record in retained
        ),
        pending=tuple(
            sorted(
                name_of(operation["resource"])
                for operation in pending_operations(deployment)
            )
        ),
        outputs=user_outputs(stack_outputs),
        facts=json_decode(
            stack_outputs.get(FACTS_OUTPUT, "null"), type=StackFacts | None
        ),
        coming=coming,
    )


def _sorted(resources: Iterable[ResourceRef]) -> tuple[ResourceRef, ...]:
    return tuple(
        sorted(resources, key=lambda resource: (resource.type, resource.name))
    )


def name_of(state_record: Properties) -> str:
    """Return the name of a resource of the checkpoint."""
    return str(state_record["urn"]).rsplit("::", 1)[-1]


def _operation(
    stack_outputs: Properties,
    start_config: Mapping[str, str],
    deployment: Properties,
) -> Operation:
    """Return what is done with a stack; it stands when it exported what the run began with."""
    if start_config.get(OPERATION_KEY) == "destroying":
        return "destroying"
    if start_config.get(OPERATION_KEY) == "destroyed":
        return "destroyed"
    same_plan = stack_outputs.get(PLAN_OUTPUT) == start_config.get(
        PLAN_OUTPUT, stack_outputs.get(PLAN_OUTPUT)
    )
    is_applied = (
        PLAN_OUTPUT in stack_outputs
        and same_plan
        and not pending_operations(deployment)
    )
    return "applied" if is_applied else "applying"


def user_outputs(stack_outputs: Properties) -> Properties:
    """Return the outputs without those that tonnage keeps for itself."""
    return {
        output_name: output_value
        for output_name, output_value in stack_outputs.items()
        if output_name not in RESERVED_OUTPUTS
    }


def start_time(pulumi_stack: PulumiStack, now: datetime) -> str:
    """When a stack was first applied, as it wrote down; the present time for a new one."""
    return str(
        pulumi_stack.outputs.get(STARTED_OUTPUT)
        or pulumi_stack.config.get(STARTED_OUTPUT)
        or now.isoformat()
    )
