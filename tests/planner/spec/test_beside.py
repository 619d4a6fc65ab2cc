"""Services on the machines of another one: what their files may say, and what is refused."""

from __future__ import annotations

import pytest

from planner.errors import SpecError
from planner.spec.beside import neighbor_specs
from planner.spec.model import Inference
from planner.spec.named_file import named_files
from tests.conftest import chat, spec_of

HOST = chat(
    extra="where: {clouds: [aws]}\nbuy: {spot: never}\n"
    "serving: {beside: [rerank.yaml]}"
)
NEIGHBOR = chat("llama-3.2-1b").replace("name: chat", "name: rerank")


def neighbors(
    neighbor: str = NEIGHBOR, host: str = HOST
) -> tuple[Inference, ...]:
    spec = spec_of(host)
    assert isinstance(spec, Inference)
    return neighbor_specs(spec, lambda _: neighbor.encode())


def test_a_neighbor_has_the_place_of_its_host() -> None:
    [neighbor] = neighbors()
    assert (neighbor.name, neighbor.model.name) == ("rerank", "llama-3.2-1b")
    assert neighbor.where.clouds == ("aws",)
    assert neighbor.buy.spot == "never"
    assert named_files(spec_of(HOST)) == ("rerank.yaml",)


def test_what_agrees_with_the_host_may_be_said_again() -> None:
    assert neighbors(f"{NEIGHBOR}where: {{clouds: [aws]}}\n")


@pytest.mark.parametrize(
    ("more", "line", "told"),
    [
        ("where: {clouds: [gcp]}", 11, "where is that of chat"),
        ("buy: {budget: 500}", 11, "buy is that of chat"),
        ("network: {public_addresses: true}", 11, "network is that of chat"),
        ("serving: {beside: [more.yaml]}", 11, "is beside another service"),
        ("serving: {engine: sglang}", 11, "are those of vLLM"),
        ("serving: {speculation: mtp}", 11, "do not guess"),
    ],
)
def test_what_contradicts_is_refused_where_it_stands(
    more: str, line: int, told: str
) -> None:
    with pytest.raises(SpecError) as refused:
        neighbors(f"{NEIGHBOR.rstrip()}\n{more}\n")
    [problem] = refused.value.problems
    assert problem.place is not None
    assert (problem.place.path, problem.place.line) == ("rerank.yaml", line)
    assert told in problem.message
    assert problem.next_step


def test_two_services_have_two_names() -> None:
    with pytest.raises(SpecError, match="chat is taken"):
        neighbors(NEIGHBOR.replace("name: rerank", "name: chat"))
    with pytest.raises(SpecError, match="v1 is taken"):
        neighbors(NEIGHBOR.replace("name: rerank", "name: v1"))


def test_weights_of_a_neighbor_need_no_other_right() -> None:
    with pytest.raises(SpecError, match="no other right"):
        neighbors(
            NEIGHBOR.replace(
                "name: llama-3.2-1b",
                "name: llama-3.2-1b, weights: s3://bucket/folder",
            ).rstrip()
            + "\nwhere: {clouds: [aws]}\n"
        )


def test_a_file_that_is_no_service_is_refused() -> None:
    training = (
        "apiVersion: tonnage/v1\nkind: Workspace\nname: desk\n"
        "accelerator: {memory: 24GiB, count: 1}\n"
    )
    with pytest.raises(SpecError, match="is no Inference"):
        neighbors(training)


def test_seven_slices_are_the_most() -> None:
    names = ", ".join(f"n{number}.yaml" for number in range(7))
    host = HOST.replace("rerank.yaml", names)
    with pytest.raises(SpecError, match="at most 6 services"):
        neighbors(host=host)
