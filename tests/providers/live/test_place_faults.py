"""Whatever goes wrong between a probe and its cloud: the answer is right, or there is none.

The clients are the real ones, and the service is on this machine. What comes of a fault is a law
of the fault, for every probe and every request of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import google.auth
import pytest
from botocore.config import Config
from botocore.retries import standard
from botocore.retries.quota import RetryQuota
from google.oauth2.credentials import Credentials

from planner.market.live import LiveAnswer
from providers.aws import client as aws_client
from providers.azure import client as azure_client
from providers.live import rest
from providers.live.place import MISSHAPEN
from tests.loopback import Answer, Cloud, Request, ask_only, standing_cloud
from tests.providers.live.fault import (
    FAULTS,
    Asked,
    Fault,
    lacking,
    told,
)
from tests.providers.live.probe import (
    CALLS_AFTER,
    PROBES,
    Probe,
    ask_cloud,
)
from tests.providers.live.session import SharedSession
from tests.providers.shapes import (
    ORDINARY,
    call_of,
    cases,
    cloud_of,
    refusals,
    shape,
)
from tests.providers.shapes.structure import field_paths
from tests.providers.shapes.wire import DIALECTS, dialect, sent_case

pytestmark = pytest.mark.enable_socket
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "secret-key-of-aws",
    "AWS_SESSION_TOKEN": "session-token-of-aws",
    "gcp": "ya29.token-of-google",
    "gcp refresh": "refresh-token-of-google",
    "gcp client": "client-secret-of-google",
    "gcp second": "second-token-of-google",
    "azure": "bearer-token-of-azure",
}
# The real settings, but fewer times, and without a pause.
ATTEMPTS = 3
REST_RETRIES = rest.RETRIES.new(
    total=ATTEMPTS - 1, backoff_factor=0, backoff_jitter=0
)
# A pause that a service asks for is kept, but not for longer.
LONGEST_PAUSE_S = 30
HELD_S = 0.1
# A client tries again so often in its life; those here live as long as all tests.
RETRIES_OF_A_CLIENT = 1_000_000


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[Cloud]:
    with standing_cloud() as service, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            standard.quota,
            "RetryQuota",
            partial(RetryQuota, RETRIES_OF_A_CLIENT),
        )
        yield service


@pytest.fixture
def cloud(shared_cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Return one service for all tests, of which nothing has been asked."""
    shared_cloud.asked.clear()
    ask_only(shared_cloud, monkeypatch)
    return shared_cloud


class Service:
    """Three clouds that are well, but for one call that meets a fault."""

    def __init__(self, cloud: Cloud) -> None:
        self.url = cloud.url
        self.held = Event()
        self.fault, self.faulty_call = Fault("well", FAULTS["null"].answer), ""
        self.asked: Counter[str] = Counter()
        self.pauses_s: list[float] = []
        # The cases of calls that have not their ordinary one.
        self.given: dict[str, str] = {}
        cloud.answer = self.answer

    def answer(self, request: Request) -> Answer:
        call = call_of(request)
        self.asked[call] += 1
        if call == self.faulty_call and self.asked[call] <= self.fault.times:
            asked = Asked(call, request, self.url, self.held)
            return self.fault.answer(asked).write
        return sent_case(call, self.given.get(call, ORDINARY))

    def break_call(self, call: str, fault: Fault) -> None:
        """Let a call meet a fault from now on."""
        self.faulty_call, self.fault = call, fault
        self.asked.clear()


@pytest.fixture
def service(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    broken = Service(cloud)
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, SECRETS[name])
    monkeypatch.setattr(aws_client, "Session", SharedSession)
    credentials = Credentials(
        SECRETS["gcp"],
        refresh_token=SECRETS["gcp refresh"],
        token_uri=f"{cloud.url}/token",
        client_id="c",
        client_secret=SECRETS["gcp client"],
    )
    monkeypatch.setattr(
        google.auth, "default", lambda **_: (credentials, "proj")
    )
    token = SimpleNamespace(token=SECRETS["azure"])
    monkeypatch.setattr(
        azure_client,
        "open_credential",
        lambda _: SimpleNamespace(get_token=lambda _: token),
    )
    monkeypatch.setattr(rest, "RETRIES", REST_RETRIES)
    monkeypatch.setattr(rest, "RETRIED_SCHEME", "http://")
    wait_at_most(monkeypatch, 20)
    clock = SimpleNamespace(sleep=broken.pauses_s.append, time=time.time)
    for module in (
        "botocore.endpoint",
        "google.auth._exponential_backoff",
        "urllib3.util.retry",
    ):
        monkeypatch.setattr(f"{module}.time", clock)
    yield broken
    broken.held.set()


def wait_at_most(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let clients wait so long for an answer."""
    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    config = Config(retries=retries, read_timeout=seconds)
    monkeypatch.setattr(aws_client, "RETRIES", config)
    monkeypatch.setattr(rest, "TIMEOUT_S", seconds)


def applies(fault: str, call: str) -> bool:
    """Whether a call may meet a fault."""
    ordinary = shape(call)
    if fault in ("empty page first", "same page again"):
        return bool(ordinary.next)
    if fault == "no field at all":
        # Where all may be missing, nothing is an answer too.
        return not ordinary.answer.keys() <= ordinary.may_lack.keys()
    if fault in ("cut, then well", "cut once at AWS"):
        return (cloud_of(call) == "aws") == (fault == "cut once at AWS")
    if any(fault in refusals(spoken) for spoken in DIALECTS):
        return fault in refusals(dialect(call))
    return True


# Commitments, their regions and their use read some calls by one function each.
ALIKE = ("commitment_use", "commitment_regions")
READ_ALIKE = {
    call
    for probe in PROBES
    if probe.function == "commitments"
    for call in probe.calls
}


CASES = [
    pytest.param(probe, call, fault, id=f"{probe.name}-{call}-{fault}")
    for probe in PROBES
    for call in probe.calls
    for fault in FAULTS
    if applies(fault, call)
    and not (probe.function in ALIKE and call in READ_ALIKE)
]


@cache
def well_answer(probe: Probe) -> Any:
    """Return what a probe answers when all is well, which is asked once."""
    return probe.ask()


def is_of_outcome(fault: Fault, found: Any, well: Any) -> bool:
    """Whether what comes of a fault is what its law says."""
    is_unknown = isinstance(found, (OSError, *MISSHAPEN)) and not isinstance(
        found, (PermissionError, FileNotFoundError)
    )
    return {
        "well": found == well,
        "denied": type(found) is PermissionError,
        "unknown": is_unknown,
        "refused": is_unknown or type(found) is PermissionError,
        "any": found == well or is_unknown,
    }[fault.outcome]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_probe_makes_the_calls_that_the_faults_are_in(
    service: Service, probe: Probe
) -> None:
    answer = probe.ask()
    assert bool(answer) == bool(probe.calls)
    assert set(service.asked) == set(probe.calls)


@pytest.mark.parametrize(("probe", "call", "name"), CASES)
def test_a_fault_has_its_outcome(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    probe: Probe,
    call: str,
    name: str,
) -> None:
    """And it ends, waits no longer than it should, and tells no secret."""
    well = well_answer(probe)
    fault = FAULTS[name]
    if "held" in name:
        wait_at_most(monkeypatch, HELD_S if fault.times == 1 else HELD_S / 4)
    service.break_call(call, fault)
    found = probe.result()
    is_left_out = name == "no field at all" and probe.leaves_out and not found
    assert is_left_out or is_of_outcome(fault, found, well), (found, well)
    assert 0 < service.asked[call] <= 2 * ATTEMPTS
    assert max(service.pauses_s, default=0) <= LONGEST_PAUSE_S
    if isinstance(found, Exception):
        leaked = [key for key, text in SECRETS.items() if text in str(found)]
        assert leaked == []


def is_part(probe: Probe, found: Any, well: Any) -> bool:
    """Whether an answer has nothing that is not in that of the well cloud, where that may be."""
    if not probe.leaves_out or isinstance(found, Exception):
        return False
    if isinstance(found, dict):
        return all(well.get(name) == value for name, value in found.items())
    return all(row in well for row in found)


CALLS = [
    pytest.param(probe, call, id=f"{probe.name}-{call}")
    for probe in PROBES
    for call in probe.calls
]


CALLS_AFTER_OTHERS = [
    pytest.param(probe, call, id=f"{probe.name}-{call}")
    for call, (first, _) in CALLS_AFTER.items()
    for probe in PROBES
    if first in probe.calls
]


@pytest.mark.parametrize(("probe", "call"), [*CALLS, *CALLS_AFTER_OTHERS])
def test_a_field_that_is_missing_is_no_zero(
    service: Service, probe: Probe, call: str
) -> None:
    """The answer is as it was, or unknown; prices and the like may be left out.

    It is another one for just those fields that the file of the call says are read.
    """
    well = well_answer(probe)
    if call in CALLS_AFTER:
        service.given = dict([CALLS_AFTER[call]])
        well = probe.ask()
    ordinary = shape(call)
    wrong, read = {}, set()
    for path in field_paths(ordinary.answer, ordinary.maps):
        if path in ordinary.may_lack:
            continue
        service.break_call(call, Fault("any", lacking(path)))
        found = probe.result()
        if isinstance(found, Exception) or found != well:
            read.add(path)
        if not is_part(probe, found, well) and not is_of_outcome(
            service.fault, found, well
        ):
            wrong[path] = found
    assert wrong == {}
    assert read == set(ordinary.reads[probe.function])


NOTHING = [
    pytest.param(probe, call, case, id=f"{probe.name}-{call}-{case}")
    for probe in PROBES
    for call in probe.calls
    for case in ("empty", "none")
    if case in cases()[call]
]


@pytest.mark.parametrize(("probe", "call", "case"), NOTHING)
def test_an_answer_of_nothing_is_understood(
    service: Service, probe: Probe, call: str, case: str
) -> None:
    """It is said why nothing is known, or what is left out is all that is missing."""
    well = well_answer(probe)
    service.break_call(call, Fault("any", told(case)))
    found = probe.result()
    assert not isinstance(found, MISSHAPEN)
    # Of what is committed to nothing runs: that is known.
    may_be_zero = probe.function == "commitment_use"
    if probe.leaves_out and not may_be_zero and type(found) is type(well):
        assert is_part(probe, found, well)


GOOGLE = [case for case in CALLS if "gcp/" in str(case.id)]


@pytest.mark.parametrize(("probe", "call"), GOOGLE)
def test_an_expired_token_of_google_is_renewed(
    service: Service, probe: Probe, call: str
) -> None:
    service.break_call(call, Fault("well", FAULTS["expired"].answer, 1))
    assert probe.result() == well_answer(probe)
    assert service.asked["gcp/oauth2.token"] == 1


# Faults after which a region has a state, whichever of its calls they are in.
STATES = {
    "permission": "denied",
    "expired": "denied",
    "quota": "unknown",
    "busy": "unknown",
    "cut": "unknown",
    "HTML": "unknown",
    "null": "unknown",
    "throttled, then well": "value",
    "busy, then well": "value",
}
# The calls of one question, so that all others are well.
PLACE_CALLS = [
    "aws/GetMetricStatistics",
    "aws/DescribeInstanceTypeOfferings",
    "aws/GetProducts",
    "aws/DescribeSpotPriceHistory",
    "aws/DescribeCapacityReservations",
    "gcp/quotaInfos.list",
    "gcp/reservations.aggregatedList",
    "gcp/machineTypes.aggregatedList",
    "azure/Usage_List",
    "azure/RetailPrices_List",
    "azure/CapacityReservations_Get",
    "aws/DescribeSavingsPlanRates",
    "aws/GetSavingsPlansUtilizationDetails",
    "gcp/instances.aggregatedList",
    "azure/SavingsPlan_ListAll",
]


@cache
def well_place(cloud: str) -> dict[str, LiveAnswer[object]]:
    """Return all answers about a region when all is well."""
    [place] = ask_cloud(cloud).places
    return place.answers


@pytest.mark.parametrize("call", PLACE_CALLS)
@pytest.mark.parametrize("fault", STATES)
def test_a_fault_in_a_call_is_the_state_of_its_answers(
    service: Service, call: str, fault: str
) -> None:
    """All other answers are as they were, and where the state is no value there is none."""
    cloud = call.partition("/")[0]
    well = well_place(cloud)
    service.break_call(call, FAULTS[fault])
    facts = ask_cloud(cloud)
    assert facts.callers[cloud].state == "value"
    broken = {
        name: (answer.state, answer.value)
        for name, answer in facts.places[0].answers.items()
        if (answer.state, answer.value) != (well[name].state, well[name].value)
    }
    assert set(broken.values()) <= {(STATES[fault], None)}
    assert bool(broken) == (STATES[fault] != "value")
