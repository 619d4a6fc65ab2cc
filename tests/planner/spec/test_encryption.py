"""Data at rest with a key of the customer: all of it, where the key is, and none of it is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.spec.encryption import customer_key
from providers.catalog.load import load_catalog
from providers.simulated import world
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, find, present, spec_of
from tests.planner.spec.test_certificate import graph_of
from tests.stacks.engine.test_simulated import objects, plan_of, quiet
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of

CATALOG = load_catalog(None)
KEYS = {
    "aws": "arn:aws:kms:us-west-2:123456789012:key/0a1b2c3d-0000-4000-8000-00000000000{}",
    "gcp": "projects/my-keys/locations/us-central1/keyRings/chat/cryptoKeys/key{}",
    "azure": "/subscriptions/0a1b2c3d-0000-4000-8000-000000000001/resourceGroups/keys"
    "/providers/Microsoft.Compute/diskEncryptionSets/set{}",
}
REGIONS = {"aws": "us-west-2", "gcp": "us-central1", "azure": "eastus"}
WORKSPACE = """apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 20GiB, count: 1}
"""


def key_lines(cloud: str, number: int = 1) -> str:
    regions = ", regions: [eastus]" if cloud == "azure" else ""
    return (
        f"where: {{clouds: [{cloud}]{regions}}}\n"
        f"encryption: {{key: {KEYS[cloud].format(number)!r}}}\n"
    )


def disks(graph: Any) -> list[dict[str, Any]]:
    """Every disk of a graph, of machines and of people."""
    found = [
        *(inputs_of(graph, "Volume").values()),
        *(inputs_of(graph, "Disk").values()),
    ]
    for template in inputs_of(graph, "LaunchTemplate").values():
        found += [m["ebs"] for m in template["blockDeviceMappings"]]
    for template in inputs_of(graph, "InstanceTemplate").values():
        found += template["disks"]
    for machines in inputs_of(graph, "VirtualMachineScaleSet").values():
        storage = machines["virtualMachineProfile"]["storageProfile"]
        found += [storage["osDisk"], *storage.get("dataDisks", [])]
    return found


def stores(graph: Any) -> list[dict[str, Any]]:
    """What holds objects, files and lines of logs, where a key of the customer may."""
    kinds = (
        "BucketServerSideEncryptionConfiguration",
        "LogGroup",
        "LustreFileSystem",
        "Instance",
    )
    found = [i for kind in kinds for i in inputs_of(graph, kind).values()]
    if graph.provider == "gcp":
        found += inputs_of(graph, "Bucket").values()
    return found


@pytest.mark.parametrize("cloud", clouds())
@pytest.mark.parametrize("kind", ["service", "workspace"])
def test_all_that_lies_somewhere_has_the_key(cloud: str, kind: str) -> None:
    text = WORKSPACE if kind == "workspace" else chat()
    graph = graph_of(CATALOG, text + key_lines(cloud))
    check(graph)
    key = KEYS[cloud].format(1)
    assert disks(graph)
    for place in (*disks(graph), *stores(graph)):
        assert key in str(place), place
    plain = graph_of(CATALOG, f"{text}where: {{clouds: [{cloud}]}}\n")
    assert not any(key in str(place) for place in disks(plain))


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_parallel_file_system_has_the_key(cloud: str) -> None:
    place = {"aws": "s3", "gcp": "gs"}[cloud]
    text = f"""apiVersion: tonnage/v1
kind: Training
name: run
model: {{name: llama-3.1-8b}}
data: {{tokens: 1B, location: "{place}://bucket/tokens", storage: parallel}}
train: {{method: pretrain, deadline: 30d}}
{key_lines(cloud)}"""
    graph = graph_of(CATALOG, text)
    check(graph)
    [files] = [
        *inputs_of(graph, "LustreFileSystem").values(),
        *inputs_of(graph, "Instance").values(),
    ]
    assert KEYS[cloud].format(1) in files.values()


@pytest.mark.parametrize("cloud", clouds())
def test_machines_are_where_the_key_is(cloud: str) -> None:
    text = chat(extra=key_lines(cloud))
    [pool] = find(CATALOG, text, keep=0).pools
    assert (pool.instance.provider, pool.region) == (cloud, REGIONS[cloud])
    assert present(customer_key(spec_of(text))).cloud == cloud


@pytest.mark.parametrize("cloud", clouds())
def test_another_key_deletes_no_disk_that_is_kept(
    cloud: str, here: Path
) -> None:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    first = plan_of(CATALOG, WORKSPACE + key_lines(cloud))
    engine.apply(first, quiet)
    [disk] = [
        id_
        for id_, found in objects(engine).items()
        if found["type"].endswith((":Volume", ":Disk"))
    ]
    engine.apply(plan_of(CATALOG, WORKSPACE + key_lines(cloud, 2)), quiet)
    assert disk in objects(engine)
    engine.destroy("desk", quiet, RunControl(allow=frozenset({"delete-data"})))
    assert objects(engine) == {}


VAULT_KEY = "https://corp.vault.azure.net/keys/chat"
STORE_IDENTITY = (
    "/subscriptions/0a1b2c3d-0000-4000-8000-000000000001/resourceGroups/keys"
    "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/store"
)
BOTH = f", store_key: {VAULT_KEY!r}, store_identity: {STORE_IDENTITY!r}}}"


def test_a_storage_account_takes_a_key_of_a_vault_and_keeps_its_files(
    here: Path,
) -> None:
    plain = chat() + key_lines("azure")
    keyed = plain[:-2] + BOTH
    graph = graph_of(CATALOG, keyed)
    check(graph)
    [account] = inputs_of(graph, "StorageAccount").values()
    encryption = account["encryption"]
    assert encryption["keySource"] == "Microsoft.Keyvault"
    # A version would have to be changed by hand when the key is rotated.
    assert encryption["keyVaultProperties"] == {
        "keyVaultUri": "https://corp.vault.azure.net",
        "keyName": "chat",
    }
    # An account uses no identity that is not its own.
    assert account["identity"]["userAssignedIdentities"] == [
        encryption["encryptionIdentity"]["encryptionUserAssignedIdentity"]
    ]
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    engine.apply(plan_of(CATALOG, plain), quiet)
    before = {
        id_
        for id_, found in objects(engine).items()
        if found["type"].endswith(":StorageAccount")
    }
    engine.apply(plan_of(CATALOG, keyed), quiet)
    assert before <= objects(engine).keys()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            key_lines("azure")[:-2] + f", store_key: {VAULT_KEY!r}}}",
            "belong together",
        ),
        (key_lines("aws")[:-2] + BOTH, "of another cloud"),
        (
            key_lines("azure")[:-2]
            + BOTH.replace("/keys/chat", "/keys/chat/1"),
            "a key of a vault",
        ),
        (
            f"where: {{clouds: [azure]}}\n"
            f"encryption: {{key: {KEYS['azure'].format(1)!r}}}",
            "in which region",
        ),
        ("encryption: {key: alias/mine}", "a key"),
        ("encryption: {}", "key"),
    ],
)
def test_a_key_that_is_none_is_refused_at_its_place(
    lines: str, told: str
) -> None:
    with pytest.raises(SpecError) as refused:
        spec_of(chat(extra=lines))
    problem = refused.value.problems[0]
    assert told in f"{problem.message}; {problem.next_step}"
    assert present(problem.place).line > 1
