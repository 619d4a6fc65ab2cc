"""AWS graphs as Terraform's provider judges them, where it is on the machine; skipped, visibly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stacks.build import build_stack
from stacks.graph import Graph, Resource
from tests.conftest import ROOT, chat, find, spec_of
from tests.oracles.terraform import Workspace, is_here
from tests.planner.spec.test_certificate import spec as with_certificate
from tests.planner.spec.test_certificate_link import spec as with_link
from tests.planner.spec.test_encryption import WORKSPACE, key_lines
from tests.planner.spec.test_reservation import RESERVED
from tests.planner.spec.test_reservation import spec as with_reservation
from tests.planner.spec.test_reservation_made import LARGE
from tests.planner.spec.test_reservation_made import reserved as reserving
from tests.planner.test_workload_stand_in import service as with_stand_ins

pytestmark = pytest.mark.skipif(
    not is_here(), reason="no terraform with the provider of AWS"
)
WHERE = "where: {clouds: [aws]}"
MORE = {
    "https": with_certificate(),
    "reserved": with_reservation(RESERVED["aws"]),
    "reserving": reserving("aws"),
    "reserving-together": LARGE.replace("CLOUD", "aws"),
    "zones": chat(
        sla="ttft_p95: 2s, tpot_p95: 80ms, survives: zone",
        traffic="peak_rps: 20",
        extra=WHERE,
    ),
    "addressed": chat(extra=f"{WHERE}\nnetwork: {{public_addresses: true}}"),
    "recreated": chat(extra=f"{WHERE}\nupdate: recreate"),
    "stand-ins": with_stand_ins(),
    "spot-stand-ins": with_stand_ins("100%", spot="only"),
    "linked": with_link("aws"),
    "own-key": chat(extra=key_lines("aws")),
    "desk-own-key": WORKSPACE + key_lines("aws"),
}


@pytest.fixture(scope="module")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("terraform"))


def graphs(catalog: Any) -> dict[str, Graph]:
    texts = {
        path.parent.name: path.read_text()
        for path in sorted(Path(ROOT / "tests/cases/aws").glob("*/spec.yaml"))
    } | MORE
    return {
        name: build_stack(
            spec_of(text), find(catalog, text, keep=0), name
        ).graph
        for name, text in texts.items()
    }


def test_the_provider_of_terraform_takes_every_graph(
    terraform: Workspace, catalog
) -> None:
    assert terraform.judge(graphs(catalog)) == ""


def test_and_refuses_one_that_is_wrong(terraform: Workspace) -> None:
    network = Resource(
        type="aws:ec2/vpc:Vpc",
        name="vpc",
        inputs={"cidrBlock": "10.0.0.0/33", "colour": "red"},
    )
    graph = Graph(provider="aws", region="us-east-1", resources=(network,))
    told = terraform.judge({"wrong": graph})
    assert "colour" in told
    fixed = replace(network, inputs={"cidrBlock": "10.0.0.0/33"})
    told = terraform.judge({"wrong": replace(graph, resources=(fixed,))})
    assert "10.0.0.0/33" in told
