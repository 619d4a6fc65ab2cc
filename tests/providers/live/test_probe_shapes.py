"""Answers of clouds are files in the shape that each documents, and its own clients read them.

`make live-test` holds the same files against what an account is really answered.
"""

from __future__ import annotations

import ast
import re
from datetime import date
from functools import cache
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ParamValidationError
from botocore.parsers import create_parser
from botocore.validate import validate_parameters

from planner.facts.price_endpoint import price_endpoints
from providers.live.probe import probes
from tests.conftest import ROOT
from tests.oracles import cloud_client
from tests.providers.live.price_lists import CALLS
from tests.providers.live.probe import calls_of
from tests.providers.shapes import (
    CLOUDS,
    ERRORS,
    FOLDER,
    ORDINARY,
    SMALL_CLOUDS,
    Document,
    answer_of,
    cases,
    cloud_of,
    refusals,
    shape,
)
from tests.providers.shapes.structure import (
    changed,
    field_paths,
    structure_of,
    without,
)
from tests.providers.shapes.wire import (
    DIALECTS,
    dialect,
    operation,
    protocol,
    refusal_text,
    sent_case,
    typed,
)

NOTHING = {"empty", "none"}
DIALECT_HOMES = [f"{ERRORS}/{dialect}" for dialect in DIALECTS]
FILES = [
    *((call, ORDINARY) for call in CALLS.values()),
    *((call, case) for call, names in cases().items() for case in names),
    *(
        (f"{ERRORS}/{dialect}", case)
        for dialect in DIALECTS
        for case in refusals(dialect)
    ),
]
# A login is asked of no probe.
LOGIN = "gcp/oauth2.token"
OF_A_CALL = ("maps", "texts", "reads", "sometimes", "may_lack", "next")
# The list of prices has no client: one asks for it as for a page.
WITHOUT_CLIENT = {LOGIN, "azure/RetailPrices_List"}
# What AWS documents in place of the number of an account, and the end of a range of OCI.
NO_ACCOUNTS = {"123456789012", "999999999999"}
SECRETS = re.compile(
    r"AKIA[0-9A-Z]{16}|ya29\.|eyJ[\w-]{20}|/home/|/tmp/|(?<![\w.-])\d{12}(?![\w.-])"
)


def files_of(cloud: str, *, refused: bool = False) -> list[tuple[str, str]]:
    """The files of a cloud, of answers alone or of refusals too."""
    return [
        (call, case)
        for call, names in cases().items()
        if cloud_of(call) == cloud
        for case in names
        if refused or shape(call, case).status < 400
    ]


@pytest.mark.parametrize(
    "probe", probes(), ids=lambda p: f"{p.cloud} {p.function}"
)
def test_every_call_of_a_probe_has_an_answer_and_one_of_nothing(probe) -> None:
    calls = calls_of(probe.cloud, probe.function)
    assert bool(calls) == (not probe.what.startswith("nothing"))
    for call in calls:
        assert ORDINARY in cases()[call]
        assert NOTHING & set(cases()[call])


@pytest.mark.parametrize(
    "probe",
    [probe for probe in probes() if probe.cloud == "aws"],
    ids=lambda p: f"{p.cloud} {p.function}",
)
def test_a_right_of_aws_is_a_call_of_its_probe(probe) -> None:
    """Whoever looks whose rights they are asks for no right of its own that a row would name."""
    rights = {right.rpartition(":")[2] for right in probe.rights}
    calls = {
        call.rpartition("/")[2] for call in calls_of("aws", probe.function)
    }
    assert rights <= calls
    assert calls - rights <= {"GetCallerIdentity"}


def test_every_answer_is_of_a_probe() -> None:
    called = {
        call
        for probe in probes()
        for call in calls_of(probe.cloud, probe.function)
    }
    assert called | {LOGIN} == set(cases())


@pytest.mark.parametrize("cloud", price_endpoints())
def test_a_price_list_is_at_the_address_that_is_asked(cloud: str) -> None:
    """And there are no other files of small clouds."""
    [path] = (FOLDER / cloud).rglob("*.json")
    assert path.parent == FOLDER / CALLS[cloud]
    assert shape(CALLS[cloud]).call["url"] == price_endpoints()[cloud].url


def test_a_folder_is_of_a_cloud_or_of_refusals() -> None:
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    homes = {*CLOUDS, *SMALL_CLOUDS, ERRORS}
    assert folders - {"__pycache__"} == homes
    assert set(SMALL_CLOUDS) == set(price_endpoints())


@pytest.mark.parametrize(("call", "case"), FILES)
def test_a_file_says_what_it_is_and_where_from(call: str, case: str) -> None:
    found = shape(call, case)
    assert found.case == case
    named = found.call.get("operation", found.call.get("dialect"))
    if named is not None:
        assert named == call.rpartition("/")[2]
    else:
        assert urlsplit(found.call["url"]).scheme == "https"
        assert found.call == shape(call).call
    assert "https://" in found.source
    assert date(2026, 1, 1) <= date.fromisoformat(found.as_of)
    assert found.beyond.keys() <= structure_of(found.answer).keys()


def test_no_file_has_a_secret_or_an_account() -> None:
    found = {
        text
        for path in FOLDER.rglob("*.json")
        for text in SECRETS.findall(path.read_text())
    }
    assert found <= NO_ACCOUNTS


@pytest.mark.parametrize("call", cases())
def test_what_is_read_of_an_answer_is_in_it(call: str) -> None:
    """And what it may lack is not what every answer has to have."""
    ordinary = shape(call)
    paths = set(field_paths(ordinary.answer, ordinary.maps))
    read = {path for some in ordinary.reads.values() for path in some}
    assert read | ordinary.may_lack.keys() <= paths
    assert ordinary.sometimes.keys() <= read
    assert not read & ordinary.may_lack.keys()
    for case in cases()[call]:
        if case != ORDINARY:
            other = shape(call, case)
            # What holds for the call stands there alone.
            for name in OF_A_CALL:
                assert not getattr(other, name)


@pytest.mark.parametrize(("call", "case"), files_of("aws"))
def test_the_model_of_aws_has_every_member(call: str, case: str) -> None:
    """With its type; and its client reads what a service sends as what the file says."""
    document = typed(call, answer_of(call, case))
    model = operation(call).output_shape
    validate_parameters(document, model)
    assert read_by_client(call, case) == document


def read_by_client(call: str, case: str) -> Document:
    """What the client makes of an answer, without what stands around it."""
    status, text = sent_case(call, case)
    parser = create_parser(protocol(call))
    answer = {"body": text.encode(), "headers": {}, "status_code": status}
    found: Document = parser.parse(answer, operation(call).output_shape)
    del found["ResponseMetadata"]
    return found


@pytest.mark.parametrize(
    ("call", "case"),
    sorted({*files_of("aws", refused=True)} - {*files_of("aws")}),
)
def test_a_refusal_of_a_call_is_an_error_of_its_model(
    call: str, case: str
) -> None:
    found = read_by_client(call, case)
    names = {error.name for error in operation(call).error_shapes}
    assert found["Error"]["Code"] in names


@pytest.mark.parametrize("call", [c for c in cases() if cloud_of(c) == "aws"])
def test_clients_of_aws_read_refusals(call: str) -> None:
    """In each way in which its services write them."""
    parser = create_parser(protocol(call))
    for case in refusals(dialect(call)):
        status, text = refusal_text(call, case, "you may not")
        answer = {"body": text.encode(), "headers": {}, "status_code": status}
        error = parser.parse(answer, operation(call).output_shape)["Error"]
        assert error["Code"]
        assert error["Message"] == "you may not"


@pytest.mark.parametrize(
    ("call", "case"), [*files_of("gcp"), *files_of("azure")]
)
def test_the_types_of_a_client_have_every_field(call: str, case: str) -> None:
    if call in WITHOUT_CLIENT:
        assert call not in cloud_client.TYPES
        return
    if not cloud_client.is_here(call):
        pytest.skip("its client is not installed: pip install --group clients")
    document = answer_of(call, case)
    for path in shape(call, case).beyond:
        document = without(document, path)
    assert cloud_client.strange_paths(call, document) == []


def with_new_fields(document: Document, maps: tuple[str, ...]) -> Document:
    """An answer in which every object has a field that nobody knows."""
    edited: Document = changed(
        document, lambda _, fields: {**fields, "fieldOfTomorrow": "a"}, maps
    )
    return edited


@pytest.mark.parametrize("call", cases())
def test_a_client_does_not_know_another_field(call: str) -> None:
    """So what it knows says something."""
    strange = with_new_fields(answer_of(call), shape(call).maps)
    if cloud_of(call) == "aws":
        with pytest.raises(ParamValidationError, match="fieldOfTomorrow"):
            validate_parameters(
                typed(call, strange), operation(call).output_shape
            )
    elif call not in WITHOUT_CLIENT and cloud_client.is_here(call):
        assert cloud_client.strange_paths(call, strange)


@cache
def words_of_tests() -> list[set[str]]:
    """The texts that stand in each module of tests."""
    modules = [
        ast.parse(path.read_text())
        for path in (ROOT / "tests").rglob("*.py")
        if "providers.shapes" in path.read_text()
    ]
    return [
        {
            node.value
            for node in ast.walk(module)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for module in modules
    ]


# Each of them is asked of every call.
ASKED_OF_ALL = {ORDINARY, *NOTHING}


def is_used(call: str, case: str) -> bool:
    """Whether a module of tests names a call and a case, or asks all calls for the case."""
    if call in DIALECT_HOMES:
        return any(case in words for words in words_of_tests())
    names = {call, call.rpartition("/")[2]}
    return case in ASKED_OF_ALL or any(
        case in words and names & words for words in words_of_tests()
    )


def test_no_file_is_unused() -> None:
    unused = [file for file in FILES if not is_used(*file)]
    assert unused == []
