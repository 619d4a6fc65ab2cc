"""Arguments of the server of a node."""

from __future__ import annotations

import json

from planner.facts.llm import find_model
from planner.perf.serving.drafting import drafting, find_draft
from stacks.runtime.vm.serving import speculative_config
from tests.conftest import present

# vllm/config/speculative.py of vLLM 0.19: fields of SpeculativeConfig, and methods.
FIELDS = {"method", "model", "num_speculative_tokens"}
METHODS = {"ngram", "eagle", "eagle3", "medusa", "mtp", "draft_model"}


def settings_of(method: str, model: str) -> dict[str, object]:
    row = present(find_draft(method, find_model(model), model))
    settings = json.loads(speculative_config(drafting(row, 0.6)))
    assert set(settings) <= FIELDS
    assert settings["method"] in METHODS
    return dict(settings)


def test_a_draft_is_named_as_vllm_names_it() -> None:
    assert settings_of("ngram", "llama-3.1-8b") == {
        "method": "ngram",
        "num_speculative_tokens": 3,
    }
    assert settings_of("mtp", "deepseek-r1") == {
        "method": "mtp",
        "num_speculative_tokens": 1,
    }


def test_a_draft_with_weights_of_its_own_says_where_they_are() -> None:
    settings = settings_of("eagle3", "llama-3.3-70b")
    assert (
        settings["model"] == "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3"
    )
