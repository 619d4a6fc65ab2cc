"""Coefficients of training and the keys of a job that select them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.common.coefficient_table import CoefficientTable

if TYPE_CHECKING:
    from planner.perf.training.job import Job


class TrainingCoefficients(Struct, frozen=True, kw_only=True):
    """Coefficients that apply to one job.

    Values, units and sources: planner/perf/data/training.csv.

    attention         share of the 16-bit peak that fused attention reaches
    bubble            factor on the textbook pipeline bubble
    clock             exponent of the power ratio in the sustained clock
    contention        share of the shorter of computing and gathering that is exposed
    context           share of context parallelism that is exposed
    dense_host        host time of a dense layer and micro-batch, s
    depth             depth of a product that takes as long as starting and ending its sums
    doubling          share of time added by each doubling beyond 8 accelerators
    exchange          share of the all-to-all that is exposed
    exchange_network  share of the network part of the all-to-all that is exposed
    exchange_rate     share of link and network bandwidth that an all-to-all reaches
    expert_precision  `precision` of experts over that of other products
    expert_products   rate of expert products over that of dense products
    expert_quantizing  `quantizing` of experts over that of other products
    expert_traffic    factor on element-wise bytes of experts
    forced            forward passes that forced recomputation of all activations costs
    forced_power      exponent of the share of activations that is recomputed by force
    head_last         share of the head that unbalances the last pipeline stage
    hops              share of the transfers between stages that is exposed
    host_power        exponent of the norm of host time and accelerator time
    latency           time of a gather for each doubling of its ranks, s
    link              share of link bandwidth (one direction) that collectives reach
    local_expert      host time of a local expert, layer and micro-batch, s
    loss_traffic      factor on the bytes of the loss
    moe_host          host time of a layer with experts and micro-batch, beside its experts, s
    network           share of network bandwidth that collectives reach
    permute           passes over the tokens that are sorted by expert
    precision         rate of products over the data-sheet rate of the precision
    products          share of the peak at the sustained clock
    quantizing        factor on the bytes that quantize operands
    scan              share of the 32-bit peak that scans of state-space layers reach
    scores            passes over a stored score matrix
    softmax           exponentials for each pair of tokens
    speed             rate of products over the data-sheet rate of the accelerator
    step              constant time of every step, s
    tensor            exposed time of tensor parallelism over its transfer time
    traffic           element-wise bytes over each tensor once
    unpack            factor on the bytes that unpack frozen weights
    unlike            factor on the time of an architecture
    zero              share of the gradient reduction that is exposed
    """

    attention: float
    bubble: float
    clock: float
    contention: float
    depth: float
    context: float
    dense_host: float
    doubling: float
    exchange: float
    exchange_network: float
    exchange_rate: float
    expert_precision: float
    expert_products: float
    expert_quantizing: float
    expert_traffic: float
    forced: float
    forced_power: float
    head_last: float
    hops: float
    host_power: float
    latency: float
    link: float
    local_expert: float
    loss_traffic: float
    moe_host: float
    network: float
    permute: float
    precision: float
    products: float
    quantizing: float
    scan: float
    scores: float
    softmax: float
    speed: float
    step: float
    tensor: float
    traffic: float
    unlike: float
    unpack: float
    zero: float


BIASED_FAMILIES: Final = ("gpt_oss",)  # whose experts have biases

TRAINING_TABLE: Final = CoefficientTable(TrainingCoefficients, "training.csv")


def training_coefficients(job: Job, *conditions: str) -> TrainingCoefficients:
    """Return the coefficients of a job; `conditions` are keys that hold besides.

    Products of experts in a precision of their own have the factors of that precision.
    """
    selected_keys = coefficient_keys(job).union(conditions)
    coefficients = TRAINING_TABLE.select(selected_keys)
    precision = job.software.precision
    expert_precision = job.software.precision_of_experts
    if expert_precision == precision:
        return coefficients
    of_experts = TRAINING_TABLE.select(
        (selected_keys - {precision}) | {expert_precision}
    )
    return replace(
        coefficients,
        expert_precision=of_experts.precision / coefficients.precision,
        expert_quantizing=of_experts.quantizing / coefficients.quantizing,
        local_expert=of_experts.local_expert,
    )


def coefficient_keys(job: Job) -> frozenset[str]:
    """Return the keys that select the coefficients of a job.

    Vendor, architecture, kernels and precision are keys. So is each condition that holds.
    """
    accelerator = job.chip
    software = job.software
    # A coefficient is its base value times the factor of each selected key.
    selected_keys = {
        accelerator.vendor,
        accelerator.architecture,
        software.kernels,
        software.precision,
    }
    key_conditions = {
        "torch": software.is_torch,
        # LLM Foundry has its own attention factor because of ALiBi.
        "sdpa": software.is_torch and software.kernels != "foundry",
        # FlashAttention-2 reaches less of the peak on chips after Ampere.
        "torch modern": software.is_torch
        and accelerator.architecture != "Ampere",
        "overlapped": software.tp_overlapped,
        "captured": software.graph_captured,
        "parts captured": software.parts_captured,
        "dropping": software.drops_tokens,
        # A whole graph overlaps too: its own factors say so.
        "interleaved": software.exchange_overlapped
        and not software.graph_captured,
        "sinks": software.attention_sinks,
        # Experts with biases and clamps are not one fused product.
        "biased": job.llm.family in BIASED_FAMILIES,
        # Other stages hide a part of the all-to-all over the network.
        "pipelined": job.layout.pp > 1,
        "hybrid": bool(job.llm.state_layers),
        "dualpipe": job.layout.schedule == "dualpipe",
        "unseen": job.is_unseen,
        "whole run": software.is_whole_run,
        # Row-wise 8 bit in plain PyTorch still sends 16-bit activations.
        "8 bit or less": software.precision not in (*SIXTEEN_BIT, "fp8row"),
    }
    return frozenset(
        selected_keys
        | {key_name for key_name, is_met in key_conditions.items() if is_met}
    )
