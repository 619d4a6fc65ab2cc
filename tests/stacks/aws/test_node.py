"""Requests of a node to AWS, signed as the real client signs them."""

from __future__ import annotations

import datetime as dt

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as ClientCredentials

from stacks.aws.node import (
    Credentials,
    Target,
    open_cloud,
    signed_headers,
)
from stacks.runtime.vm.node.host import Answer, Host, RequestError

KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", "session+token/=")
NOW = dt.datetime(2026, 11, 22, 12, 30, 5, tzinfo=dt.UTC)
BUCKET = "https://models-1.s3.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("service", "method", "url", "body", "headers"),
    [
        ("s3", "GET", f"{BUCKET}/models/a%20b/c%2Bd.json", b"", {}),
        ("s3", "GET", f"{BUCKET}/x", b"", {"range": "bytes=0-9"}),
        ("s3", "GET", f"{BUCKET}/?list-type=2&prefix=groups%2Fa%20b", b"", {}),
        ("s3", "PUT", f"{BUCKET}/groups/p/0/1", b"{}", {"if-none-match": "*"}),
        ("s3", "PUT", f"{BUCKET}/k", b"x", {"if-match": '"abc"'}),
        ("s3", "PUT", f"{BUCKET}/k?partNumber=2&uploadId=u%2B1", b"part", {}),
        ("s3", "POST", f"{BUCKET}/%C3%A9?uploads=", b"", {}),
        (
            "autoscaling",
            "POST",
            "https://autoscaling.eu-west-1.amazonaws.com/",
            b"Action=TerminateInstanceInAutoScalingGroup&InstanceId=i-1",
            {"content-type": "application/x-www-form-urlencoded"},
        ),
        (
            "fsx",
            "POST",
            "https://fsx.eu-west-1.amazonaws.com/",
            b"{}",
            {
                "content-type": "application/x-amz-json-1.1",
                "x-amz-target": "AWSSimbaAPIService_v20180301.DescribeFileSystems",
            },
        ),
    ],
)
def test_a_request_is_signed_as_the_client_of_aws_signs_it(
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    method: str,
    url: str,
    body: bytes,
    headers: dict[str, str],
) -> None:
    own = signed_headers(
        KEYS,
        Target(service, "eu-west-1"),
        method,
        url,
        body,
        headers=headers,
        now=NOW,
    )
    monkeypatch.setattr(
        "botocore.auth.get_current_datetime",
        lambda **_: NOW.replace(tzinfo=None),
    )
    request = AWSRequest(method, url, headers, body)
    # Services other than S3 do not ask for the digest; we send it, and so sign it.
    request.headers["X-Amz-Content-SHA256"] = own["x-amz-content-sha256"]
    signer = S3SigV4Auth if service == "s3" else SigV4Auth
    signer(
        ClientCredentials(KEYS.access_key, KEYS.secret_key, KEYS.token),
        service,
        "eu-west-1",
    ).add_auth(request)
    assert own["authorization"] == request.headers["Authorization"]


class QuietHost(Host):
    """A machine of which nothing is announced, at a time."""

    def __init__(self, now: dt.datetime) -> None:
        self.now = now

    def utc(self) -> dt.datetime:
        return self.now

    def now_s(self) -> float:
        return self.now.timestamp()

    def send(self, method: str, *_: object, **__: object) -> Answer:
        if method == "PUT":
            return Answer(200, {}, b"token")
        raise RequestError(404, "nothing is announced")


@pytest.mark.parametrize(
    ("ends", "notice"),
    [
        ("", ""),
        ("2026-11-22T12:30:06+00:00", ""),
        ("2026-11-22T12:30:05+00:00", "the capacity block ends"),
    ],
)
def test_the_end_of_a_capacity_block_is_known_before_the_cloud_says_so(
    ends: str, notice: str
) -> None:
    place = {"region": "r", "bucket": "b", "group": "g", "stack": "s"}
    assert (
        open_cloud(QuietHost(NOW), {**place, "ends": ends}).notice() == notice
    )
