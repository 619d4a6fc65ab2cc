"""Networks that there are already: what a spec must say of them, and where machines then are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.spec.model import NetworkRule
from planner.spec.network import (
    chosen_range,
    given_network,
    overlaps_any,
)
from stacks.engine.state_file import StateFile
from stacks.engine.store import FolderStore
from tests.conftest import ROOT, chat, find, present, spec_of
from tests.planner.cli.conftest import Command

GCP_ID = "projects/corp-network/global/networks/corp"
AWS_ID = "vpc-0a1b2c3d4e5f60718"
AWS_SUBNET = "subnet-0a1b2c3d4e5f60711"
CASES = sorted((ROOT / "tests/cases").glob("*/given-network/spec.yaml"))


def spec(network: str, where: str = "") -> str:
    return chat(extra=f"network: {{{network}}}\n{where}")


def refused(text: str) -> list[str]:
    with pytest.raises(SpecError) as error:
        spec_of(text)
    return [problem.message for problem in error.value.problems]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parts[-3])
def test_the_machines_are_where_the_network_is(catalog, path: Path) -> None:
    """And the bill has no way out, which is that of the owner of the network."""
    text = path.read_text()
    given = present(given_network(spec_of(text).network))
    solution = find(catalog, text, keep=0)
    [pool] = solution.pools
    assert pool.instance.provider == given.cloud == path.parts[-3]
    assert pool.region in given.regions
    if given.zones:
        assert set(pool.zones) <= set(given.zones)
    kinds = {line.kind for line in present(solution.bill).lines}
    assert not kinds & {"nat", "nat_per_node", "nat_data", "public_ip"}
    own_text = text.partition("network:")[0]
    own_kinds = {
        line.kind for line in present(find(catalog, own_text).bill).lines
    }
    assert own_kinds & {"nat", "nat_per_node"}


def test_a_zone_without_the_machines_is_no_place(catalog) -> None:
    """Of two zones with subnets, those stay in which the machine type is offered."""
    network = (
        f"id: {AWS_ID}, range: 10.20.0.0/20, "
        f"subnets: [{AWS_SUBNET}@us-east-1e, {AWS_SUBNET}@us-east-1b]"
    )
    [pool] = find(catalog, spec(network), keep=0).pools
    assert pool.region == "us-east-1"
    offered = {
        offer.zones
        for offer in catalog.offers
        if offer.instance == pool.instance and offer.region == pool.region
    }
    assert set(pool.zones) == {"us-east-1b", "us-east-1e"} & set(*offered)


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (f"id: {GCP_ID}", ["subnets is missing", "range is missing"]),
        ("subnets: [nodes@us-east4]", ["a network that there is"]),
        (
            f"id: {GCP_ID}, range: 10.20.0.0/20, "
            "subnets: [a@us-east4, b@us-east4]",
            ["in one subnet"],
        ),
        (
            f"id: {AWS_ID}, range: 10.20.0.0/20, subnets: "
            f"[{AWS_SUBNET}@us-east-1a, {AWS_SUBNET}@us-west-2a]",
            ["in 2 regions"],
        ),
        (
            f"id: {AWS_ID}, range: 10.20.0.1/20, "
            f"subnets: [{AWS_SUBNET}@us-east-1a]",
            ["no range of addresses"],
        ),
        ("range: 10.20.0.0/20", ["not of 65,536"]),
        (
            f"id: {GCP_ID}, range: 172.17.0.0/20, subnets: [a@us-east4]",
            ["Docker has these addresses"],
        ),
    ],
)
def test_what_a_plan_cannot_look_up_is_asked_for(
    network: str, told: list[str]
) -> None:
    messages = refused(spec(network))
    assert len(messages) == len(told)
    for message, text in zip(messages, told, strict=True):
        assert text in message


def test_a_network_is_on_its_cloud() -> None:
    network = f"id: {GCP_ID}, range: 10.20.0.0/20, subnets: [a@us-east4]"
    [message] = refused(spec(network, "where: {clouds: [aws]}"))
    assert "of gcp, which where.clouds leaves out" in message


@pytest.mark.parametrize(
    "name",
    ["vpc-1", "default", "projects/p/global/networks/", "/subscriptions/x"],
)
def test_an_id_that_no_cloud_gives_is_refused(name: str) -> None:
    [message] = refused(spec(f"id: '{name}', range: 10.20.0.0/20"))
    assert "network.id" in message


def test_every_cloud_says_how_its_networks_are_named() -> None:
    given = {
        present(given_network(spec_of(path.read_text()).network)).cloud
        for path in CASES
    }
    assert given == set(clouds())


def test_a_stack_moves_into_a_network_and_out_again(
    tonnage: Command, here: Path
) -> None:
    """On simulated clouds; what it had of its own goes."""
    own = chat(extra="where: {clouds: [aws], regions: [us-east-1]}")
    given = spec(
        f"id: {AWS_ID}, range: 10.20.0.0/20, "
        f"subnets: [{AWS_SUBNET}@us-east-1a, {AWS_SUBNET}@us-east-1b]",
        "where: {clouds: [aws], regions: [us-east-1]}",
    )
    for text in (own, given, own):
        (here / "s.yaml").write_text(text)
        code, _, err = tonnage(
            "apply", "s.yaml", "--simulate", "--yes", "--allow", "outage"
        )
        assert code == 0, err
    code, out, _ = tonnage("drift", "chat", "--simulate")
    assert code == 0, out


def numbers(text: str) -> set[int]:
    """The networks of 65,536 addresses that a range of 10.0.0.0/8 touches."""
    address, _, bits = text.partition("/")
    second = int(address.split(".")[1])
    return set(range(second, second + 2 ** max(0, 16 - int(bits))))


@given(
    st.lists(st.integers(0, 255), max_size=300),
    st.lists(st.sampled_from([12, 14, 16, 20, 24]), min_size=300, max_size=300),
    st.integers(0, 255),
)
def test_a_stack_takes_the_first_addresses_that_nobody_has(
    seconds: list[int], bits: list[int], peer: int
) -> None:
    taken = []
    for second, prefix_bits in zip(seconds, bits, strict=False):
        size = 2 ** max(0, 16 - prefix_bits)
        taken.append(f"10.{second // size * size}.0.0/{prefix_bits}")
    network = NetworkRule(peer_cidrs=(f"10.{peer}.128.0/20", "10.0.0.0/8"))
    # The fabrics of Google Cloud have these.
    busy = {peer, 43, 44, *range(64, 72)}.union(*map(numbers, taken))
    wanted = next(
        (n for n in (*range(42, 256), *range(42)) if n not in busy), 42
    )
    assert chosen_range(network, taken) == f"10.{wanted}.0.0/16"


def range_of(here: Path, name: str) -> str:
    """The addresses of a stack that stands."""
    state = StateFile(
        FolderStore(here / ".tonnage/simulated/stacks"), name
    ).state
    [vpc] = [
        record
        for record in state.resources.values()
        if record.type == "aws:ec2/vpc:Vpc"
    ]
    return str(vpc.inputs["cidrBlock"])


def two_specs(here: Path) -> tuple[str, str]:
    """Write the specs of two stacks, and return their names."""
    text = chat(extra="where: {clouds: [aws]}")
    names = ("chat", "talk")
    for name in names:
        (here / f"{name}.yaml").write_text(
            text.replace("name: chat\n", f"name: {name}\n")
        )
    return names


def test_stacks_of_one_backend_have_addresses_of_their_own(
    tonnage: Command, here: Path
) -> None:
    for name in two_specs(here):
        assert tonnage("apply", f"{name}.yaml", "--simulate", "--yes")[0] == 0
    assert range_of(here, "chat") == "10.42.0.0/16"
    assert range_of(here, "talk") == "10.45.0.0/16"
    # A stack with another name than its spec is another one.
    applied = tonnage(
        "apply", "chat.yaml", "--stack", "more", "--simulate", "--yes"
    )
    assert applied[0] == 0, applied[2]
    assert range_of(here, "more") == "10.46.0.0/16"
    # What stands keeps its addresses when others go, and when it changes.
    assert (
        tonnage(
            "destroy", "chat", "--simulate", "--yes", "--allow", "delete-data"
        )[0]
        == 0
    )
    busier = (
        (here / "talk.yaml").read_text().replace("peak_rps: 2", "peak_rps: 3")
    )
    (here / "talk.yaml").write_text(busier)
    code, _, err = tonnage("plan", "talk.yaml", "--simulate", "-o", "p.json")
    assert code == 0, err
    code, _, err = tonnage("apply", "p.json", "--simulate", "--yes")
    assert code == 0, err
    assert range_of(here, "talk") == "10.45.0.0/16"


def test_a_plan_that_knows_no_other_stack_is_told_of_their_addresses(
    tonnage: Command, here: Path
) -> None:
    for name in two_specs(here):
        assert tonnage("plan", f"{name}.yaml", "-o", f"{name}.json")[0] == 0
    code, _, err = tonnage("apply", "chat.json", "--simulate", "--yes")
    assert code == 0, err
    assert "cannot be joined" not in err
    code, _, err = tonnage("apply", "talk.json", "--simulate", "--yes")
    assert code == 0, err
    assert "another stack has addresses of 10.42.0.0/16 too" in err


COMPANY = "10.0.0.0/8"


@pytest.mark.parametrize(
    "peers",
    [
        ["10.42.7.0/24"],
        ["10.42.0.0/16"],
        # It holds the first ranges, and is a network of somebody.
        ["10.42.0.0/15"],
        ["10.32.0.0/11"],
        # Everything that a company has is no network of its own.
        [COMPANY],
        [COMPANY, "10.42.0.0/16"],
    ],
)
def test_an_own_range_is_none_of_a_peer(peers: list[str]) -> None:
    """Clouds refuse to join networks that have an address in common."""
    text = f"network: {{peer_cidrs: [{', '.join(peers)}]}}"
    found = chosen_range(spec_of(chat(extra=text)).network, [])
    assert not overlaps_any(found, [peer for peer in peers if peer != COMPANY])
    assert overlaps_any(found, [COMPANY])
