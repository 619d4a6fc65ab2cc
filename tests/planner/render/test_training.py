"""Lines of a plan's page that only a training job has."""

from __future__ import annotations

import pytest

from planner.plan.types import LoaderSpeed
from planner.render.training import loader_line


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (
            "images",
            "88 cores of a machine decode 1,201 images/s, it trains on 1,418; "
            "11 workers of each rank that loads",
        ),
        (
            "text",
            "88 cores of a machine tokenize 1,201 tokens/s, it trains on 1,418; "
            "11 workers of each rank that loads",
        ),
    ],
)
def test_what_cores_prepare_stands_beside_what_is_trained_on(
    form: str, words: str
) -> None:
    speed = LoaderSpeed(
        form=form, cores=88, workers=11, wanted_s=1418.2, given_s=1200.9
    )
    assert loader_line(speed) == words
