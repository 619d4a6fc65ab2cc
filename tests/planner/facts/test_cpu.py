"""Cores of machines, as clouds publish them."""

from __future__ import annotations

import pytest

from providers.catalog.load import load_catalog

INSTANCES = {
    offer.instance.instance_type: offer.instance
    for offer in load_catalog(None).offers
}


@pytest.mark.parametrize(
    ("machine", "cores"),
    [
        # EC2 user guide, CPU options: default cores.
        ("p4d.24xlarge", 48),
        ("p5.48xlarge", 96),
        # Graviton has no threads.
        ("g5g.xlarge", 4),
        # Azure: 96 physical cores, and non-multithreaded ones.
        ("Standard_ND96asr_v4", 96),
        ("Standard_ND96isr_H100_v5", 96),
        ("Standard_NC24ads_A100_v4", 24),
        # Grace has no threads; a vCPU of Google Cloud is one.
        ("a3-highgpu-8g", 104),
        ("Standard_ND128isr_NDR_GB200_v6", 128),
    ],
)
def test_a_machine_has_the_cores_that_its_cloud_publishes(
    machine: str, cores: int
) -> None:
    assert INSTANCES[machine].cores == cores


def test_no_machine_has_more_cores_than_vcpus() -> None:
    for instance in INSTANCES.values():
        assert 0 < instance.cores <= instance.vcpu
