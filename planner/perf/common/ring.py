"""What a ring of accelerators sends through their NICs, where it spans machines."""

from __future__ import annotations


def ring_network_share(machine_ranks: float) -> float:
    """Return the bytes through the NIC of a rank for each byte that the rank sends in rings.

    1 / l, with l ranks of the group in each machine

    NCCL makes as many rings as NICs, each over all ranks and with an equal part of the data. A
    ring leaves a machine once, and each by another NIC. So a NIC has only one of l rings.

    Source: NVIDIA/nccl#687 ("go through each GPU and enter/exit the node once"). All-reduces of
    nccl-tests over EFA and InfiniBand reach 0.80 to 0.97 of all NICs of a machine
    (tests/data/truth/busbw.csv).
    """
    return 1 / machine_ranks
