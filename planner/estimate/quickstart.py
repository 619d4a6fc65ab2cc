"""Profiles of GKE Inference Quickstart as a measured set: what Google measured with vLLM.

A profile is of one model on so many accelerators, with prompts and answers of one mean length,
and has a row for each load. A row is used when it says all that a prediction stands on:
docs/calibrate.md has the rules. What is not used is named with the reason.

The service measures NTPOT, the time of a whole answer over its tokens, and not TPOT:

    answer_s = NTPOT * tokens = TTFT + (tokens - 1) * TPOT
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, ValidationError, convert

from planner.errors import MissingError, Place, Problem, UsageError
from planner.estimate import names
from planner.estimate.benchmark import (
    MAX_TP,
    BenchmarkPoint,
    check_point,
    parse_documents,
    read_benchmark,
)
from planner.estimate.names import RefusedError
from planner.suggest import closest
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planner.facts.llm import Llm

# What the service and we call vLLM.
MODEL_SERVER: Final = "vllm"
# Times are whole milliseconds: half of one is what rounding may have changed.
ROUNDING_S: Final = 0.0005
# A time that may be further off, as a share, teaches nothing.
MOST_OFF: Final = 0.1
# How far the rate times the length may be from the tokens per second, as a share.
THROUGHPUT_OFF: Final = 0.2


class _ServerInfo(Struct, frozen=True, rename="camel"):
    model: str = ""
    model_server: str = ""


class _UsedResources(Struct, frozen=True, rename="camel"):
    accelerator_count: int = 0


class _WorkloadSpec(Struct, frozen=True, rename="camel"):
    """The mean lengths of a benchmark, tokens; 0 where the service does not say them."""

    average_input_length: float = 0.0
    average_output_length: float = 0.0


class _ServingStack(Struct, frozen=True):
    name: str = ""


class _LoadStats(Struct, frozen=True, rename="camel"):
    """What was measured at one load; 0 where the service does not say it.

    queries_per_second        answers a second
    output_tokens_per_second  tokens of all answers a second
    ntpot_milliseconds        time of an answer over its tokens, ms
    ttft_milliseconds         time to the first token, ms
    itl_milliseconds          time between two tokens, ms, which is TPOT
    """

    queries_per_second: float = 0.0
    output_tokens_per_second: float = 0.0
    ntpot_milliseconds: float = 0.0
    ttft_milliseconds: float = 0.0
    itl_milliseconds: float = 0.0


class QuickstartProfile(Struct, frozen=True, rename="camel"):
    """A profile as the service writes it; fields without use here are passed over."""

    model_server_info: _ServerInfo
    accelerator_type: str = ""
    tpu_topology: str = ""
    resources_used: _UsedResources = _UsedResources()
    workload_spec: _WorkloadSpec = _WorkloadSpec()
    serving_stack: _ServingStack = _ServingStack()
    performance_stats: tuple[_LoadStats, ...] = ()


class MeasuredSet(NamedTuple):
    """The points of a file, and a sentence for each row that is not used."""

    points: list[BenchmarkPoint]
    left_out: list[str]


class _ProfiledDeployment(NamedTuple):
    """What was measured, in our names."""

    model: str
    precision: str
    gpu: str
    tp: int
    framework: str = MODEL_SERVER


def read_measured(
    text: str, source_path: str, chosen: Mapping[str, str]
) -> MeasuredSet:
    """Return what a file of a benchmark tool, or of profiles, says. Raises UsageError.

    `chosen` may have model, gpu, tp and framework. Profiles of others are not used: unlike
    files of one's own, profiles say these themselves.
    """
    documents = parse_documents(text, source_path)
    if not documents or not all(
        isinstance(document, dict) and "modelServerInfo" in document
        for document in documents
    ):
        return MeasuredSet(read_benchmark(text, source_path), [])
    measured = MeasuredSet([], [])
    own_names = _own_names(chosen, source_path)
    for number, document in enumerate(documents, 1):
        place = f"{source_path}:{number}"
        try:
            profile = convert(document, QuickstartProfile, strict=False)
        except ValidationError as error:
            message = f"is no profile of GKE Inference Quickstart: {error}"
            raise _profile_error(
                place, message, "ask again: tonnage calibrate --from gke MODEL"
            ) from error
        _add_profile(measured, profile, place, own_names)
    _check_one_deployment(measured, source_path)
    return measured


def _own_names(chosen: Mapping[str, str], source_path: str) -> dict[str, str]:
    """Return the choice in our names; raises UsageError for an unknown one."""
    try:
        own_names = {
            "model": chosen.get("model")
            and names.resolve_model(chosen["model"]).model,
            "gpu": chosen.get("gpu")
            and names.resolve_gpu(chosen["gpu"]).accelerator,
            "tp": chosen.get("tp"),
            "framework": chosen.get("framework")
            and names.resolve_engine(chosen["framework"]),
        }
    except RefusedError as error:
        raise _profile_error(
            source_path, str(error), "correct --model, --gpu or --framework"
        ) from error
    return {field: name for field, name in own_names.items() if name}


def _add_profile(
    measured: MeasuredSet,
    profile: QuickstartProfile,
    place: str,
    own_names: Mapping[str, str],
) -> None:
    """Add the rows of a profile to what is used, or to what is left out."""
    try:
        deployment = _profiled_deployment(profile)
        _check_chosen(deployment, own_names)
    except RefusedError as error:
        measured.left_out.append(f"{place} is left out: {error}")
        return
    for number, stats in enumerate(profile.performance_stats, 1):
        row_place = f"{place}.{number}"
        try:
            point = _row_point(
                stats, profile.workload_spec, deployment, row_place
            )
        except RefusedError as error:
            measured.left_out.append(f"{row_place} is left out: {error}")
        else:
            measured.points.append(point)


def _check_chosen(
    deployment: _ProfiledDeployment, own_names: Mapping[str, str]
) -> None:
    """Raise RefusedError for a deployment that was not chosen."""
    for field, name in own_names.items():
        found = str(getattr(deployment, field))
        if found != name:
            raise RefusedError(f"it is of {field} {found}, not {name}")


def _profiled_deployment(profile: QuickstartProfile) -> _ProfiledDeployment:
    """Return what was measured; raises RefusedError where it is not vLLM alone on GPUs we know."""
    server = profile.model_server_info
    if server.model_server != MODEL_SERVER:
        raise RefusedError(
            f"it was served by '{server.model_server}', not by {MODEL_SERVER}"
        )
    if profile.serving_stack.name:
        # Routers and split prefill change times, and nothing says how.
        raise RefusedError(
            f"it went through the serving stack '{profile.serving_stack.name}'"
        )
    if profile.tpu_topology:
        raise RefusedError("it ran on TPUs")
    lengths = profile.workload_spec
    if not (
        lengths.average_input_length > 0 and lengths.average_output_length > 1
    ):
        raise RefusedError("it does not say how long prompts and answers were")
    count = profile.resources_used.accelerator_count
    if not 1 <= count <= MAX_TP:
        raise RefusedError("it does not say on how many accelerators it ran")
    language_model = names.resolve_model(server.model)
    return _ProfiledDeployment(
        language_model.model,
        language_model.precision,
        names.resolve_gke_accelerator(profile.accelerator_type),
        # Taken as one replica over all that it uses: docs/unproved.md.
        count,
    )


def _row_point(
    stats: _LoadStats,
    lengths: _WorkloadSpec,
    deployment: _ProfiledDeployment,
    place: str,
) -> BenchmarkPoint:
    """Return a row as a measured point; raises RefusedError where it says too little.

    The service does not say how requests arrived. Little's law holds however they do:

        requests in flight = answers a second * answer_s
    """
    rate_per_s = stats.queries_per_second
    ntpot_s = stats.ntpot_milliseconds / MS_PER_S
    ttft_s = stats.ttft_milliseconds / MS_PER_S
    answer_tokens = lengths.average_output_length
    if not (rate_per_s > 0 and ntpot_s > 0 and ttft_s > 0):
        raise RefusedError("it lacks its rate, NTPOT or TTFT")
    tokens_per_s = rate_per_s * answer_tokens
    told_tokens_per_s = stats.output_tokens_per_second
    # Another quotient of the two is another length than the profile says.
    if not (
        abs(told_tokens_per_s - tokens_per_s) <= THROUGHPUT_OFF * tokens_per_s
    ):
        raise RefusedError(
            f"{rate_per_s:g} answers/s of {answer_tokens:g} tokens are not "
            f"{told_tokens_per_s:g} tokens/s"
        )
    if stats.itl_milliseconds:
        tpot_s = stats.itl_milliseconds / MS_PER_S
        answer_s = ttft_s + (answer_tokens - 1) * tpot_s
    else:
        answer_s = ntpot_s * answer_tokens
        tpot_s = _derived_tpot_s(answer_s, ttft_s, answer_tokens)
    for name, time_s in (("TTFT", ttft_s), ("TPOT", tpot_s)):
        if not time_s * MOST_OFF >= ROUNDING_S:
            raise RefusedError(
                f"its {name} of {time_s * MS_PER_S:.1f} ms is too short for a service that "
                "answers whole ms"
            )
    point = BenchmarkPoint(
        place=place,
        prompt_tokens=lengths.average_input_length,
        answer_tokens=answer_tokens,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        # A request that is alone is one in flight while it lasts.
        user_count=max(1.0, rate_per_s * answer_s),
        **deployment._asdict(),
    )
    try:
        return check_point(point)
    except UsageError as error:
        raise RefusedError(str(error)) from error


def _derived_tpot_s(
    answer_s: float, ttft_s: float, answer_tokens: float
) -> float:
    """Return TPOT = (answer_s - TTFT) / (tokens - 1), s.

    It is exact when all answers are of one length. NTPOT is a mean of quotients, so answers of
    many lengths make TPOT too long, as a share by less than

        TTFT / (answer_s - TTFT) * (mean of tokens * mean of 1 / tokens - 1)

    Raises RefusedError where TTFT is more than MOST_OFF of the answer.
    """
    if not ttft_s <= MOST_OFF * answer_s:
        raise RefusedError(
            f"{ttft_s / answer_s:.0%} of an answer's time is TTFT, so its NTPOT does not tell "
            "its TPOT"
        )
    return (answer_s - ttft_s) / (answer_tokens - 1)


def _check_one_deployment(measured: MeasuredSet, source_path: str) -> None:
    """Raise UsageError unless there are points, and all are of one deployment."""
    counts = Counter(
        (point.model, point.gpu, point.tp) for point in measured.points
    )
    if not counts:
        raise _profile_error(
            source_path,
            "has no profile that can be used",
            "measure it yourself: tonnage calibrate --recipe SPEC",
            measured.left_out,
        )
    if len(counts) == 1:
        return
    (model, gpu, tp), _ = min(
        counts.items(), key=lambda item: (-item[1], item[0])
    )
    one_model = len({name for name, _, _ in counts}) == 1
    flags = "" if one_model else f"--model {model} "
    raise _profile_error(
        source_path,
        "has profiles of several deployments",
        f"choose one, such as {flags}--gpu {gpu} --tp {tp}",
        [
            f"{name} on {gpu_name}, TP{count}: {points} points"
            for (name, gpu_name, count), points in sorted(counts.items())
        ],
    )


def _profile_error(
    place: str, message: str, next_step: str, causes: Sequence[str] = ()
) -> UsageError:
    return UsageError(
        Problem(
            code="profile",
            message=message,
            place=Place(place),
            cause="; ".join(causes),
            next_step=next_step,
        )
    )


def asked_name(model: str, profiled_models: Sequence[str]) -> str:
    """Return what the service calls a model. Raises MissingError with what could be meant.

    Its own spelling comes first; then the one of its models that is the same to us.
    """
    spelling = model.strip()
    for name in profiled_models:
        if name.lower() == spelling.lower():
            return name
    try:
        wanted = names.resolve_model(spelling)
    except RefusedError as error:
        raise _unprofiled_error(
            spelling, profiled_models, str(error)
        ) from error
    same = [
        name
        for name, found in _known_models(profiled_models)
        if found == wanted
    ]
    if len(same) == 1:
        return same[0]
    raise _unprofiled_error(
        spelling,
        same or profiled_models,
        "several profiled models have its architecture" if same else "",
    )


def _known_models(
    profiled_models: Sequence[str],
) -> Iterator[tuple[str, Llm]]:
    for name in profiled_models:
        try:
            yield name, names.resolve_model(name)
        except RefusedError:
            continue


def _unprofiled_error(
    model: str, choices: Sequence[str], cause: str
) -> MissingError:
    # People leave out who published a model.
    name_by_end = {_last_part(name): name for name in choices}
    known_end = closest(_last_part(model), name_by_end)
    return MissingError(
        Problem(
            code="profile",
            message=f"no model that Google has measured is named '{model}'",
            cause=cause,
            next_step=f"did you mean '{name_by_end[known_end]}'?"
            if known_end
            else f"name one of {', '.join(sorted(choices))}",
        )
    )


def _last_part(name: str) -> str:
    return name.rpartition("/")[2].lower()
