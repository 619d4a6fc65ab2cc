"""quota shows limits, and asks for more only when it is told to."""

from __future__ import annotations

import json

import pytest

from planner.cli import quota as quota_command
from planner.market.live import QuotaFact
from tests.planner.cli.conftest import Command

PLACE = ("aws", "us-east-1")


class Account:
    """An account with one quota; what is asked for is kept."""

    def __init__(self, requested: float | None = None) -> None:
        self.requested = requested
        self.sent: list[tuple[str, str, float]] = []

    def quotas(
        self, _region: str, machine_types: list[str], purchase: str
    ) -> list[QuotaFact]:
        if purchase == "spot":
            return []
        return [
            QuotaFact(
                machine_types=tuple(machine_types),
                purchase=purchase,
                unit="vcpus",
                id="L-417A185B",
                name="P instances in us-east-1",
                limit=96.0,
                used=None,
                requested=self.requested,
            )
        ]

    def request_quota(self, region: str, quota_id: str, wanted: float) -> str:
        self.sent.append((region, quota_id, wanted))
        return "PENDING"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    fake = Account()
    monkeypatch.setattr(quota_command, "import_module", lambda _: fake)
    return fake


def test_what_nobody_says_is_an_empty_cell(
    tonnage: Command, account: Account
) -> None:
    code, out, _ = tonnage("quota", "list", *PLACE, "-f", "json")
    [row] = json.loads(out)
    assert code == 0
    assert (row["limit"], row["used"], row["asked_for"]) == ("96", "", "")


@pytest.mark.parametrize("flags", [(), ("--yes",)])
def test_a_request_is_sent_when_it_is_confirmed(
    tonnage: Command, account: Account, flags: tuple[str, ...]
) -> None:
    code, out, _ = tonnage(
        "quota", "request", *PLACE, "L-417A185B", "192", *flags
    )
    assert code == 0
    assert account.sent == [("us-east-1", "L-417A185B", 192.0)] * len(flags)
    assert "P instances in us-east-1" in out
    assert ("--yes" in out) == (not flags)


@pytest.mark.parametrize(
    ("requested", "wanted"), [(None, "96"), (192.0, "192"), (400.0, "200")]
)
def test_what_is_there_or_asked_for_is_not_asked_for_again(
    tonnage: Command, account: Account, requested: float | None, wanted: str
) -> None:
    account.requested = requested
    flags = ("L-417A185B", wanted, "--yes")
    code, out, _ = tonnage("quota", "request", *PLACE, *flags)
    assert code == 0
    assert not account.sent
    assert out.startswith("nothing to ask for")


@pytest.mark.parametrize(
    "arguments",
    [
        ("request", *PLACE),
        ("request", *PLACE, "L-1"),
        ("request", *PLACE, "L-1", "0"),
        ("request", *PLACE, "L-1", "nan"),
        ("list", "cloud", "us-east-1"),
    ],
)
def test_what_is_not_whole_is_refused(
    tonnage: Command, account: Account, arguments: tuple[str, ...]
) -> None:
    assert tonnage("quota", *arguments)[0] == 2
    assert not account.sent


def test_a_region_without_machines_is_not_found(
    tonnage: Command, account: Account
) -> None:
    assert tonnage("quota", "list", "aws", "atlantis-1")[0] == 6
    assert not account.sent


def test_without_a_login_it_says_so(
    tonnage: Command, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[QuotaFact]:
        raise PermissionError("nobody is signed in")

    monkeypatch.setattr(account, "quotas", refuse)
    code, _, err = tonnage("quota", "list", *PLACE)
    assert code == 3
    assert "nobody is signed in" in err
