"""Ids of pending creations: they follow from inputs, or nothing is proposed."""

from __future__ import annotations

import json

import pytest

from planner.facts import table
from stacks.engine.pulumi.finder import TEMPLATE_FIELD, CloudFinder
from tests.oracles import schema

ROWS = list(
    table.read_rows(
        table.data_text("stacks", "import_ids.csv"),
        "import_ids.csv",
        dict.fromkeys(
            ("type", "template", "lookup", "again", "note", "source", "as_of"),
            str,
        ),
    )
)
VARIABLES = {
    "project": "my-project",
    "region": "us-east4",
    "subscription": "00000000-0000-0000-0000-00000000000a",
    "account": "",
}


def finder(cloud: str) -> CloudFinder:
    return CloudFinder(cloud, VARIABLES)


@pytest.mark.parametrize(
    ("cloud", "resource_type", "inputs", "wanted"),
    [
        (
            "gcp",
            "gcp:compute/network:Network",
            {"name": "chat-net"},
            "projects/my-project/global/networks/chat-net",
        ),
        (
            "azure",
            "azure-native:compute:Disk",
            {"resourceGroupName": "chat", "diskName": "home-0"},
            f"/subscriptions/{VARIABLES['subscription']}/resourceGroups/chat"
            "/providers/Microsoft.Compute/disks/home-0",
        ),
        ("aws", "aws:iam/role:Role", {"name": "chat-node"}, "chat-node"),
        # Without the account, the id cannot be said.
        ("aws", "aws:budgets/budget:Budget", {"name": "chat"}, None),
        ("gcp", "gcp:compute/network:Network", {}, None),
        # It is made again without harm.
        (
            "aws",
            "aws:iam/rolePolicy:RolePolicy",
            {"role": "chat-node", "name": "logs"},
            None,
        ),
        ("aws", "aws:mars/rover:Rover", {"name": "x"}, None),
    ],
)
def test_ids_follow_from_inputs(
    cloud: str, resource_type: str, inputs: dict[str, str], wanted: str | None
) -> None:
    resource = {"type": resource_type, "inputs": inputs}
    assert finder(cloud).find(resource, set()) == wanted


def test_every_type_has_one_row_that_its_schema_knows() -> None:
    known = {
        name
        for cloud in ("aws", "gcp", "azure")
        for name in json.loads(
            table.data_text(f"providers.{cloud}", "schema.json")
        )["resources"]
    }
    assert {row["type"] for row in ROWS} == known
    assert len(ROWS) == len(known)
    for row in ROWS:
        names = set(TEMPLATE_FIELD.findall(row["template"])) - VARIABLES.keys()
        assert names <= schema.outputs(row["type"]), row["type"]
        assert row["template"] or row["lookup"], row["type"]
