"""What a spec may ask of weights and cache of the engine that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import Problem, SpecError
from planner.facts.accelerator import UNQUANTIZED
from planner.facts.model_name import named_precision
from planner.facts.serving_engine import gap_reasons, spoken_name

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.spec.model import ModelSpec


def served_precisions(
    engine: str,
    model_spec: ModelSpec,
    architecture: Llm,
    precisions: tuple[str, ...],
) -> tuple[str, ...]:
    """Return those of the allowed precisions that an engine serves the weights of a spec in.

    An engine that makes no other formats serves them as they are published. Raises SpecError when
    none is left, or when the spec asks for a cache that the engine cannot be asked for.
    """
    gaps = gap_reasons(engine)
    served = precisions
    if architecture.has_entries and "entries" in gaps:
        raise _refusal(
            model_spec,
            f"{spoken_name(engine)} cannot serve {architecture.model}: {gaps['entries']}",
            "use another model, or size this one alone: tonnage estimate --table",
        )
    if "conversion" in gaps:
        published = published_precision(model_spec, architecture)
        served = tuple(name for name in precisions if name == published)
        if not served:
            raise _refusal(
                model_spec,
                f"serving.engine is {spoken_name(engine)}: {gaps['conversion']}, and those of "
                f"{architecture.model} are {published}",
                f"write precision: {published}, name weights in {precisions[0]}, or write "
                "engine: vllm",
            )
    if (
        "wide-cache" in gaps
        and model_spec.kv_precision == "bf16"
        and not set(served) & set(UNQUANTIZED)
    ):
        raise _refusal(
            model_spec,
            f"serving.engine is {spoken_name(engine)}: {gaps['wide-cache']}",
            "write kv_precision: fp8, or engine: vllm",
        )
    return served


def published_precision(model_spec: ModelSpec, architecture: Llm) -> str:
    """Return the format of the weights that a spec names."""
    if model_spec.config is not None:
        return architecture.precision
    return named_precision(model_spec.name or "") or architecture.precision


def _refusal(model_spec: ModelSpec, message: str, next_step: str) -> SpecError:
    return SpecError(
        Problem(
            code="engine",
            message=message,
            place=model_spec.place,
            next_step=next_step,
        )
    )
