"""What is known of a standing stack: its bucket, and what its machines wait for in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import Problem, UsageError
from planner.spec.model import BUCKET_WEIGHTS
from planner.suggest import did_you_mean
from stacks.operate.bucket import Bucket
from stacks.spec.upload import (
    MODEL_KINDS,
    UploadRule,
    job_upload,
    model_upload,
)

if TYPE_CHECKING:
    from pathlib import Path

    from planner.plan.status import StackStatus


def bucket_of(status: StackStatus, simulated_folder: Path | None) -> Bucket:
    """Return the bucket of a stack. Raises UsageError for a stack that has none.

    Buckets of simulated clouds are folders of `simulated_folder`.
    """
    name = str(status.outputs.get("bucket", ""))
    if not name or status.facts is None:
        raise UsageError(
            Problem(
                code="bucket",
                message=f"{status.stack} has no bucket yet",
                next_step="complete the stack: tonnage apply",
            )
        )
    return Bucket(
        provider=status.facts.provider,
        name=name,
        region=status.facts.region,
        simulated_folder=simulated_folder / name if simulated_folder else None,
    )


def upload_of(status: StackStatus, service: str = "") -> UploadRule:
    """Return what the machines of a stack wait for. Raises UsageError where that is nothing.

    With the name of a service it is the model of that one, of several on the same machines.
    """
    if service:
        return _service_upload(status, service)
    workload = status.facts.workload if status.facts else None
    if workload is not None and workload.kind == "training":
        return job_upload()
    if (
        workload is not None
        and workload.kind in MODEL_KINDS
        and workload.model is not None
        and workload.weights == BUCKET_WEIGHTS
    ):
        return model_upload(workload.model.name)
    raise UsageError(
        Problem(
            code="upload",
            message=f"the machines of {status.stack} wait for no upload",
            next_step="see what they wait for: tonnage status",
        )
    )


def _service_upload(status: StackStatus, name: str) -> UploadRule:
    services = {
        service.name: service
        for pool in (status.facts.pools if status.facts else ())
        for service in pool.shared_services
    }
    if name not in services:
        raise UsageError(
            Problem(
                code="upload",
                message=f"{status.stack} has no service {name} beside another one",
                next_step=did_you_mean(
                    name, services, otherwise="leave --service out"
                ),
            )
        )
    if services[name].weights != BUCKET_WEIGHTS:
        raise UsageError(
            Problem(
                code="upload",
                message=f"the machines of {status.stack} wait for no upload of {name}",
                next_step="see what they wait for: tonnage status",
            )
        )
    return model_upload(services[name].model)
