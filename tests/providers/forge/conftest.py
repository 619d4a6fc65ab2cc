"""Code hosts on this machine, and a clock that passes at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from planner.render.comment import CommentMarker
from providers.forge.host import forge_hosts
from providers.forge.publish import Behavior, CommentDraft, Publisher
from providers.forge.registry import open_request
from providers.forge.setting import ForgeLogin
from providers.forge.transport import Transport
from tests.providers.forge.hosts import HOSTS, REQUEST, TOKEN, FakeHost, serving


class QuickClock:
    """Time passes when somebody waits, and only then."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.pauses: list[float] = []

    def now_s(self) -> float:
        return self.time_s

    def wait(self, pause_s: float) -> None:
        self.time_s += pause_s
        self.pauses.append(pause_s)

    def share(self) -> float:
        return 0.5


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture(params=sorted(HOSTS))
def host(request: pytest.FixtureRequest) -> Iterator[FakeHost]:
    """Each code host, with no comment yet."""
    fake = HOSTS[request.param]()
    with serving(fake):
        yield fake


@pytest.fixture
def github() -> Iterator[FakeHost]:
    fake = HOSTS["github"]()
    with serving(fake):
        yield fake


def publisher(
    fake: FakeHost,
    clock: QuickClock,
    body: str = "### cost\n\n+$4,125",
    *,
    run: tuple[int, ...] = (5, 1),
    behavior: Behavior = "update",
    tag: str = "cost",
    key: str = "a1",
    timeout_s: float = 300,
) -> Publisher:
    """What posts to a fake host."""
    facts = next(h for h in forge_hosts() if h.service == fake.service)
    transport = Transport(
        facts,
        fake.api,
        ForgeLogin(f"Bearer {TOKEN}", (TOKEN,)),
        timeout_s=timeout_s,
        clock=clock,
    )
    marker = CommentMarker(tag=tag, run=run, commit="91c77aa", key=key)
    draft = CommentDraft(body=body, marker=marker, behavior=behavior)
    return Publisher(
        open_request(transport, fake.repository, REQUEST), facts, draft
    )
