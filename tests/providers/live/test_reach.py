"""Whether a cloud is reached, and what time it is there, asked of a service on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from planner.facts.cloud import clouds
from providers.live import reach

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def service(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[int, timedelta | None], None]]:
    """Let a cloud answer with a status, and with a time of its own or none."""
    answer: dict[str, object] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(int(str(answer["status"])))
            if isinstance(answer["ahead"], timedelta):
                time = datetime.now(UTC) + answer["ahead"]
                self.send_header("Date", format_datetime(time, usegmt=True))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    place = reach._Reach(url, "r", "sign in", "policy")
    monkeypatch.setattr(reach, "_reach", lambda: {"aws": place})

    def set_up(status: int, ahead: timedelta | None) -> None:
        answer.update(status=status, ahead=ahead)

    yield set_up
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status", [200, 401, 403, 404, 500])
@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_every_answer_says_what_time_it_is(
    service, status: int, minutes: int
) -> None:
    service(status, timedelta(minutes=minutes))
    assert reach.clock_skew_s("aws") == pytest.approx(-60 * minutes, abs=5)


def test_an_answer_without_a_time_says_nothing(service) -> None:
    service(200, None)
    with pytest.raises(OSError, match="does not say what time it is"):
        reach.clock_skew_s("aws")


def test_who_is_not_there_is_not_reached(service, monkeypatch) -> None:
    monkeypatch.setattr(
        reach,
        "_reach",
        lambda: {"aws": reach._Reach("http://127.0.0.1:9/", "r", "l", "role")},
    )
    with pytest.raises(OSError, match="refused"):
        reach.clock_skew_s("aws")


def test_every_cloud_has_an_address_and_a_login() -> None:
    assert all(reach.open_region(cloud) for cloud in clouds())
    assert all(reach.login_text(cloud) for cloud in clouds())
