"""What destroy says before it asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.facts.cloud import clouds
from tests.planner.cli.conftest import Command

DESK = """
apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 14GiB}
disk: 300GiB
where: {clouds: [CLOUD]}
"""


@pytest.mark.parametrize("cloud", clouds())
def test_what_holds_data_is_named_with_its_size(
    tonnage: Command, here: Path, cloud: str
) -> None:
    (here / "s.yaml").write_text(DESK.replace("CLOUD", cloud))
    assert tonnage("apply", "s.yaml", "--simulate", "--yes")[0] == 0
    code, _, err = tonnage("destroy", "desk", "--simulate", "--yes")
    assert code == 0
    # That is 300 GiB.
    assert "(disk of 322 GB)" in err
    # They are kept, and named again by whoever deletes them.
    code, _, err = tonnage(
        "destroy", "desk", "--simulate", "--yes", "--allow", "delete-data"
    )
    assert (code, "(disk of 322 GB)" in err) == (0, True)
