"""Which machines may compute prompts for which others: the rules of the engine's connector.

Rules of `vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py` of vLLM 0.19, and of the
attention that it takes by itself (`vllm/platforms/cuda.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.market.offer import Offer
    from planner.perf.serving.replica import Replica


def may_take_part(offer: Offer, replica: Replica) -> bool:
    """Whether a replica may hand a cache over or fetch one.

    It is on one machine with whole accelerators of NVIDIA: the image of others has no connector,
    and the connector knows no stages of a pipeline.
    """
    instance = offer.instance
    return (
        replica.layout.pp == 1
        and replica.layout.accelerators <= instance.accelerators
        and instance.fraction == 1
        and instance.chip.vendor == "nvidia"
    )


def may_hand_over(prompts: Replica, answers: Replica) -> bool:
    """Whether a replica may answer with the caches of another one.

    Both have the same formats of weights and cache and the same kernels of attention, which the
    connector compares before anything is sent. The accelerators of one side are a multiple of
    those of the other, the same number for models with a recurrent state. Where prompts have
    more, none of them may hold a copy of the cache of another.
    """
    first, second = prompts.layout, answers.layout
    llm = answers.stored_llm
    if (first.precision, first.kv_precision) != (
        second.precision,
        second.kv_precision,
    ):
        return False
    if not _reads_alike(
        prompts.node.accelerator,
        answers.node.accelerator,
        is_plain=second.kv_precision != "fp8" and not llm.kv_lora_rank,
    ):
        return False
    # Each accelerator fetches from the one with the same heads.
    if first.tp == second.tp:
        return True
    if llm.state_layers or (second.tp % first.tp and first.tp % second.tp):
        return False
    # With more accelerators than heads of the cache several hold the same heads.
    return first.tp < second.tp or first.tp <= llm.kv_heads


def _reads_alike(
    first: Accelerator, second: Accelerator, *, is_plain: bool
) -> bool:
    """Whether two accelerators read a cache with the same kernels."""
    if first.compute_capability == second.compute_capability:
        return True
    generations = (
        constant("same_kernels", "least"),
        constant("same_kernels", "most"),
    )
    return is_plain and all(
        each.has_capability(*generations) for each in (first, second)
    )
