"""Which machines install their driver, and that they get an image without one."""

from __future__ import annotations

import base64
import bz2
import json

import pytest
from msgspec.structs import asdict

from planner.facts.rule import rules, rules_of
from stacks.build import build_stack
from stacks.spec.driver import driver_sources, image_reference
from stacks.spec.table import unsupported_reason
from tests.conftest import find, only, spec_of
from tests.stacks.told import inputs_of

WORKSPACE = """
apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 4GiB}
"""
TRAINING = """
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.2-1b}
data: {location: s3://sets/chat, tokens: 1M, storage: object}
train: {method: lora, deadline: 30d}
"""
TEMPLATES = {
    "aws": ("LaunchTemplate", "userData"),
    "gcp": ("InstanceTemplate", "metadata"),
    "azure": ("VirtualMachineScaleSet", "virtualMachineProfile"),
}


def test_parts_of_accelerators_and_no_others_bring_a_driver(catalog) -> None:
    """Those of Azure with an A10 are virtual also where it is a whole one."""
    for offer in catalog.offers:
        instance = offer.instance
        if unsupported_reason(instance) is not None:
            continue
        is_virtual = instance.fraction < 1 or (
            instance.provider == "azure" and instance.accelerator == "a10"
        )
        assert bool(driver_sources(instance)) is is_virtual, instance
        plain = ("ubuntu/server/24.04", "ubuntu-24_04-lts", "ubuntu-2404-lts")
        has_plain = any(word in image_reference(instance) for word in plain)
        assert has_plain is is_virtual


@pytest.mark.parametrize(
    ("cloud", "machine"),
    [
        ("aws", "g6f.xlarge"),
        ("gcp", "g4-standard-6"),
        ("azure", "Standard_NV12ads_A10_v5"),
    ],
)
def test_a_graph_gives_machines_the_image_and_the_places(
    catalog, cloud: str, machine: str
) -> None:
    few = only(catalog, lambda offer: offer.instance.instance_type == machine)
    text = WORKSPACE.replace("4GiB", "2GiB") + f"where: {{clouds: [{cloud}]}}\n"
    solution = find(few, text, keep=0)
    [pool] = solution.pools
    graph = build_stack(spec_of(text), solution, "desk").graph
    kind, _ = TEMPLATES[cloud]
    [template] = inputs_of(graph, kind).values()
    written = json.dumps(template)
    for word in image_reference(pool.instance).split(":"):
        assert word in written
    script = script_of(cloud, template)
    packed = script.partition('"""')[2].partition('"""')[0]
    files = json.loads(bz2.decompress(base64.b85decode(packed)))
    settings = json.loads(files["/etc/tonnage/node.json"])
    assert [source["url"] for source in settings["driver"]["sources"]] == [
        source.url for source in driver_sources(pool.instance)
    ]


def script_of(cloud: str, template) -> str:
    if cloud == "gcp":
        return str(template["metadata"]["startup-script"])
    data = (
        template["userData"]
        if cloud == "aws"
        else template["virtualMachineProfile"]["osProfile"]["customData"]
    )
    return base64.b64decode(data).decode()


def test_trainings_take_none_of_them(catalog) -> None:
    few = only(catalog, lambda offer: bool(driver_sources(offer.instance)))
    assert not find(few, TRAINING, keep=0).pools
    assert find(few, WORKSPACE, keep=0).pools


def test_each_rule_on_trainings_refuses_what_others_may_take(catalog) -> None:
    """And each machine that is refused is refused for one reason."""
    broken: set[str] = set()
    for offer in catalog.offers:
        if unsupported_reason(offer.instance) is None:
            found = [
                rule.id
                for rule in rules_of("training", offer.provider)
                if rule.is_broken(asdict(offer.instance))
            ]
            assert len(found) <= 1
            broken |= set(found)
    known = {rule.id for rule in rules().values() if rule.phase == "training"}
    assert broken == known


def test_local_disks_of_azure_are_those_that_machines_find(catalog) -> None:
    """A temporary disk of SCSI holds a file system of the image, and has another name."""
    scsi = ("_T4_v3", "_A10_v5")
    for offer in catalog.offers:
        if offer.instance.instance_type.endswith(scsi):
            assert offer.instance.nvme_gb == 0
