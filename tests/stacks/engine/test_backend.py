"""Backends by their URLs, and the real client of S3 against a server that keeps conditions."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from planner.errors import LockedError
from providers.simulated import world
from stacks.engine.backend import open_store
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.store import BucketStore, FolderStore
from tests.conftest import present
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    TEXT,
    objects,
    plan_of,
    quiet,
)
from tests.stacks.operate.test_bucket import S3

URL = "s3://states/team/prod?region=eu-west-1"


def tag_of(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class ConditionalS3(S3):
    """Writes only what follows the version that a caller names, as S3 does."""

    guard = threading.Lock()

    @property
    def _key(self) -> str:
        return super()._key.removeprefix("/states/")

    def do_PUT(self) -> None:  # noqa: N802
        body = self._body()
        with self.guard:
            present_content = self.objects.get(self._key)
            wanted_tag = self.headers.get("If-Match")
            is_new_only = self.headers.get("If-None-Match") == "*"
            is_refused = (is_new_only and present_content is not None) or (
                wanted_tag is not None
                and (
                    present_content is None
                    or tag_of(present_content) != wanted_tag
                )
            )
            if is_refused:
                self._answer(
                    412, b"<Error><Code>PreconditionFailed</Code></Error>"
                )
                return
            self.objects[self._key] = body
        self._answer(200, ETag=tag_of(body))

    def do_GET(self) -> None:  # noqa: N802
        if "list-type" in self._query:
            super().do_GET()
            return
        self._body()
        content = self.objects.get(self._key)
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        modified = {"Last-Modified": "Mon, 23 Nov 2026 07:00:00 GMT"}
        self._answer(200, content, ETag=tag_of(content), **modified)

    def do_DELETE(self) -> None:  # noqa: N802
        self._body()
        self.objects.pop(self._key, None)
        self._answer(204)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[ConditionalS3]]:
    """A server in place of S3, and an account there."""
    handler = type(
        "Handler", (ConditionalS3,), {"objects": {}, "parts": {}, "signed": []}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name, text in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, text)
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.enable_socket
def test_two_people_share_a_stack_in_a_bucket(
    s3: type[ConditionalS3], catalog, here: Path
) -> None:
    """The clouds are the same; the states are in the bucket alone."""
    mine, theirs = (
        SimulatedEngine(world.default_world(), here, open_store(URL, here))
        for _ in range(2)
    )
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    mine.apply(plan, quiet)
    assert sorted(s3.objects) == ["team/prod/.tonnage/chat.json"]
    assert all("/eu-west-1/s3/" in signature for signature in s3.signed)
    assert theirs.stack_names() == ["chat"]
    assert theirs.apply(plan, quiet).steps == ()
    with (
        mine.store.lock("chat", "tonnage apply chat"),
        pytest.raises(LockedError) as caught,
    ):
        theirs.apply(plan, quiet)
    assert "tonnage apply chat since" in caught.value.problems[0].cause
    with pytest.raises(LockedError, match="changed by another run"):
        theirs.store.write("chat", b"stale", None)
    theirs.destroy("chat", quiet, EVERYTHING)
    assert s3.objects == {}
    assert objects(mine) == {}


def test_a_url_says_where_states_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    shared = tmp_path / "shared folder"
    store = open_store(shared.as_uri(), tmp_path)
    assert isinstance(store, FolderStore)
    assert store.path("chat") == shared / ".tonnage" / "chat.json"
    for url in (None, "https://api.pulumi.com"):
        store = open_store(url, tmp_path)
        assert isinstance(store, FolderStore)
        assert store.path("chat") == tmp_path / "stacks" / "chat.json"
    bucket = open_store("s3://states", tmp_path)
    assert isinstance(bucket, BucketStore)
    assert bucket.location("chat") == "s3://states/.tonnage/chat.json"
    assert present(bucket.location("x")).endswith("/x.json")
