"""Models that learn further tokens against what the makers of two such models publish."""

from __future__ import annotations

import pytest

from planner.facts.further_prediction import with_further_predictions
from planner.facts.llm import find_model, models


def test_a_module_has_the_parameters_that_deepseek_counts() -> None:
    """README_WEIGHTS.md of DeepSeek-V3: 11.5B of its own; 2.4B active with embedding and head."""
    one = find_model("deepseek-v3")
    two = with_further_predictions(one, 1)
    assert two.params - one.params == pytest.approx(11.5e9, rel=0.01)
    embedding_params = one.vocab * one.hidden
    assert (
        two.active_params - one.active_params + embedding_params
        == pytest.approx(2.4e9, rel=0.07)
    )
    assert (two.layers, two.moe_layers) == (62, 59)
    assert two.embedding_params == one.embedding_params


@pytest.mark.parametrize(
    "name", ["nemotron-3-super-120b-a12b", "nemotron-3.5-lightning"]
)
def test_modules_of_hybrids_have_attention_and_experts(name: str) -> None:
    """`mtp_layers_block_type` of their config.json."""
    one = find_model(name)
    three = with_further_predictions(one, 2)
    assert three.attending_layers == one.attending_layers + 2
    assert three.moe_layers == one.moe_layers + 2
    assert three.state_layers == one.state_layers
    assert three.layers == one.layers + 4


@pytest.mark.parametrize("name", sorted(models()))
def test_modules_add_up_and_leave_a_usual_layer_as_it_is(name: str) -> None:
    one = find_model(name)
    assert with_further_predictions(one, 0) is one
    two, four = (with_further_predictions(one, count) for count in (1, 3))
    for grown in ("params", "active_params", "layers", "attention_params"):
        least, middle, most = (
            getattr(model, grown) for model in (one, two, four)
        )
        assert most - least == pytest.approx(3 * (middle - least), rel=1e-6)
        assert middle > least
    # A whole model has no module that is larger than its largest layer and the join.
    usual_params = (one.params - one.embedding_params) / one.layers
    assert two.params - one.params < 5 * usual_params + 2 * one.hidden**2
