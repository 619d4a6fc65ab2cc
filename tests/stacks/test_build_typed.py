"""What typed SDKs send for a resource is what we send; skipped, visibly, where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from planner.facts.cloud import clouds
from stacks.build import build_stack
from tests.conftest import ROOT, chat, find, spec_of
from tests.planner.market.test_offer_flex_start import (
    training as with_flex_start,
)
from tests.planner.spec.test_block import CALENDAR, training
from tests.planner.spec.test_certificate_link import spec as with_link
from tests.planner.spec.test_encryption import BOTH, WORKSPACE, key_lines
from tests.planner.spec.test_reservation import RESERVED
from tests.planner.spec.test_reservation import spec as with_reservation
from tests.planner.spec.test_reservation_made import reserved as reserving
from tests.planner.test_workload_stand_in import service as with_stand_ins

pytest.importorskip("pulumi", reason="the pulumi extra is not installed")
from tests.oracles import typed_sdk

SPECS = {
    "-".join(path.parts[-3:-1]): path.read_text()
    for path in sorted((ROOT / "tests/cases").glob("*/*/spec.yaml"))
}
for cloud in clouds():
    place = f"where: {{clouds: [{cloud}]}}\n"
    SPECS |= {
        f"{cloud}-linked": with_link(cloud),
        f"{cloud}-own-key": chat(extra=key_lines(cloud)),
        f"{cloud}-desk-own-key": WORKSPACE + key_lines(cloud),
        f"{cloud}-addressed": chat(
            extra=f"{place}network: {{public_addresses: true}}"
        ),
        f"{cloud}-blue-green": chat(extra=f"{place}update: blue-green"),
        f"{cloud}-reserved": with_reservation(RESERVED[cloud]),
        f"{cloud}-reserving": reserving(cloud),
    }
SPECS |= {
    "aws-block": training(),
    "aws-stand-ins": with_stand_ins(),
    "gcp-flex": with_flex_start(),
    "gcp-block": training(**CALENDAR),
    "azure-store-key": chat(extra=key_lines("azure")[:-2] + BOTH),
}

pytestmark = [
    pytest.mark.skipif(
        not typed_sdk.is_here(), reason="no typed SDKs of Pulumi"
    ),
    pytest.mark.enable_socket,
    # SDKs warn of classes that nobody here uses.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def plain(value: Any) -> Any:
    """Inputs as they are sent, with a text for each reference, and nothing for what is none."""
    if isinstance(value, dict):
        if "$ref" in value:
            return f"{value['$ref']}.{value['output']}"
        return {
            key: plain(part) for key, part in value.items() if part is not None
        }
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


@pytest.mark.parametrize("name", SPECS)
def test_typed_classes_send_the_same_inputs(catalog, name: str) -> None:
    text = SPECS[name]
    spec = spec_of(text)
    graph = build_stack(spec, find(catalog, text, keep=0), spec.name).graph
    inputs = {
        resource.name: plain(resource.inputs) for resource in graph.resources
    }
    sent = typed_sdk.sent_inputs(
        {
            resource.name: (resource.type, inputs[resource.name])
            for resource in graph.resources
        }
    )
    differences = {
        f"{name}: {key}": (ours.get(key), sent[name].get(key))
        for name, ours in inputs.items()
        for key in {*ours, *sent[name]}
        if ours.get(key) != sent[name].get(key)
    }
    assert differences == {}
