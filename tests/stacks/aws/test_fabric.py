"""The interfaces of every machine type with EFA, by what EC2 says of its cards."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from stacks.aws.fabric import interfaces


def test_every_type_with_efa_has_its_interfaces_where_ec2_takes_them(
    catalog,
) -> None:
    """One address on card 0; EFA on as many cards as there are, and no card too many."""
    types = {
        offer.instance.instance_type: offer.instance
        for offer in (*catalog.offers, *catalog.unlisted)
        if offer.provider == "aws" and offer.instance.fabric == "efa"
    }
    assert len(types) > 20
    stack = SimpleNamespace(has_addresses=False)
    for name, instance in types.items():
        fleet = SimpleNamespace(instance=instance, fabric_attached=True)
        found = interfaces(stack, fleet)  # type: ignore[arg-type]
        kinds = Counter(one["interfaceType"] for one in found)
        assert kinds == {
            "interface": 1,
            "efa-only": instance.fabric_interfaces,
        }, name
        places = [
            (one["networkCardIndex"], one["deviceIndex"]) for one in found
        ]
        assert places[0] == (0, 0), name
        assert len(set(places)) == len(places), name
        cards = [card for card, _ in places[1:]]
        assert len(set(cards)) == len(cards), name
        assert max(cards) < max(1, instance.network_cards), name
        # Only card 0 has a second device: that of the address is the first.
        assert all(
            device == (1 if card == 0 else 0) for card, device in places[1:]
        ), name
