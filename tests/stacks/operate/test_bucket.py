"""Buckets of real clouds, opened with their clients, and a server in place of S3."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import obstore
import pytest
from obstore import exceptions

from planner.errors import (
    CredentialError,
    MissingError,
    ResourceError,
    TonnageError,
    UsageError,
)
from stacks.operate.bucket import Bucket
from stacks.operate.bucket_error import bucket_errors
from stacks.operate.upload import LocalFile, TransferListener, upload

SILENT = TransferListener(lambda _: None, lambda *_: None)


class S3(BaseHTTPRequestHandler):
    """Objects and uploads in parts, each compared with its digest."""

    objects: dict[str, bytes]
    parts: dict[int, bytes]
    signed: list[str]

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        digest = self.headers.get("x-amz-checksum-sha256")
        if digest is not None:
            assert base64.b64decode(digest) == hashlib.sha256(body).digest()
        self.signed.append(self.headers["authorization"])
        return body

    def _answer(self, status: int, text: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/chat-models/")

    @property
    def _query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    def do_PUT(self) -> None:
        body = self._body()
        assert "x-amz-checksum-sha256" in self.headers
        if "partNumber" in self._query:
            self.parts[int(self._query["partNumber"][0])] = body
        else:
            self.objects[self._key] = body
        self._answer(200, ETag='"1"')

    def do_POST(self) -> None:
        body = self._body()
        if "delete" in self._query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for key in keys:
                self.objects.pop(unescape(key), None)
            rows = "".join(
                f"<Deleted><Key>{key}</Key></Deleted>" for key in keys
            )
            text = f"<DeleteResult>{rows}</DeleteResult>"
        elif "uploads" in self._query:
            text = "<R><UploadId>7</UploadId></R>"
        else:
            self.objects[self._key] = b"".join(
                self.parts[number] for number in sorted(self.parts)
            )
            text = "<R><ETag>2</ETag></R>"
        self._answer(200, text.encode())

    def do_GET(self) -> None:
        self._body()
        prefix = self._query.get("prefix", [""])[0]
        if "list-type" not in self._query:
            data = self.objects.get(self._key)
            if data is None:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            else:
                self._answer(
                    200,
                    data,
                    ETag='"1"',
                    **{"Last-Modified": "Mon, 23 Nov 2026 07:00:00 GMT"},
                )
            return
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>1</ETag>"
            "<LastModified>2026-11-23T07:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        self._answer(200, f"<L>{rows}</L>".encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[S3]]:
    """A server in place of S3, and an account there."""
    handler = type("Handler", (S3,), {"objects": {}, "parts": {}, "signed": []})
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
def test_an_upload_arrives_in_s3_part_by_part(
    tmp_path: Path, s3: type[S3]
) -> None:
    large, small = tmp_path / "large.bin", tmp_path / "odd name é.txt"
    large.write_bytes(bytes(range(256)) * (2**20 // 8))
    small.write_text("small")
    files = [
        LocalFile(path.name, path, path.stat().st_size)
        for path in (large, small)
    ]
    bucket = Bucket(provider="aws", name="chat-models", region="us-east-1")
    with bucket.errors():
        upload(bucket.folder("models/m/"), files, SILENT)
        again = upload(bucket.folder("models/m/"), files, SILENT)
    assert again.sent_files == 0
    assert s3.objects["models/m/large.bin"] == large.read_bytes()
    assert s3.objects["models/m/odd name é.txt"] == b"small"
    assert s3.objects.keys() == {
        "models/m/large.bin",
        "models/m/odd name é.txt",
        "models/m/tonnage-manifest.json",
    }
    assert len(s3.parts) > 1
    assert all("AKIDEXAMPLE" in signature for signature in s3.signed)
    assert all("/us-east-1/s3/" in signature for signature in s3.signed)


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_without_an_account_the_user_is_told_to_sign_in(
    cloud: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AZURE_CLIENT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    bucket = Bucket(provider=cloud, name="chat-models", region="us-east-1")
    with pytest.raises(CredentialError), bucket.errors():
        obstore.list(bucket.folder("models/m/")).collect()


@pytest.mark.parametrize(
    "config", ["[profile other]", "[profile", "[profile x]\nsource_profile=y"]
)
def test_a_profile_of_aws_that_cannot_be_used_is_no_bug(
    config: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.write_text(config + "\nrole_arn=arn:aws:iam::1:role/r\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))
    monkeypatch.setenv("AWS_PROFILE", "x")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    bucket = Bucket(provider="aws", name="chat-models", region="us-east-1")
    with pytest.raises(CredentialError):
        bucket.folder("models/m/")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (exceptions.PermissionDeniedError("403"), CredentialError),
        (exceptions.UnauthenticatedError("401"), CredentialError),
        (FileNotFoundError("no bucket"), MissingError),
        (exceptions.GenericError("503\n\nDebug source:\nRust"), ResourceError),
        (OSError("no route"), ResourceError),
        (ModuleNotFoundError("boto3"), UsageError),
        (PermissionError(13, "Permission denied", "w.bin"), UsageError),
    ],
)
def test_what_a_cloud_refuses_becomes_an_error_with_a_next_step(
    raised: Exception, error: type[TonnageError]
) -> None:
    bucket = Bucket(provider="aws", name="chat-models", region="r")
    with pytest.raises(error) as caught, bucket.errors():
        raise raised
    [problem] = caught.value.problems
    assert problem.next_step
    assert "Rust" not in problem.cause


def test_a_simulated_bucket_is_a_folder(tmp_path: Path) -> None:
    bucket = Bucket(
        provider="gcp", name="b", region="r", simulated_folder=tmp_path / "b"
    )
    obstore.put(bucket.folder("models/m/"), "config.json", b"{}")
    assert (tmp_path / "b/models/m/config.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("cloud", "word"),
    [
        ("aws", "s3:PutObject"),
        ("gcp", "roles/storage.objectUser on gs://stack-models"),
        ("azure", '--scope "$(az storage account show --name stack-models'),
    ],
)
def test_who_is_known_and_has_no_right_is_told_which(
    cloud: str, word: str
) -> None:
    """The owner of an account of Azure may not read its blobs without a role of their own."""
    with (
        pytest.raises(CredentialError) as caught,
        bucket_errors(cloud, "stack-models"),
    ):
        raise exceptions.PermissionDeniedError("403")
    [problem] = caught.value.problems
    assert problem.code == "permission"
    assert word in problem.next_step
    with (
        pytest.raises(CredentialError) as caught,
        bucket_errors(cloud, "stack-models"),
    ):
        raise exceptions.UnauthenticatedError("401")
    assert "sign in" in caught.value.problems[0].next_step
