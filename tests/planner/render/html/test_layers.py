"""Things in layers: right of what they rest on, and no line that a longer way says."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from planner.render.html.layers import BOX_WIDTH, direct_needs, layers_drawing
from tests.planner.render.html.conftest import blueprint_view


@st.composite
def needs_of_things(draw) -> dict[str, tuple[str, ...]]:
    """Things that need some of those before them."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    return {
        name: tuple(
            sorted(
                draw(st.sets(st.sampled_from(names[:index])))
                if index
                else set()
            )
        )
        for index, name in enumerate(names)
    }


def reached(needs: dict, name: str) -> set[str]:
    """All that a thing rests on, found by walking."""
    found: set[str] = set()
    waiting = list(needs[name])
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += needs[current]
    return found


@given(needs_of_things())
def test_what_is_left_out_is_said_by_a_longer_way(needs) -> None:
    """The same rests on the same, and no line can be taken away."""
    direct = direct_needs(needs)
    for name in needs:
        assert reached(direct, name) == reached(needs, name)
        for needed in direct[name]:
            fewer = direct | {name: direct[name] - {needed}}
            assert needed not in reached(fewer, name)


def places_of(drawing) -> dict[str, float]:
    """The left edge of the box of each name."""
    _, boxes, *names, _ = drawing.shapes
    lefts = re.findall(r'<rect x="([\d.]+)"', boxes.text)
    texts = [shape.text.split(">")[1].split("<")[0] for shape in names]
    return dict(zip(texts, map(float, lefts), strict=True))


@given(needs_of_things())
def test_a_thing_is_right_of_what_it_rests_on(needs) -> None:
    drawing = layers_drawing(dict.fromkeys(needs, "kind"), needs)
    places = places_of(drawing)
    assert places.keys() == needs.keys()
    for name, all_needed in needs.items():
        for needed in all_needed:
            assert places[needed] + BOX_WIDTH < places[name]
        assert places[name] + BOX_WIDTH <= drawing.width


def test_the_resources_of_a_plan_rest_on_what_their_graph_says() -> None:
    resources = blueprint_view("chat-70b").plan.graph.resources
    names = {resource.name for resource in resources}
    assert any(resource.dependencies for resource in resources)
    for resource in resources:
        assert set(resource.dependencies) <= names
