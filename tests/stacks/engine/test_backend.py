"""Backends by their URLs, and the real client of S3 against a server that keeps conditions."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from azure.core.credentials import AccessToken
from google.auth.credentials import Credentials

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

URLS = {
    "aws": "s3://states/team/prod?region=eu-west-1",
    "gcp": "gs://states/team/prod",
    "azure": "azblob://states/team/prod?storage_account=shared",
}
DATE = "Mon, 23 Nov 2026 07:00:00 GMT"


def tag_of(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class ConditionalBucket(S3):
    """Writes only what follows the version that a caller names; every call is signed."""

    guard = threading.Lock()
    generations: dict[str, int]
    put_status, delete_status = 200, 204

    @property
    def _key(self) -> str:
        return super()._key.removeprefix("/states/")

    def refusal(self, content: bytes | None) -> tuple[int, str] | None:
        """Return status and code when what is there is not what a caller expects."""
        raise NotImplementedError

    def version(self, content: bytes) -> dict[str, str]:
        """Return the headers that name a version."""
        return {"ETag": tag_of(content)}

    def listing(self) -> str:
        """Return all objects as the cloud lists them."""
        raise NotImplementedError

    def do_PUT(self) -> None:  # noqa: N802
        body = self._body()
        with self.guard:
            refusal = self.refusal(self.objects.get(self._key))
            if refusal is not None:
                self._answer(
                    refusal[0],
                    f"<Error><Code>{refusal[1]}</Code></Error>".encode(),
                )
                return
            self.objects[self._key] = body
            self.generations[self._key] = len(self.signed)
            version = self.version(body)
        self._answer(self.put_status, b"", **version)

    def do_GET(self) -> None:  # noqa: N802
        self._body()
        if "list-type" in self._query or "comp" in self._query:
            self._answer(200, self.listing().encode())
            return
        content = self.objects.get(self._key)
        if content is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self._answer(
            200, content, **self.version(content), **{"Last-Modified": DATE}
        )

    def do_DELETE(self) -> None:  # noqa: N802
        self._body()
        self.objects.pop(self._key, None)
        self._answer(self.delete_status)


class ConditionalS3(ConditionalBucket):
    """https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html."""

    def refusal(self, content: bytes | None) -> tuple[int, str] | None:
        wanted_tag = self.headers.get("If-Match")
        is_new_only = self.headers.get("If-None-Match") == "*"
        assert wanted_tag or is_new_only or self._key.endswith(".note")
        if (is_new_only and content is not None) or (
            wanted_tag and (content is None or tag_of(content) != wanted_tag)
        ):
            return 412, "PreconditionFailed"
        return None

    def listing(self) -> str:
        rows = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>1</ETag>"
            "<LastModified>2026-11-23T07:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
        )
        return f"<ListBucketResult>{rows}</ListBucketResult>"


class ConditionalCloudStorage(ConditionalS3):
    """https://cloud.google.com/storage/docs/xml-api/reference-headers#xgoogifgenerationmatch."""

    def refusal(self, content: bytes | None) -> tuple[int, str] | None:
        wanted = self.headers.get("x-goog-if-generation-match")
        assert wanted or self._key.endswith(".note")
        # 0 is the generation of an object that does not exist.
        found = self.generations[self._key] if content is not None else 0
        if wanted and int(wanted) != found:
            return 412, "PreconditionFailed"
        return None

    def version(self, content: bytes) -> dict[str, str]:
        return {
            "ETag": tag_of(content),
            "x-goog-generation": str(self.generations[self._key]),
        }


class ConditionalBlobs(ConditionalS3):
    """https://learn.microsoft.com/rest/api/storageservices/put-blob."""

    put_status, delete_status = 201, 202

    def refusal(self, content: bytes | None) -> tuple[int, str] | None:
        refusal = super().refusal(content)
        if refusal and self.headers.get("If-None-Match") == "*":
            return 409, "BlobAlreadyExists"
        return refusal and (412, "ConditionNotMet")

    def do_POST(self) -> None:  # noqa: N802
        """Delete many blobs in one call, each answered by a part."""
        assert self._query["comp"] == ["batch"]
        parts = []
        body = self._body().decode()
        for number, path in enumerate(
            re.findall(r"^DELETE (\S+) HTTP", body, re.MULTILINE)
        ):
            key = unquote(path).removeprefix("/states/")
            status = "202 Accepted"
            if self.objects.pop(key, None) is None:
                status = "404 Not Found\r\nx-ms-error-code: BlobNotFound"
            parts.append(
                "--batch\r\nContent-Type: application/http\r\n"
                f"Content-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n\r\n"
            )
        self._answer(
            202,
            ("".join(parts) + "--batch--\r\n").encode(),
            **{"Content-Type": "multipart/mixed; boundary=batch"},
        )

    def listing(self) -> str:
        rows = "".join(
            f"<Blob><Name>{key}</Name><Properties><Last-Modified>{DATE}</Last-Modified>"
            f"<Content-Length>{len(data)}</Content-Length>"
            "<Content-Type>application/octet-stream</Content-Type><Etag>1</Etag>"
            "</Properties></Blob>"
            for key, data in sorted(self.objects.items())
        )
        return (
            f"<EnumerationResults><Blobs>{rows}</Blobs><NextMarker/>"
            "</EnumerationResults>"
        )


SERVERS = {
    "aws": ConditionalS3,
    "gcp": ConditionalCloudStorage,
    "azure": ConditionalBlobs,
}


@pytest.fixture(params=sorted(SERVERS))
def bucket(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, type[ConditionalBucket]]]:
    """The URL of a bucket, a server in place of its cloud, and an account there."""
    handler = type(
        "Handler",
        (SERVERS[request.param],),
        {"objects": {}, "parts": {}, "signed": [], "generations": {}},
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, text in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "GOOGLE_BASE_URL": address,
        "GOOGLE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ENDPOINT": address,
        "AZURE_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(
        "google.auth.default", lambda *_, **__: (GoogleAccount(), "project")
    )
    monkeypatch.setattr(
        "azure.identity.DefaultAzureCredential.get_token",
        lambda *_, **__: AccessToken("token-of-azure", 2**31),
    )
    yield URLS[request.param], handler
    server.shutdown()
    thread.join()
    server.server_close()


class GoogleAccount(Credentials):
    """An account of Google Cloud whose tokens nobody issues."""

    def refresh(self, _request: object) -> None:
        self.token = "token-of-google"
        self.expiry = None


SIGNATURES = {
    "s3": "/eu-west-1/s3/",
    "gs": "Bearer token-of-google",
    "azblob": "Bearer token-of-azure",
}


@pytest.mark.enable_socket
def test_two_people_share_a_stack_in_a_bucket(
    bucket: tuple[str, type[ConditionalBucket]], catalog, here: Path
) -> None:
    """The clouds are the same; the states are in the bucket alone."""
    url, server = bucket
    mine, theirs = (
        SimulatedEngine(world.default_world(), here, open_store(url, here))
        for _ in range(2)
    )
    plan = plan_of(catalog, TEXT.replace("CLOUD", "gcp"))
    mine.apply(plan, quiet)
    assert sorted(server.objects) == ["team/prod/.tonnage/chat.json"]
    signature = SIGNATURES[url.partition(":")[0]]
    assert server.signed
    assert all(signature in signed for signed in server.signed)
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
    read = theirs.store.read("chat")
    version = mine.store.write(
        "chat", b"newer", present(mine.store.read("chat")).version
    )
    with pytest.raises(LockedError, match="changed by another run"):
        theirs.store.write("chat", b"stale", present(read).version)
    mine.store.write("chat", present(read).content, version)
    theirs.destroy("chat", quiet, EVERYTHING)
    assert server.objects == {}
    assert objects(mine) == {}


@pytest.mark.enable_socket
def test_of_many_at_once_one_takes_the_lock(
    bucket: tuple[str, type[ConditionalBucket]], here: Path
) -> None:
    url, server = bucket
    all_have_tried = threading.Barrier(8)
    taken = []

    def take(number: int) -> None:
        store = open_store(url, here)
        try:
            with store.lock("chat", f"run {number}"):
                taken.append(number)
                all_have_tried.wait()
        except LockedError:
            all_have_tried.wait()

    threads = [threading.Thread(target=take, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    assert server.objects == {}, "the lock went with its run"


@pytest.mark.enable_socket
def test_what_was_done_is_listed_in_a_bucket(
    bucket: tuple[str, type[ConditionalBucket]], here: Path
) -> None:
    url, _ = bucket
    store = open_store(url, here)
    store.add_note("chat", "b", b"second")
    store.add_note("chat", "a", b"first")
    assert store.notes("chat") == [b"first", b"second"]


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
