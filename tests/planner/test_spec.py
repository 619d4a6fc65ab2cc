"""The reader refuses what is hostile, and reports all that is wrong, with its place."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import SpecError, TonnageError
from planner.facts.accelerator import accelerators, is_named
from planner.facts.receiver import (
    ReceiverForm,
    read_receiver,
    receiver_forms,
)
from planner.spec import unit
from planner.spec.load import load_spec
from planner.spec.model import Batch, Inference, Training
from planner.spec.plain import plain_values
from planner.spec.schema import spec_schema
from planner.spec.source import parse_yaml
from tests.conftest import BLUEPRINTS, ROOT, chat, present, spec_of

ALIAS_BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
MERGE_BOMB = "a0: &a0 {k: v}\n" + "".join(
    f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 24)
)
TUNING = """apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {samples: 50k, location: "s3://bucket/data"}
train: {method: lora, rank: 16}
"""
NIGHTLY = """apiVersion: tonnage/v1
kind: Batch
name: nightly
model: {name: llama-3.1-8b}
traffic:
  requests_per_day: 100k
  input_tokens: 900
  output_tokens: 200
"""
HAZARDS: dict[str, tuple[str | bytes, str]] = {
    "alias bomb": (ALIAS_BOMB, "alias"),
    "merge bomb": (MERGE_BOMB, "alias"),
    "merge key": ("a: {<<: {b: c}}", "merge-key"),
    "deep nesting": ("[" * 50_000, "too-deep"),
    "100,000 keys": (
        "".join(f"k{i}: v{i}\n" for i in range(100_000)),
        "too-large",
    ),
    "a long line": (f"a: {'x, ' * 50_000}", "too-large"),
    "many nodes": ("[" + ",".join(["a"] * 2_500) + "]", "too-many"),
    "duplicate key": ("name: a\nname: b\n", "duplicate-key"),
    "tag": ("a: !!python/object/apply:os.system [ls]", "tag"),
    "two documents": ("a: b\n---\nc: d\n", "documents"),
    "NUL": ("a: b\0c", "control-character"),
    "bidi": ("a: b\u202ec", "control-character"),
    "not UTF-8": (b"a: \xff\xfe", "encoding"),
    "empty": ("", "empty"),
    "long value": ("a: " + "x" * 5000, "too-long"),
    "broken": ("a: [b\n", "yaml"),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_every_hazard_is_refused_by_its_code(name: str) -> None:
    text, code = HAZARDS[name]
    raw = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(SpecError) as caught:
        parse_yaml(raw, "bad.yaml")
    assert caught.value.problems[0].code == code


@pytest.mark.parametrize(
    "word", ["no", "on", "1:30", "1e3", ".nan", ".inf", "0x1F"]
)
def test_words_that_yaml_would_convert_are_text_and_no_numbers(
    word: str,
) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(chat(traffic=f"peak_rps: {word}"))
    problem = caught.value.problems[0]
    assert (problem.code, present(problem.place).line) == ("quantity", 8)


def test_a_leading_zero_is_no_octal_number() -> None:
    spec = spec_of(chat(traffic="peak_rps: 010"))
    assert isinstance(spec, Inference)
    assert spec.traffic.peak_rps == 10


def test_numbers_of_five_thousand_digits_are_refused() -> None:
    with pytest.raises(SpecError):
        spec_of(chat(traffic="peak_rps: " + "9" * 4000))


def test_all_problems_of_a_file_are_reported_at_once_with_their_places() -> (
    None
):
    text = chat(
        sla="tftt_p95: 800ms, tpot_p95: 40",
        traffic="peak_rps: -1",
        extra="shutdwn: {}",
    )
    with pytest.raises(SpecError) as caught:
        spec_of(text)
    found = [(str(p.place), p.code) for p in caught.value.problems]
    assert found == [
        ("spec.yaml:6:7", "unknown-key"),
        ("spec.yaml:6:34", "quantity"),
        ("spec.yaml:8:13", "quantity"),
        ("spec.yaml:11:1", "unknown-key"),
    ]
    assert "did you mean 'ttft_p95'?" in caught.value.problems[0].next_step
    assert "did you mean 'shutdown'?" in caught.value.problems[3].next_step


TRAINING = """apiVersion: tonnage/v1
kind: Training
name: t
model: {name: llama-3.1-8b}
data: {DATA, location: "s3://bucket/tokens"}
train: {method: METHOD, sequence: 4k, global_batch: BATCH}
"""


def training(
    data: str = "tokens: 1B", method: str = "pretrain", batch: str = "512"
) -> bytes:
    text = (
        TRAINING.replace("DATA", data)
        .replace("METHOD", method)
        .replace("BATCH", batch)
    )
    return text.replace("{, ", "{").encode()


@pytest.mark.parametrize(
    ("batch", "sequences"),
    [
        ("512", 512),
        ("512 sequences", 512),
        ("4M tokens", 1024),
        ("1M tokens", 256),
        ("16M tokens", 4096),
        ("100k tokens", 24),
        ("4096 tokens", 1),
    ],
)
def test_a_batch_of_tokens_is_the_even_number_of_sequences_that_is_meant(
    batch: str, sequences: int
) -> None:
    spec = load_spec(training(batch=batch), "t.yaml")
    assert isinstance(spec, Training)
    assert spec.train.global_batch == sequences


@pytest.mark.parametrize(
    ("data", "method", "says"),
    [
        ("tokens: 1B, samples: 4", "pretrain", "exclude each other"),
        ("", "lora", "needs tokens or samples"),
        ("tokens: -1", "pretrain", "tokens"),
        ("tokens: 1B", "pretend", "did you mean|use one of"),
    ],
)
def test_a_training_spec_that_contradicts_itself_is_refused(
    data: str, method: str, says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(training(data, method), "t.yaml")
    told = " ".join(f"{p.message} {p.next_step}" for p in caught.value.problems)
    assert re.search(says, told)
    assert all(p.place and p.place.line for p in caught.value.problems)


def test_a_dataset_without_a_location_is_one_error_with_the_next_step() -> None:
    raw = training().replace(b', location: "s3://bucket/tokens"', b"")
    with pytest.raises(SpecError) as caught:
        load_spec(raw, "t.yaml")
    assert [p.code for p in caught.value.problems] == ["missing-key"]
    assert "location" in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("800ms", "0.8"),
        ("30m", "1800"),
        ("14d", "1209600"),
        ("1.5h", "5400"),
        ("2 s", "2"),
    ],
)
def test_time_spans_are_read_as_written(text: str, seconds: str) -> None:
    assert unit.parse_seconds(text) == unit.parse_number(seconds)


def test_units_are_those_that_people_mean() -> None:
    assert unit.parse_count("70B") == 70 * 10**9
    assert unit.parse_count("4M tokens") == 4_000_000
    assert unit.parse_context("8k") == 8192
    assert unit.parse_bytes("4TiB") == 4 * 2**40
    assert unit.parse_bytes("4TB") == 4 * 10**12
    assert unit.parse_percent("99.9%") == unit.parse_number("0.999")
    assert unit.parse_spending("60000/month") == 60_000
    assert unit.parse_spending("1/hour") == 730
    assert unit.parse_months("4 months") == 4
    assert unit.parse_months("1.5 years") == 18
    assert unit.parse_months("365d") == 12


@pytest.mark.parametrize(
    "amount", ["2000", "$2000", "$ 2000", "2000$", "2000 USD", "usd 2000"]
)
def test_an_amount_is_read_with_and_without_its_currency(amount: str) -> None:
    assert unit.parse_money(amount) == 2000
    # Without a time it is that of a month, which is what bills are for.
    assert unit.parse_spending(amount) == 2000
    assert unit.parse_spending(f"{amount}/hour") == 2000 * 730
    service = spec_of(chat(extra=f"buy: {{budget: {amount}}}"))
    assert service.buy.budget == 2000
    train = spec_of(TUNING.replace("rank: 16", f"budget: {amount}"))
    assert isinstance(train, Training)
    assert train.train.budget == 2000


@pytest.mark.parametrize(
    "amount", ["2000 EUR", "€2000", "-5", "2000/fortnight"]
)
def test_another_currency_or_period_is_refused_with_what_to_write(
    amount: str,
) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(chat(extra=f"buy: {{budget: {amount}}}"))
    [problem] = caught.value.problems
    assert problem.code == "quantity"
    assert "USD" in problem.next_step


def test_checkpoints_are_as_often_as_is_best_when_told_so_or_nothing() -> None:
    for text, seconds in (
        ("rank: 16", None),
        ("checkpoint: auto", None),
        ("checkpoint: 30m", 1800),
    ):
        spec = spec_of(TUNING.replace("rank: 16", text))
        assert isinstance(spec, Training)
        assert spec.train.checkpoint == seconds
    with pytest.raises(SpecError, match="cannot be read"):
        spec_of(TUNING.replace("rank: 16", "checkpoint: automatic"))


def test_a_daily_batch_has_a_day_and_a_single_one_says_how_long() -> None:
    daily = spec_of(NIGHTLY)
    assert isinstance(daily, Batch)
    assert daily.deadline == 86_400
    assert plain_values(daily)["deadline"] == "86400"
    stated = spec_of(NIGHTLY + "deadline: 6h\n")
    assert isinstance(stated, Batch)
    assert stated.deadline == 6 * 3600
    with pytest.raises(SpecError) as caught:
        spec_of(NIGHTLY.replace("requests_per_day", "total_requests"))
    [problem] = caught.value.problems
    assert (problem.code, problem.message) == (
        "missing-key",
        "deadline is missing",
    )


@given(st.text(max_size=40))
def test_no_text_makes_a_unit_fail_otherwise_than_by_value_error(
    text: str,
) -> None:
    for read in (
        unit.parse_number,
        unit.parse_count,
        unit.parse_context,
        unit.parse_seconds,
        unit.parse_bytes,
        unit.parse_percent,
        unit.parse_money,
        unit.parse_spending,
        unit.parse_months,
    ):
        try:
            assert read(text) >= 0
        except ValueError as error:
            assert str(error).startswith("write ")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_spec_or_a_typed_error(raw: bytes) -> None:
    try:
        load_spec(raw, "fuzz.yaml")
    except TonnageError as error:
        assert all(p.next_step for p in error.problems)


def plain(text: str) -> object:
    """A YAML text as JSON values, with every scalar as text or number as an editor sees it."""
    return json.loads(json.dumps(yaml.safe_load(text)))


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
def test_blueprints_are_valid_under_the_published_schema(path) -> None:
    jsonschema.Draft202012Validator.check_schema(spec_schema())
    jsonschema.validate(plain(path.read_text()), spec_schema())


@pytest.mark.parametrize(
    "text",
    [
        chat(extra="surprise: 1"),
        chat(traffic="peak_rps: 1\n  concurrency: 2"),
        chat().replace("kind: Inference", "kind: Inferense"),
        chat().replace("name: chat", "name: Chat!"),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text: str) -> None:
    with pytest.raises(SpecError):
        spec_of(text)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain(text), spec_schema())


def test_the_schema_beside_the_blueprints_is_the_one_that_is_printed() -> None:
    stored = json.loads((ROOT / "blueprints" / "spec.schema.json").read_text())
    assert stored == json.loads(json.dumps(spec_schema()))


@pytest.mark.parametrize(
    "schedule",
    [
        "weekdays 25:00-26:00",
        "daily 08:75-10:00",
        "daily 08:00-10:00 Mars/Olympus",
        "sometimes 08:00-10:00",
        "daily 8-10",
        "daily 08:00-10:00 ../../etc/passwd",
    ],
)
def test_schedules_that_cannot_be_are_refused_in_place(schedule: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(chat(extra=f'shutdown: {{schedule: "{schedule}"}}'))
    assert str(caught.value.problems[0].place) == "spec.yaml:11:22"


@pytest.mark.parametrize(
    "peer_cidr",
    ["10.20.0.1/16", "10.300.0.0/16", "8.8.8.0/24", "0.0.0.0/0", "::1"],
)
def test_only_ranges_of_private_addresses_are_joined(peer_cidr: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(chat(extra=f'network: {{peer_cidrs: ["{peer_cidr}"]}}'))
    assert present(caught.value.problems[0].place).line == 11


@pytest.mark.parametrize(
    "network",
    [
        "range: 172.17.0.0/16",
        "range: 10.50.0.0/20",
        "range: 8.8.0.0/16",
        "range: 10.50.0.0/16, peer_cidrs: [10.50.0.0/16]",
    ],
)
def test_addresses_that_are_taken_are_refused(network: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(chat(extra=f"network: {{{network}}}"))
    assert present(caught.value.problems[0].place).line == 11


def test_everything_that_a_company_has_may_be_joined() -> None:
    assert spec_of(chat(extra="network: {peer_cidrs: [10.0.0.0/8]}"))


@pytest.mark.parametrize(
    ("cloud", "secret", "is_right"),
    [
        ("aws", "secret://clients", True),
        ("aws", "secret://vault/clients", False),
        ("azure", "secret://vault/clients", True),
        ("azure", "secret://clients", False),
        ("aws, azure", "secret://clients", False),
        ("gcp", "sk-the-key-itself", False),
    ],
)
def test_a_key_of_clients_is_named_as_its_cloud_names_secrets(
    cloud: str, secret: str, is_right: bool
) -> None:
    text = chat(
        extra=f"where: {{clouds: [{cloud}]}}\nendpoint: {{api_key: {secret}}}"
    )
    if is_right:
        assert spec_of(text)
        return
    with pytest.raises(SpecError) as caught:
        spec_of(text)
    assert present(caught.value.problems[0].place).line == 12


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("h100", {"h100-sxm", "h100-pcie", "h100-nvl"}),
        ("H100", {"h100-sxm", "h100-pcie", "h100-nvl"}),
        ("a100-80gb", {"a100-80gb-sxm", "a100-80gb-pcie"}),
        ("l4", {"l4"}),
        ("h100-s*", {"h100-sxm"}),
    ],
)
def test_a_word_means_a_whole_family_of_accelerators(
    word: str, names: set[str]
) -> None:
    found = {name for name in accelerators() if is_named(name, word)}
    assert names <= found
    assert not [name for name in found if name.startswith("a10g")]
    assert all(name.startswith(word.lower().rstrip("*")) for name in found)


@pytest.mark.parametrize(
    ("word", "told"), [("h10o", "h100"), ("a10og", "a10g"), ("quartz", "see")]
)
def test_an_accelerator_that_nobody_knows_is_refused_where_it_stands(
    word: str, told: str
) -> None:
    text = chat(extra=f"where: {{accelerators: {{deny: [{word}]}}}}")
    with pytest.raises(SpecError) as caught:
        spec_of(text)
    [problem] = caught.value.problems
    assert problem.code == "accelerator"
    assert told in problem.next_step
    assert problem.place is not None
    assert problem.place.line == text[: text.index(word)].count("\n") + 1


HUB_RULES = {
    "hf:owner/name": ("params: 8B, weights: hf", "aws"),
    "or remove the token": ("name: llama-3.1-8b, token: 'secret://t'", "aws"),
    "weights: hf:owner": ("name: llama-3.1-8b, weights: hf", "aws"),
    "such as s3://bucket": ("name: llama-3.1-8b, weights: 's3://a.b/c'", "aws"),
    "write secret://NAME": (
        "name: meta-llama/Llama-3.1-8B, weights: hf, token: 'secret://v/t'",
        "aws",
    ),
    "write secret://VAULT/NAME": (
        "name: meta-llama/Llama-3.1-8B, weights: hf, token: 'secret://t'",
        "azure",
    ),
    "with the cloud that has the secret": (
        "name: meta-llama/Llama-3.1-8B, weights: hf, token: 'secret://t'",
        "aws, azure",
    ),
    "write where: {clouds: [gcp]}": (
        "name: llama-3.1-8b, weights: 'gs://team-llms/f'",
        "aws",
    ),
    "bucket, hf, hf:owner": ("name: llama-3.1-8b, weights: hub", "aws"),
    "secret://NAME, or on": ("name: llama-3.1-8b, token: hf_abc", "aws"),
}


@pytest.mark.parametrize("words", HUB_RULES)
def test_weights_from_a_hub_want_a_repository_and_a_secret(words: str) -> None:
    model, cloud = HUB_RULES[words]
    text = chat(extra=f"where: {{clouds: [{cloud}]}}").replace(
        "model: {name: llama-3.1-8b, precision: auto}", f"model: {{{model}}}"
    )
    assert model in text
    with pytest.raises(SpecError) as caught:
        spec_of(text)
    [problem] = caught.value.problems
    assert words in problem.next_step
    assert present(problem.place).line > 1


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com",
        "https://me:secret@example.com",
        "mailto:nobody",
        "arn:aws:sqs:us-east-1:123456789012:queue",
        "projects/p/topics/",
    ],
)
def test_what_no_alarm_can_reach_is_refused(address: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(chat(extra=f'notify: ["{address}"]'))
    assert caught.value.problems[0].code == "value"


@pytest.mark.parametrize("form", receiver_forms(), ids=lambda f: f.example)
def test_a_topic_belongs_to_the_cloud_that_is_chosen(
    form: ReceiverForm,
) -> None:
    notify = f'notify: ["{form.example}"]'
    assert read_receiver(form.example).kind == form.kind
    if form.cloud is None:
        assert spec_of(chat(extra=notify)).notify == (form.example,)
        return
    with pytest.raises(SpecError) as caught:
        spec_of(chat(extra=notify))
    assert caught.value.problems[0].code == "conflict"
    spec_of(chat(extra=f"{notify}\nwhere: {{clouds: [{form.cloud}]}}"))


@pytest.mark.parametrize("name", ["pretrain-7b", "classify-backlog"])
def test_hours_that_would_cut_a_job_are_refused(name: str) -> None:
    text = (ROOT / "blueprints" / f"{name}.yaml").read_text()
    hours = 'schedule: "weekdays 08:00-18:00 Europe/Berlin"'
    rest, _, _ = text.partition("\nshutdown:")
    text = f"{rest}\nshutdown: {{{hours}}}\n"
    with pytest.raises(SpecError, match="would cut a job"):
        spec_of(text)


@pytest.mark.parametrize(
    ("hours", "is_fine"),
    [
        ("daily 00:00-24:00 Europe/Berlin", True),
        # The deadline is eight hours.
        ("daily 00:00-08:00 UTC", True),
        ("daily 00:00-07:59 UTC", False),
        ("weekdays 00:00-08:00 UTC", False),
        ("daily 12:00-14:00 UTC", False),
    ],
)
def test_a_daily_run_needs_its_hours_open(hours: str, is_fine: bool) -> None:
    text = (ROOT / "blueprints/summarize-batch.yaml").read_text()
    text = text.replace("\n  ttl:", f'\n  schedule: "{hours}"\n  ttl:')
    if is_fine:
        assert spec_of(text).shutdown.schedule == hours
        return
    with pytest.raises(SpecError, match="closed in the hours of the run"):
        spec_of(text)
