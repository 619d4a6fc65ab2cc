"""Judges AWS graphs by Terraform's own provider, of which the one of Pulumi is made.

A graph is written as Terraform's JSON by the schema of the provider, and judged by `validate` and
`plan`, which ask no account. Names are those of the provider's documentation: Pulumi writes
them in another case, and blocks of lists in the plural.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from stacks.graph import Graph

# A folder with the provider, as `terraform providers mirror` fills one.
PLUGINS: Final = os.environ.get("TONNAGE_TERRAFORM_PLUGINS", "")
PROVIDER: Final = "registry.terraform.io/hashicorp/aws"
# Types whose names are no others in another case.
RESOURCES: Final = {
    "ec2/capacityReservation": "ec2_capacity_reservation",
    "lb/loadBalancer": "lb",
    "s3/bucketObjectv2": "s3_object",
}
# Properties that the two write in two ways.
PROPERTIES: Final = {
    ("aws_cloudwatch_metric_alarm", "name"): "alarm_name",
    ("aws_sns_topic_subscription", "topic"): "topic_arn",
}
# Properties that an older provider does not have yet.
NEWER: Final = frozenset({("aws_scheduler_schedule", "actionAfterCompletion")})
# What is filled in when a plan is applied.
FILLED: Final = {
    "deadline.at": "2027-01-01T00:00:00",
    "deadline.rfc3339": "2027-01-01T00:00:00Z",
    "deadline.far": "2037-01-01T00:00:00Z",
    "started.month": "2026-11-01_00:00",
}
SETTINGS: Final = {
    "terraform": {"required_providers": {"aws": {"source": "hashicorp/aws"}}},
    "provider": {
        "aws": {
            "region": "us-east-1",
            "access_key": "AKIDEXAMPLE",
            "secret_key": "nobody",
            "skip_credentials_validation": True,
            "skip_requesting_account_id": True,
            "skip_metadata_api_check": True,
            "skip_region_validation": True,
        }
    },
}


def is_here() -> bool:
    """Whether Terraform is on this machine, and the provider in a folder that is named."""
    return bool(PLUGINS) and shutil.which("terraform") is not None


def snake(name: str) -> str:
    """Return a name of Pulumi as Terraform writes it."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def resource_of(token: str) -> str:
    """Return the resource of Terraform for a type of Pulumi: aws:ec2/vpc:Vpc is aws_vpc."""
    stem = token.split(":")[1]
    service, _, name = stem.partition("/")
    # What is of EC2 has no prefix.
    prefix = "" if service == "ec2" else f"{service}_"
    return f"aws_{RESOURCES.get(stem) or prefix + snake(name)}"


class Workspace:
    """A folder in which Terraform judges graphs; the provider is loaded once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._write({})
        self._run("init", f"-plugin-dir={PLUGINS}", "-input=false")

    @cache  # noqa: B019 - one workspace in a session
    def schemas(self) -> dict[str, Any]:
        """Return the schemas of the provider's resources."""
        text = self._run("providers", "schema", "-json")
        found = json.loads(text)["provider_schemas"][PROVIDER]
        schemas: dict[str, Any] = found["resource_schemas"]
        return schemas

    def judge(self, graphs: Mapping[str, Graph]) -> str:
        """Return what Terraform says against graphs, each under a name; empty when nothing.

        They are judged together: the provider takes seconds to start.
        """
        written: dict[str, dict[str, Any]] = {}
        for label, graph in graphs.items():
            for kind, bodies in self._resources(label, graph).items():
                written.setdefault(kind, {}).update(bodies)
        self._write({"resource": written})
        found = json.loads(self._run("validate", "-json", may_fail=True))
        if not found["valid"]:
            return "\n".join(
                f"{item.get('address', '')}: {item['summary']}: {item['detail']}"
                for item in found["diagnostics"]
            )
        planned = self._run(
            "plan",
            "-input=false",
            "-refresh=false",
            "-lock=false",
            may_fail=True,
        )
        return "" if "Plan: " in planned else planned

    def _resources(self, label: str, graph: Graph) -> dict[str, dict[str, Any]]:
        addresses = {
            resource.name: f"{resource_of(resource.type)}.{label}-{resource.name}"
            for resource in graph.resources
        }
        written: dict[str, dict[str, Any]] = {}
        for resource in graph.resources:
            kind = resource_of(resource.type)
            block = self.schemas()[kind]["block"]
            body = self._block(kind, block, resource.inputs, addresses)
            # Pulumi makes names up; Terraform wants some.
            if block["attributes"].get("name", {}).get("required"):
                body.setdefault("name", resource.name)
            depends_on = [addresses[name] for name in resource.depends_on]
            if depends_on:
                body["depends_on"] = depends_on
            written.setdefault(kind, {})[f"{label}-{resource.name}"] = body
        return written

    def _block(
        self, kind: str, block: Any, inputs: Any, addresses: dict[str, str]
    ) -> dict[str, Any]:
        attributes = block.get("attributes", {})
        nested = block.get("block_types", {})
        body: dict[str, Any] = {}
        for name, value in inputs.items():
            if (kind, name) in NEWER:
                continue
            key = PROPERTIES.get((kind, name)) or self._key(
                snake(name), attributes, nested
            )
            if key in nested:
                inner = nested[key]["block"]
                values = value if isinstance(value, list) else [value]
                body[key] = [
                    self._block(kind, inner, one, addresses) for one in values
                ]
            elif attributes.get(key, {}).get("type") == "string" and (
                isinstance(value, dict) and "$ref" not in value
            ):
                # A document with references in it.
                body[key] = json.dumps(_value(value, addresses))
            else:
                body[key] = _value(value, addresses)
        return body

    def _key(self, name: str, attributes: Any, nested: Any) -> str:
        for form in (name, name.removesuffix("s"), f"{name[:-3]}y", f"{name}s"):
            if form in attributes or form in nested:
                return form
        return name

    def _write(self, content: dict[str, Any]) -> None:
        path = self.folder / "main.tf.json"
        path.write_text(json.dumps({**SETTINGS, **content}))

    def _run(self, *words: str, may_fail: bool = False) -> str:
        done = subprocess.run(
            ["terraform", *words, *([] if "-json" in words else ["-no-color"])],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "TF_CLI_CONFIG_FILE": os.devnull,
                "TF_IN_AUTOMATION": "1",
            },
        )
        if done.returncode and not may_fail:
            raise RuntimeError(done.stderr)
        return done.stdout or done.stderr


def _value(value: Any, addresses: dict[str, str]) -> Any:
    """Return a value as Terraform takes it; what is filled in later is a text."""
    if isinstance(value, dict):
        if "$ref" in value:
            return f"${{{addresses[value['$ref']]}.{snake(value['output'])}}}"
        return {key: _value(part, addresses) for key, part in value.items()}
    if isinstance(value, list):
        return [_value(part, addresses) for part in value]
    if isinstance(value, str):
        for name, filled in FILLED.items():
            value = value.replace(f"${{{name}}}", filled)
        # What is left is no template of Terraform.
        return value.replace("${", "$${").replace("%{", "%%{")
    return value
