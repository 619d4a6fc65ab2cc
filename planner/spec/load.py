"""Load a spec from the bytes of a file, or report every problem in it."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from planner.errors import Place, Problem, SpecError
from planner.facts.cloud import cloud_of_address, clouds
from planner.facts.receiver import read_receiver
from planner.facts.rule import rules
from planner.facts.small_cloud import small_clouds
from planner.spec.certificate import machine_certificate
from planner.spec.conflict import conflict_problems
from planner.spec.encryption import encryption_problems
from planner.spec.field import (
    Block,
    Choice,
    ProblemReport,
    suggest_word,
)
from planner.spec.kinds import SPEC_KINDS, workload_kind
from planner.spec.model import (
    BUCKET_WEIGHTS,
    SECRET_SCHEME,
    Batch,
    Inference,
    ShutdownRule,
    Spec,
    Training,
    Workspace,
)
from planner.spec.network import network_problems
from planner.spec.override import blamed, overridden
from planner.spec.schedule import open_minutes
from planner.spec.source import MappingNode, parse_yaml
from planner.units import MINUTES_PER_DAY, SECONDS_PER_DAY, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.spec.block import CapacityBlock
    from planner.spec.override import KeyOverride

# Whether a spec breaks a rule, how that is said, and what to do.
SpecCheck: TypeAlias = tuple[bool, str, str]
# Without a block `shutdown`, every kind but a service stops after this long without work.
DEFAULT_IDLE_S: Final = Decimal(3600)
# The requests of a day are one run each day, which ends before the next one starts.
DAILY_DEADLINE_S: Final = Decimal(SECONDS_PER_DAY)


def load_spec(
    file_bytes: bytes,
    source_path: str,
    overrides: Sequence[KeyOverride] = (),
) -> Spec:
    """Return the spec of a file, with some keys as they are said elsewhere.

    Raises SpecError with all of its problems.
    """
    try:
        return _checked_spec(file_bytes, source_path, overrides)
    except SpecError as refusal:
        problems = blamed(
            refusal.problems,
            source_path,
            overrides,
            lambda said: _problems(file_bytes, source_path, said),
        )
        raise SpecError(*problems) from None


def _problems(
    file_bytes: bytes, source_path: str, overrides: Sequence[KeyOverride]
) -> tuple[Problem, ...]:
    """Return what is wrong with the spec of a file, with some keys said elsewhere."""
    try:
        _checked_spec(file_bytes, source_path, overrides)
    except SpecError as refusal:
        return refusal.problems
    return ()


def _checked_spec(
    file_bytes: bytes, source_path: str, overrides: Sequence[KeyOverride]
) -> Spec:
    """Return the spec of a file; problems are told where the blocks that they are of stand."""
    root_node = parse_yaml(file_bytes, source_path)
    if isinstance(root_node, MappingNode):
        root_node = overridden(root_node, overrides)
    if not isinstance(root_node, MappingNode):
        raise SpecError(
            _root_problem(
                root_node.place, "type", "a spec is a mapping of keys to values"
            )
        )
    kind_name = workload_kind(root_node)
    report = ProblemReport()
    # Without a kind the allowed keys are unknown, so nothing else is checked.
    if kind_name not in SPEC_KINDS:
        if "kind" in root_node.nodes:
            Choice(tuple(SPEC_KINDS)).read(
                root_node.nodes["kind"], "kind", report
            )
        else:
            report.add(
                root_node.place,
                "missing-key",
                "kind is missing",
                "write kind: Inference",
            )
        raise SpecError(*report.problems)
    spec_block = SPEC_KINDS[kind_name]
    loaded_spec = Block(
        spec_block.name,
        _without_header(spec_block),
        spec_block.fields,
        exclusive_groups=spec_block.exclusive_groups,
    ).read(root_node, "", report)
    if report.problems:
        # Problems in the order of the file, not of the tables.
        raise SpecError(*sorted(report.problems, key=_position))
    return _check_spec(loaded_spec)


def _without_header(spec_block: Block) -> Any:
    def build(**field_values: Any) -> Any:
        for header_key in ("apiVersion", "kind"):
            # The class of the object stands for the kind.
            field_values.pop(header_key)
        return spec_block.build_object(**field_values)

    return build


def _check_spec(spec: Spec) -> Spec:
    """Check the rules across blocks, and set the defaults that depend on several.

    Raises SpecError with the problems.
    """
    problems: list[Problem] = []
    if isinstance(spec, Inference | Batch):
        spec_traffic = spec.traffic
        # A trace has the lengths of each request.
        if spec_traffic.trace is None:
            problems.extend(
                Problem(
                    code="missing-key",
                    message=f"traffic.{token_key} is missing",
                    place=spec_traffic.place,
                    next_step=f"write {token_key}: {{mean: 1200, p95: 4000}}",
                )
                for token_key in ("input_tokens", "output_tokens")
                if getattr(spec_traffic, token_key) is None
            )
    if isinstance(spec, Batch) and spec.deadline is None:
        if spec.traffic.requests_per_day:
            spec = replace(spec, deadline=DAILY_DEADLINE_S)
        else:
            problems.append(_deadline_problem(spec))
    if (
        # Services have no default shutdown; the other kinds stop when idle.
        isinstance(spec, Workspace | Batch | Training)
        and spec.shutdown == ShutdownRule()
    ):
        spec = replace(spec, shutdown=ShutdownRule(idle=DEFAULT_IDLE_S))
    if spec.protect is None:
        # What a training has made cannot be bought again.
        spec = replace(spec, protect=isinstance(spec, Training))
    if isinstance(spec, Training):
        problems.extend(_dataset_problems(spec))
        problems.extend(_file_system_problems(spec))
    if isinstance(spec, Training | Batch):
        problems.extend(_schedule_problems(spec))
    problems.extend(conflict_problems(spec))
    problems.extend(_block_problems(spec.buy.block))
    problems.extend(_receiver_problems(spec))
    problems.extend(network_problems(spec))
    problems.extend(encryption_problems(spec))
    problems.extend(_waiver_problems(spec))
    if isinstance(spec, Inference):
        problems.extend(_endpoint_problems(spec))
        problems.extend(_elastic_problems(spec))
    if not isinstance(spec, Workspace):
        problems.extend(_weights_problems(spec))
    if problems:
        raise SpecError(*problems)
    return spec


def _file_system_problems(spec: Training) -> list[Problem]:
    """Return whether a file system is asked for where none is known."""
    named = spec.where.clouds
    rule = (
        spec.data.storage == "parallel"
        and bool(named)
        and all(cloud in small_clouds() for cloud in named),
        f"data.storage: no parallel file system is known at {', '.join(named)}",
        f"write data: {{storage: object}}, or clouds: [{', '.join(clouds())}]",
    )
    return _first_broken("data", spec.data.place, (rule,))


def _deadline_problem(batch_spec: Batch) -> Problem:
    return Problem(
        code="missing-key",
        message="deadline is missing",
        place=batch_spec.place,
        next_step="write how long the run may take, for example deadline: 12h",
    )


def _schedule_problems(spec: Training | Batch) -> list[Problem]:
    """Return where the hours of the week would cut a job that is planned without them.

    A daily run begins at midnight in the time zone of the schedule, and has until its deadline.
    """
    schedule = spec.shutdown.schedule
    if schedule is None:
        return []
    if isinstance(spec, Batch) and spec.traffic.requests_per_day:
        run_minutes = min(
            int(spec.deadline or 0) // SECONDS_PER_MINUTE, MINUTES_PER_DAY
        )
        is_cut = not all(
            is_open
            for minute, is_open in enumerate(open_minutes(schedule))
            if minute % MINUTES_PER_DAY < run_minutes
        )
        rule = (
            is_cut,
            "shutdown.schedule is closed in the hours of the run: from 00:00 to its deadline",
            "leave it out, or write daily 00:00-24:00 with the time zone of its midnight",
        )
    else:
        rule = (
            True,
            "shutdown.schedule would cut a job that runs until it is done",
            "leave it out: the machines go when the job is done",
        )
    return _first_broken("schedule", spec.shutdown.place, (rule,))


def _dataset_problems(training_spec: Training) -> list[Problem]:
    training_data = training_spec.data
    train_method = training_spec.train.method
    if training_data.tokens and training_data.samples:
        message = "data: tokens and samples exclude each other"
        next_step = "keep one of them"
    elif (
        not (training_data.tokens or training_data.samples)
        # Pretraining has a default number of tokens for each parameter.
        and train_method != "pretrain"
    ):
        message = f"data: method {train_method} needs tokens or samples"
        next_step = "write how much is trained on, for example tokens: 100M"
    else:
        return []
    return [
        Problem(
            code="data",
            message=message,
            place=training_data.place,
            next_step=next_step,
        )
    ]


def _first_broken(
    code: str, place: Place | None, checks: Iterable[SpecCheck]
) -> list[Problem]:
    """Return the problem of the first check that a spec does not pass."""
    return [
        Problem(code=code, message=message, place=place, next_step=next_step)
        for is_broken, message, next_step in checks
        if is_broken
    ][:1]


def _block_problems(block: CapacityBlock | None) -> list[Problem]:
    """Return what is wrong with the times of a block."""
    if block is None:
        return []
    try:
        is_long = block.duration_s > 0
    except ValueError:
        is_long = False
    times = (
        not is_long,
        f"a block from {block.starts} to {block.ends} is none",
        "write the times that the offering has",
    )
    return _first_broken("block", block.place, [times])


def _waiver_problems(spec: Spec) -> list[Problem]:
    """A waiver of a rule that there is not would accept nothing."""
    known = [rule.id for rule in rules().values() if rule.phase == "security"]
    named = [waiver.partition(" until ")[0] for waiver in spec.waivers or ()]
    return [
        Problem(
            code="waiver",
            message=f"waivers: no rule is named {rule_id}",
            place=spec.place,
            next_step=suggest_word(rule_id, known)
            or "see what is found: tonnage check --security",
        )
        for rule_id in named
        if rule_id not in known
    ]


def _receiver_problems(spec: Spec) -> list[Problem]:
    """A topic belongs to one cloud, so the others may not be chosen."""
    return [
        Problem(
            code="conflict",
            message=f"notify: {receiver.address} is a topic of {receiver.cloud} alone",
            place=spec.where.place or spec.place,
            next_step=f"write where: {{clouds: [{receiver.cloud}]}}, or a mail address",
        )
        for receiver in map(read_receiver, spec.notify)
        if receiver.cloud is not None
        and set(spec.where.clouds) != {receiver.cloud}
    ]


def _weights_problems(spec: Inference | Batch | Training) -> list[Problem]:
    """Weights from Hugging Face want a repository, and a token wants weights from there."""
    model = spec.model
    is_hub = model.weights.startswith("hf")
    secret = (model.token or "").removeprefix(SECRET_SCHEME)
    weights_cloud = cloud_of_address(model.weights)
    rules = (
        (
            isinstance(spec, Training)
            and (model.weights != BUCKET_WEIGHTS or bool(secret)),
            "model.weights: a training reads its weights by its own program",
            "remove it, and load them in train.py",
        ),
        (
            is_hub
            and ":" not in model.weights
            and "/" not in (model.name or ""),
            "model.weights: hf needs a repository, and a model's name is none",
            "write weights: hf:owner/name",
        ),
        (
            "://" in model.weights
            and set(spec.where.clouds) != {weights_cloud},
            f"model.weights: {model.weights} is a bucket of {weights_cloud} alone",
            f"write where: {{clouds: [{weights_cloud}]}}",
        ),
        (
            bool(secret) and not is_hub,
            "model.token is for weights from Hugging Face",
            "write weights: hf, or remove the token",
        ),
        *_secret_rules("model.token", secret, spec),
    )
    return _first_broken("weights", model.place, rules)


def _endpoint_problems(spec: Inference) -> list[Problem]:
    """A host has a certificate, and the key has the form of the secrets of its cloud."""
    endpoint = spec.endpoint
    if endpoint is None:
        return []
    secrets = {
        "endpoint.api_key": (endpoint.api_key or "").removeprefix(
            SECRET_SCHEME
        ),
        "endpoint.certificate": machine_certificate(spec),
    }
    rules = (
        (
            bool(endpoint.host) != bool(endpoint.certificate),
            "endpoint.host and endpoint.certificate go together: a certificate is for a name",
            "write both, or leave both out",
        ),
        (
            endpoint.public and not (endpoint.host and endpoint.api_key),
            "endpoint.public needs a host, a certificate and an api_key",
            "write all three: the whole internet may call it",
        ),
        (
            any(
                not re.fullmatch(clouds()[cloud].account_form, account)
                for account in endpoint.share
                for cloud in spec.where.clouds
                if cloud in clouds()
            ),
            "endpoint.share: not every cloud of where.clouds names accounts so",
            "write where: {clouds: […]} with the cloud that the accounts are of",
        ),
        *(
            check
            for key, secret in secrets.items()
            for check in _secret_rules(key, secret, spec)
        ),
    )
    return _first_broken("endpoint", endpoint.place, rules)


def _elastic_problems(spec: Inference) -> list[Problem]:
    """Return what is wrong with the numbers of machines."""
    elastic = spec.elastic
    if elastic is None:
        return []
    room = (
        elastic.least == elastic.most == 1,
        "elastic has no room: both of its numbers are 1",
        "write what may run, for example elastic: {least: 0.5, most: 2}",
    )
    return _first_broken("elastic", elastic.place, [room])


def _secret_rules(key: str, secret: str, spec: Spec) -> tuple[SpecCheck, ...]:
    """Return what may be wrong with a secret."""
    forms = {
        clouds()[cloud].secret_form
        for cloud in spec.where.clouds
        if cloud in clouds()
    }
    return (
        (
            bool(secret) and len(forms) > 1,
            f"{key}: the clouds of where.clouds name secrets differently",
            "write where: {clouds: […]} with the cloud that has the secret",
        ),
        (
            bool(secret)
            and any(form.count("/") != secret.count("/") for form in forms),
            f"{key} has not the form of the cloud's secrets",
            f"write secret://{min(forms, default='')}",
        ),
    )


def _position(problem: Problem) -> tuple[int, int]:
    problem_place = problem.place or Place("")
    return problem_place.line, problem_place.column


def _root_problem(place: Place, code: str, message: str) -> Problem:
    next_step = "run: tonnage init"
    return Problem(code=code, message=message, place=place, next_step=next_step)
