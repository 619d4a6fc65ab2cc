"""The contract of `make live-test`, with the files themselves in place of a cloud.

What an account is answered is played by a service on this machine: as the files have it, and in
each way in which a cloud may change its mind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from planner.market.offer import Catalog
from providers.aws import client as aws_client
from providers.live.probe import probes
from tests.cloud.contract import (
    ANSWERED,
    as_heard,
    call_differences,
    expected_structure,
    heard_answers,
    hold,
    live_probes,
)
from tests.loopback import Cloud, ask_only, standing_cloud
from tests.providers.live.probe import (
    CHANGING_CALLS,
    PROBES,
    PROFILE_PROBES,
    TODAY,
    Probe,
)
from tests.providers.live.session import SharedSession
from tests.providers.shapes import (
    Document,
    answer_of,
    call_of,
    cases,
    shape,
)
from tests.providers.shapes.service import Said, refuse, serve
from tests.providers.shapes.structure import (
    changed,
    joined,
    json_type,
    parent_of,
    structure_of,
    without,
)

ASKED = [probe for probe in (*PROBES, *PROFILE_PROBES) if probe.calls]
READ = [
    pytest.param(call, function, id=f"{call} {function}")
    for call in cases()
    for function in shape(call).reads
]
# One of each cloud, and a path that its function reads.
SOME = {
    "aws": ("spot_prices", "SpotPriceHistory[].SpotPrice"),
    "azure": ("quotas", "value[].currentValue"),
    "gcp": ("quotas", "quotas[].limit"),
}
NEW_FIELD = "fieldOfTomorrow"


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[Cloud]:
    with standing_cloud() as service:
        yield service


@pytest.fixture
def cloud(shared_cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """One service for all tests: clients of AWS take longer to open than a test."""
    shared_cloud.asked.clear()
    ask_only(shared_cloud, monkeypatch)
    monkeypatch.setattr(aws_client, "Session", SharedSession)
    return shared_cloud


def probe_of(cloud_name: str, function: str) -> Probe:
    [found] = [
        probe
        for probe in ASKED
        if (probe.cloud, probe.function) == (cloud_name, function)
    ]
    return found


@pytest.mark.enable_socket
@pytest.mark.parametrize("probe", ASKED, ids=lambda probe: probe.name)
def test_a_cloud_that_answers_as_documented_keeps_the_contract(
    cloud: Cloud, probe: Probe
) -> None:
    """Every call is heard but those that are made after another first answer.

    And it asks for the version of the service whose shape the file has.
    """
    serve(cloud)
    report = hold(probe)
    later = [call for call in probe.all_calls if call not in probe.calls]
    assert report.outcome == ANSWERED
    assert report.faults == ()
    assert [note for note in report.notes if "no answer" in note] == [
        f"{call}: no answer" for call in later
    ]
    assert not [note for note in report.notes if "new" in note]
    for request in cloud.asked:
        stated = urlsplit(shape(call_of(request)).call.get("url", ""))
        asked = parse_qs(urlsplit(request.path).query)
        assert parse_qs(stated.query).items() <= asked.items()


def with_value(
    document: Document, path: str, value: Any, call: str
) -> Document:
    """Return an answer with another value in all places of a path."""
    home, field = parent_of(path), path.rpartition(".")[2]
    edited: Document = changed(
        document,
        lambda at, fields: (
            {**fields, field: value}
            if at == home and field in fields
            else fields
        ),
        shape(call).maps,
    )
    return edited


@pytest.mark.enable_socket
@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("missing", "missing: {path}"),
        ("null", "another type: {path}: {type}, now null"),
        ("text", "another type: {path}: {type}, now {other}"),
    ],
)
def test_what_a_cloud_changes_is_told(
    cloud: Cloud, name: str, change: str, fault: str
) -> None:
    """Clients of AWS read any number as the text that is expected, and a null as none."""
    function, path = SOME[name]
    probe = probe_of(name, function)
    call = probe.calls[0]
    document = answer_of(call)
    [kind] = structure_of(document, shape(call).maps)[path]
    other = "texts" if kind == "number" else 17
    said = {
        "missing": without(document, path, shape(call).maps),
        "null": with_value(document, path, None, call),
        "text": with_value(document, path, other, call),
    }[change]
    serve(cloud, {call: said})
    report = hold(probe)
    told = fault.format(path=path, type=kind, other=json_type(other))
    if name == "aws" and change != "missing":
        assert report.faults == ()
        return
    assert f"{call}: {told}" in report.faults


@pytest.mark.enable_socket
@pytest.mark.parametrize("name", ["azure", "gcp"])
def test_what_is_new_is_told_and_no_fault(cloud: Cloud, name: str) -> None:
    """The field alone: what stands in it may have names of users."""
    function, _ = SOME[name]
    probe = probe_of(name, function)
    call = probe.calls[0]
    said: Said = {**answer_of(call), NEW_FIELD: {"of a user": "secret"}}
    serve(cloud, {call: said})
    report = hold(probe)
    assert report.faults == ()
    assert f"{call}: new: {NEW_FIELD}" in report.notes
    assert not [note for note in report.notes if "user" in note]


@pytest.mark.enable_socket
@pytest.mark.parametrize("name", SOME)
def test_who_is_refused_is_no_fault(cloud: Cloud, name: str) -> None:
    refuse(cloud, "permission")
    report = hold(probe_of(name, "signed_in"))
    assert report.outcome.startswith("denied")
    assert report.faults == ()
    assert all("no answer" in note for note in report.notes)


@pytest.mark.enable_socket
def test_what_cannot_be_read_at_all_is_a_fault(cloud: Cloud) -> None:
    serve(cloud, {"azure/Usage_List": {"value": [{"name": "cores"}]}})
    report = hold(probe_of("azure", "quotas"))
    assert "azure quotas: not read: TypeError" in report.faults


@pytest.mark.enable_socket
@pytest.mark.parametrize("case", ["empty", "none"])
@pytest.mark.parametrize("probe", ASKED, ids=lambda probe: probe.name)
def test_an_account_that_has_nothing_keeps_the_contract(
    cloud: Cloud, probe: Probe, case: str
) -> None:
    """What it does not show is told: nobody knows how that would look."""
    calls = [call for call in probe.calls if case in cases()[call]]
    serve(cloud, dict.fromkeys(calls, case))
    assert hold(probe).faults == ()


# A value of each type of JSON.
VALUES: tuple[object, ...] = (None, {"a": 1}, [{}], "text", 1, True)


@pytest.mark.parametrize(("call", "function"), READ)
def test_every_path_that_is_read_is_watched(call: str, function: str) -> None:
    """In all rows: one that goes, is null or of another type is told, and no other one is."""
    maps, document = shape(call).maps, as_heard(call, answer_of(call))
    for path in shape(call).reads[function]:
        lacking = structure_of(without(document, path, maps), maps)
        found = call_differences(call, function, lacking)
        is_told = path not in shape(call).sometimes
        assert found.missing == ((path,) if is_told else ())
        assert (path in found.unseen) is not is_told
        for value in VALUES:
            if json_type(value) in expected_structure(call)[path]:
                continue
            edited = with_value(document, path, value, call)
            found = call_differences(call, function, structure_of(edited, maps))
            assert any(text.startswith(f"{path}: ") for text in found.changed)


@pytest.mark.parametrize("call", cases())
def test_a_structure_has_no_value_and_no_name_of_a_user(call: str) -> None:
    """With other values and names in all places it is the same."""
    maps = shape(call).maps
    secret = "secret-of-a-user"

    def hidden(value: Any, path: str = "") -> Any:
        if isinstance(value, dict):
            if path in maps:
                return {
                    f"{secret} {number}": hidden(value[name], f"{path}.*")
                    for number, name in enumerate(value)
                }
            return {
                name: hidden(inner, joined(path, name))
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [hidden(row, f"{path}[]") for row in value]
        return secret if isinstance(value, str) else value

    document = answer_of(call)
    structure = structure_of(hidden(document), maps)
    assert structure == structure_of(document, maps)
    assert secret not in str(structure)


def test_every_question_that_changes_nothing_is_asked() -> None:
    """Of a stack and a day that are given, and with no call that changes an account."""
    asked = [
        probe
        for name in CHANGING_CALLS
        for probe in live_probes(name, "mine", date(2027, 1, 2))
    ]
    assert {(probe.cloud, probe.function) for probe in asked} == {
        (probe.cloud, probe.function)
        for probe in probes()
        if not probe.changes and not probe.what.startswith("nothing")
    }
    words = [word for probe in asked for word in probe.rest]
    assert TODAY not in words
    stacks = {word.stack for word in words if hasattr(word, "stack")}
    assert stacks == {"mine"}


@pytest.mark.enable_socket
def test_what_is_no_call_is_not_listened_to(cloud: Cloud) -> None:
    """A login may be asked for beside the calls."""
    cloud.answer = lambda _: (200, {"access_token": "secret"})
    with heard_answers() as heard:
        requests.get(f"{cloud.url}/login", timeout=5)
    assert not heard


@pytest.fixture
def live_module(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], ModuleType]:
    """Load the tests that a person with an account runs."""

    def load(name: str) -> ModuleType:
        monkeypatch.setenv("TONNAGE_CLOUD", name)
        monkeypatch.setenv("TONNAGE_STACK", "mine")
        spec = spec_from_file_location(
            "live_tests", Path(__file__).with_name("test_live.py")
        )
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.enable_socket
def test_what_a_person_runs_tells_each_question_and_each_price(
    cloud: Cloud,
    live_module: Callable[[str], ModuleType],
    catalog: Catalog,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a cloud that has lost a field: its question fails, and all others are answered."""
    call, path = "azure/Usage_List", "value[].limit"
    serve(cloud, {call: without(answer_of(call), path)})
    module = live_module("azure")
    for probe in module.PROBES:
        if probe.function != "quotas":
            module.test_answers_have_the_structure_of_their_files(probe)
            continue
        with pytest.raises(AssertionError, match="missing"):
            module.test_answers_have_the_structure_of_their_files(probe)
    told = capsys.readouterr().out
    assert f"  {call}: missing: {path}\n" in told
    assert "azure reservations: answered\n" in told
    module.test_prices_are_those_of_the_catalog(catalog)
    told = capsys.readouterr().out
    assert "no price now" in told
    assert "prices compared" in told


@pytest.mark.enable_socket
def test_a_person_who_is_not_signed_in_is_told(
    cloud: Cloud, live_module: Callable[[str], ModuleType]
) -> None:
    refuse(cloud, "expired")
    module = live_module("azure")
    [login] = [
        probe for probe in module.PROBES if probe.function == "signed_in"
    ]
    with pytest.raises(AssertionError, match="nobody is signed in"):
        module.test_answers_have_the_structure_of_their_files(login)
