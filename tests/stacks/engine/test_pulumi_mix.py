"""Machines that are bought in several ways, with the real engine; skipped without its binary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.planner.solve.serving import test_length_class_answer
from tests.planner.solve.serving.test_mixed_answer import (
    TYPES,
    repriced,
    two_types,
)
from tests.providers.simulated.test_clock import CLOUDS
from tests.providers.simulated.test_clock_mix import (
    JOBS,
    MIXES,
    job_spec,
    spec,
)
from tests.stacks import test_build_apart, test_build_beside
from tests.stacks.engine.test_pulumi import (
    engine_in,
    objects,
    pytestmark,  # noqa: F401 - these tests are skipped as those are
)
from tests.stacks.engine.test_simulated import EVERYTHING, plan_of, quiet

if TYPE_CHECKING:
    from pathlib import Path

    from planner.market.offer import Catalog
    from planner.plan.types import Plan


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("mix", MIXES)
def test_the_real_engine_previews_builds_and_destroys_a_mix(
    here: Path, catalog: Catalog, cloud: str, mix: str
) -> None:
    previewed_built_and_destroyed(here, plan_of(catalog, spec(cloud, mix)))


@pytest.mark.parametrize(("cloud", "kind"), JOBS)
def test_the_real_engine_previews_builds_and_destroys_a_mixed_job(
    here: Path, catalog: Catalog, cloud: str, kind: str
) -> None:
    previewed_built_and_destroyed(here, plan_of(catalog, job_spec(cloud, kind)))


@pytest.mark.parametrize("cloud", TYPES)
def test_the_real_engine_previews_builds_and_destroys_two_machine_types(
    here: Path, catalog: Catalog, cloud: str
) -> None:
    plan = plan_of(repriced(catalog, cloud), two_types(cloud))
    assert len(plan.solution.pools) == 2
    previewed_built_and_destroyed(here, plan)


@pytest.mark.parametrize("cloud", TYPES)
def test_the_real_engine_previews_builds_and_destroys_pools_by_length(
    here: Path, catalog: Catalog, cloud: str
) -> None:
    offered = test_length_class_answer.repriced(catalog, cloud)
    text = test_length_class_answer.documents(cloud)
    plan = plan_of(offered, text)
    assert [pool.requests is None for pool in plan.solution.pools] == 2 * [
        False
    ]
    previewed_built_and_destroyed(here, plan)


@pytest.mark.parametrize("cloud", test_build_apart.CLOUDS)
def test_the_real_engine_previews_builds_and_destroys_pools_apart(
    here: Path, catalog: Catalog, cloud: str
) -> None:
    offered = test_build_apart.sold(catalog, cloud)
    plan = plan_of(offered, test_build_apart.text_of(cloud))
    parts = [pool.part for pool in plan.solution.pools]
    assert parts == ["prompts", "answers"]
    previewed_built_and_destroyed(here, plan)


@pytest.mark.parametrize("cloud", test_build_beside.MACHINES)
def test_the_real_engine_previews_builds_and_destroys_services_together(
    here: Path, cloud: str
) -> None:
    plan = test_build_beside.plan_of_all(cloud)
    [pool] = plan.solution.pools
    assert len(pool.shared_services) == 3
    previewed_built_and_destroyed(here, plan)


def previewed_built_and_destroyed(here: Path, plan: Plan) -> None:
    engine = engine_in(here)
    names = {resource.name for resource in plan.graph.resources}
    previewed = engine.preview(plan)
    assert {step.name for step in previewed} == names
    assert {step.action for step in previewed} == {"create"}
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(names)
    assert engine.preview(plan) == ()
    engine.destroy(plan.stack.name, quiet, EVERYTHING)
    assert objects(engine) == {}
