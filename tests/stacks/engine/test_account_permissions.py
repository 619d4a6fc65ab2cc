"""Rights that are asked for, and given, are published ones: others let a cloud refuse a role.

Those of AWS are in the tables of its linter. Those of Google Cloud are in its predefined roles, as
files of one role each in the folder that TONNAGE_GOOGLE_ROLES names; skipped, visibly, without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from stacks.engine.account import all_rights
from tests.conftest import ROOT, present

ROLES = os.environ.get("TONNAGE_GOOGLE_ROLES", "")
CUSTOM_ROLE = "gcp:projects/iAMCustomRole:IAMCustomRole"


def test_rights_on_aws_are_published() -> None:
    # Its import leaves a file open.
    origin = present(present(find_spec("parliament")).origin)
    text = Path(origin).with_name("iam_definition.json").read_text()
    published = {
        f"{service['prefix']}:{action['privilege']}".lower()
        for service in json.loads(text)
        for action in service["privileges"]
    }
    assert len(published) > 10_000
    assert {r for r in all_rights("aws:") if r.lower() not in published} == (
        set()
    )


@cache
def google_roles() -> dict[str, set[str]]:
    """The rights of each predefined role."""
    roles = [json.loads(path.read_text()) for path in Path(ROLES).iterdir()]
    return {
        role["name"]: set(role.get("includedPermissions", ())) for role in roles
    }


def inputs_of(cloud: str) -> Iterator[tuple[str, dict]]:
    """Type and inputs of all resources of the stored graphs of a cloud."""
    for path in sorted((ROOT / "tests" / "cases" / cloud).glob("*/graph.json")):
        for name, resource in json.loads(path.read_text())["resources"].items():
            yield name.partition(" ")[0], resource["inputs"]


@pytest.mark.skipif(not ROLES, reason="no predefined roles of Google Cloud")
def test_rights_and_roles_on_google_cloud_are_published() -> None:
    published = set().union(*google_roles().values())
    assert len(published) > 10_000
    given = {
        right
        for type_, inputs in inputs_of("gcp")
        if type_ == CUSTOM_ROLE
        for right in inputs["permissions"]
    }
    assert len(given) > 10
    assert {*given, *all_rights("gcp:")} - published == set()
    roles = {
        inputs["role"]
        for type_, inputs in inputs_of("gcp")
        if str(inputs.get("role")).startswith("roles/")
        if type_ != CUSTOM_ROLE
    }
    assert roles
    assert roles - google_roles().keys() == set()
