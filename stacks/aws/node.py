"""AWS: the instance metadata service, Auto Scaling, S3, CloudWatch and FSx."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

from stacks.runtime.vm.node.cloud import (
    TELL_TIMEOUT_S,
    Conflict,
    Kept,
    Listed,
    Stored,
    block_notice,
)
from stacks.runtime.vm.node.host import BYTES_TYPE, RequestError
from stacks.runtime.vm.node.unique import fill_unique

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from stacks.runtime.vm.node.cloud import Line
    from stacks.runtime.vm.node.host import Answer, Host

METADATA_URL = "http://169.254.169.254/latest"
TOKEN_S = 21_600
# An upload in parts has at most 10,000 of them, each of 5 MiB at least.
PART_BYTES = 64 * 2**20
MOST_PARTS = 10_000
CONFLICTS = (409, 412)
GONE = ("DELETING", "FAILED")
# Where a volume is attached, and the link that the system makes of its id.
HOME_DEVICE = "/dev/sdg"
HOME_LINK = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_"


class Credentials(NamedTuple):
    """Keys of a role, which expire."""

    access_key: str
    secret_key: str
    token: str


class Target(NamedTuple):
    """What a request is signed for."""

    service: str
    region: str


def open_cloud(machine: Host, settings: Mapping[str, Any]) -> AwsApi:
    """Return AWS as this machine sees it."""
    return AwsApi(machine, settings)


class AwsApi:
    """AWS. Settings: region, bucket, group, stack, and when a capacity block ends its work."""

    def __init__(self, machine: Host, settings: Mapping[str, Any]) -> None:
        self._machine = machine
        self._region: str = settings["region"]
        self._bucket: str = settings["bucket"]
        self._group: str = settings["group"]
        self._stack: str = settings["stack"]
        self._ends: str = settings.get("ends", "")
        self._session, self._keys = Kept(machine), Kept(machine)

    def node_name(self) -> str:
        """Return the instance id."""
        return self._metadata("meta-data/instance-id")

    def address(self) -> str:
        """Return the private address of the first interface."""
        return self._metadata("meta-data/local-ipv4")

    def handle(self) -> str:
        """Return the instance id."""
        return self.node_name()

    def give_back(self, handle: str) -> None:
        """Terminate an instance and lower the desired capacity."""
        self._terminate(handle, decrement=True)

    def size(self) -> int:
        """Return the desired capacity of the group."""
        answer = self._query(
            "autoscaling",
            {
                "Action": "DescribeAutoScalingGroups",
                "Version": "2011-01-01",
                "AutoScalingGroupNames.member.1": self._group,
            },
        )
        [capacity] = _texts(answer.body, "DesiredCapacity")
        return int(capacity)

    def resize(self, nodes: int) -> None:
        """Set the desired capacity of the group, also while it cools down."""
        self._query(
            "autoscaling",
            {
                "Action": "SetDesiredCapacity",
                "Version": "2011-01-01",
                "AutoScalingGroupName": self._group,
                "DesiredCapacity": str(nodes),
                "HonorCooldown": "false",
            },
        )

    def replace(self) -> None:
        """Terminate the instance; Auto Scaling starts another one."""
        self._terminate(self.handle(), decrement=False)

    def _terminate(self, instance: str, *, decrement: bool) -> None:
        self._query(
            "autoscaling",
            {
                "Action": "TerminateInstanceInAutoScalingGroup",
                "Version": "2011-01-01",
                "InstanceId": instance,
                "ShouldDecrementDesiredCapacity": str(decrement).lower(),
            },
        )

    def notice(self) -> str:
        """Return that a capacity block ends, or the action of a spot notice, or a rebalance."""
        return (
            block_notice(self._machine, self._ends)
            or self._news("meta-data/spot/instance-action")
            or self._news("meta-data/events/recommendations/rebalance")
        )

    def _news(self, name: str) -> str:
        """Return a part of the metadata that is there only when something is announced."""
        try:
            return self._metadata(name)
        except RequestError as error:
            if error.status == 404:
                return ""
            raise

    def show(self, phase: str) -> None:
        """Do nothing: nobody asks."""

    def publish(self, metrics: Mapping[str, float]) -> None:
        """Put values into the namespace tonnage of CloudWatch."""
        values = {
            "Action": "PutMetricData",
            "Version": "2010-08-01",
            "Namespace": "tonnage",
        }
        for number, (name, amount) in enumerate(sorted(metrics.items()), 1):
            member = f"MetricData.member.{number}"
            values |= {
                f"{member}.MetricName": name,
                f"{member}.Value": f"{amount:g}",
                f"{member}.Dimensions.member.1.Name": "AutoScalingGroupName",
                f"{member}.Dimensions.member.1.Value": self._group,
            }
        self._query("monitoring", values)

    def tell(self, lines: Sequence[Line]) -> None:
        """Put lines into the stream of this machine, which begins with its first line."""
        stream = {
            "logGroupName": f"/tonnage/{self._stack}",
            "logStreamName": f"{self._group}/{self.node_name()}",
        }
        events = [
            {
                "timestamp": line.time_us // 1000,
                "message": f"{line.source}: {line.text}",
            }
            for line in sorted(lines, key=lambda line: line.time_us)
        ]
        try:
            self._logs("PutLogEvents", {**stream, "logEvents": events})
        except RequestError as error:
            if "ResourceNotFoundException" not in str(error):
                raise
            self._logs("CreateLogStream", stream)
            self._logs("PutLogEvents", {**stream, "logEvents": events})

    def _logs(self, action: str, document: Mapping[str, Any]) -> None:
        self._signed(
            "logs",
            "POST",
            self._service_url("logs"),
            body=json.dumps(document).encode(),
            headers={
                "content-type": "application/x-amz-json-1.1",
                "x-amz-target": f"Logs_20140328.{action}",
            },
            timeout_s=TELL_TIMEOUT_S,
        )

    def home_disk(self) -> list[str]:
        """Attach a volume of the stack that is kept."""
        machine = self.node_name()
        volumes = self._homes("attachment.instance-id", machine)
        for volume in () if volumes else self._homes("status", "available"):
            try:
                self._ec2(
                    "AttachVolume",
                    {
                        "VolumeId": volume,
                        "InstanceId": machine,
                        "Device": HOME_DEVICE,
                    },
                )
            except RequestError as error:
                # Another machine was faster.
                if error.status != 400:
                    raise
                continue
            volumes = [volume]
            break
        if not volumes:
            raise RequestError(409, "other machines have all disks")
        return [HOME_LINK + volumes[0].replace("-", "")]

    def _homes(self, filter_name: str, text: str) -> list[str]:
        """Return the volumes of the stack that are kept and pass a filter."""
        filters = ("tag:tonnage-home", self._stack), (filter_name, text)
        values = {}
        for number, (name, value) in enumerate(filters, 1):
            values[f"Filter.{number}.Name"] = name
            values[f"Filter.{number}.Value.1"] = value
        answer = self._ec2("DescribeVolumes", values)
        return sorted(set(_texts(answer.body, "volumeId")))

    def _ec2(self, action: str, values: Mapping[str, str]) -> Answer:
        return self._query(
            "ec2", {"Action": action, "Version": "2016-11-15", **values}
        )

    def secret(self, name: str) -> str:
        """Return a secret of Secrets Manager."""
        answer = self._signed(
            "secretsmanager",
            "POST",
            self._service_url("secretsmanager"),
            body=json.dumps({"SecretId": name}).encode(),
            headers={
                "content-type": "application/x-amz-json-1.1",
                "x-amz-target": "secretsmanager.GetSecretValue",
            },
        )
        text: str = answer.document()["SecretString"]
        return text

    def file_system(self) -> str:
        """Find the file system by the tag of the stack: its name is known only once it exists."""
        tag = {"Key": "tonnage-stack", "Value": self._stack}
        page: dict[str, Any] = {"NextToken": ""}
        while "NextToken" in page:
            query = (
                {"NextToken": page["NextToken"]} if page["NextToken"] else {}
            )
            page = self._signed(
                "fsx",
                "POST",
                self._service_url("fsx"),
                body=json.dumps(query).encode(),
                headers={
                    "content-type": "application/x-amz-json-1.1",
                    "x-amz-target": "AWSSimbaAPIService_v20180301.DescribeFileSystems",
                },
            ).document()
            for system in page["FileSystems"]:
                # One of an earlier stack of the name may still be on its way out.
                if (
                    tag in system.get("Tags", [])
                    and system["Lifecycle"] not in GONE
                ):
                    name = system["LustreConfiguration"]["MountName"]
                    return f"{system['DNSName']}@tcp:/{name}"
        raise RequestError(404, f"no file system has the tag of {self._stack}")

    def fill_files(self) -> None:
        """Do nothing: objects of the dataset come when they are first read."""

    def read(self, key: str, start: int = 0, size: int = 0) -> Stored | None:
        """Return an object of the bucket, or a range of its bytes."""
        headers = {"range": f"bytes={start}-{start + size - 1}"} if size else {}
        try:
            answer = self._object("GET", key, headers=headers)
        except RequestError as error:
            if error.status == 404:
                return None
            raise
        return Stored(answer.body, answer.headers["etag"])

    def write(
        self, key: str, data: bytes, *, version: str | None = None
    ) -> str:
        """Write an object, on the condition of its version where one is given."""
        headers = {}
        if version is not None:
            headers = (
                {"if-match": version} if version else {"if-none-match": "*"}
            )
        try:
            answer = self._object("PUT", key, body=data, headers=headers)
        except RequestError as error:
            # An object that is gone is another version; with none, the bucket is gone.
            if version is not None and (
                error.status in CONFLICTS or (version and error.status == 404)
            ):
                raise Conflict(key) from error
            raise
        return answer.headers["etag"]

    def write_file(
        self, key: str, path: str, pulse: Callable[[], None]
    ) -> None:
        """Write an object in parts; it is there once all of them are."""
        file_path = self._machine.path(path)
        size = file_path.stat().st_size
        if size <= PART_BYTES:
            self.write(key, file_path.read_bytes())
            return
        part_bytes = max(PART_BYTES, math.ceil(size / MOST_PARTS))
        started = self._object("POST", key, "uploads=")
        upload = urlencode({"uploadId": _texts(started.body, "UploadId")[0]})
        tags: list[str] = []
        with file_path.open("rb") as stream:
            while part := stream.read(part_bytes):
                query = f"partNumber={len(tags) + 1}&{upload}"
                answer = self._object("PUT", key, query, body=part)
                tags.append(answer.headers["etag"])
                pulse()
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
            for number, tag in enumerate(tags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>"
        finished = self._object("POST", key, upload, body=body.encode())
        # A failure late in the work has the status of a success.
        if b"<Error>" in finished.body:
            raise RequestError(500, finished.body.decode("utf-8", "replace"))

    def delete(self, key: str) -> None:
        """Delete an object; S3 calls one that is missing deleted."""
        self._object("DELETE", key)

    def list(self, prefix: str) -> list[Listed]:
        """Return the objects under a prefix, page by page."""
        objects: list[Listed] = []
        query = {"list-type": "2", "prefix": prefix}
        while True:
            answer = self._object("GET", "", urlencode(query, quote_via=quote))
            objects += [
                Listed(key, int(size), version)
                for key, size, version in zip(
                    _texts(answer.body, "Key"),
                    _texts(answer.body, "Size"),
                    _texts(answer.body, "ETag"),
                    strict=True,
                )
            ]
            tokens = _texts(answer.body, "NextContinuationToken")
            if not tokens:
                return objects
            query["continuation-token"] = tokens[0]

    def _object(
        self,
        method: str,
        key: str,
        query: str = "",
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        # After the first time there are no digits to fill in.
        self._bucket = fill_unique(self._bucket, self._account)
        url = f"https://{self._bucket}.s3.{self._region}.amazonaws.com/{quote(key)}"
        return self._signed(
            "s3",
            method,
            f"{url}?{query}" if query else url,
            body=body,
            headers={"content-type": BYTES_TYPE, **(headers or {})},
        )

    def _account(self) -> str:
        """Return the number of the account that the machine is in."""
        document = json.loads(
            self._metadata("dynamic/instance-identity/document")
        )
        return str(document["accountId"])

    def _query(self, service: str, values: Mapping[str, str]) -> Answer:
        return self._signed(
            service,
            "POST",
            self._service_url(service),
            body=urlencode(sorted(values.items())).encode(),
            headers={"content-type": "application/x-www-form-urlencoded"},
        )

    def _service_url(self, service: str) -> str:
        return f"https://{service}.{self._region}.amazonaws.com/"

    def _signed(
        self,
        service: str,
        method: str,
        url: str,
        *,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 300,
    ) -> Answer:
        return self._machine.send(
            method,
            url,
            signed_headers(
                self._keys.get(self._credentials),
                Target(service, self._region),
                method,
                url,
                body,
                headers=dict(headers or {}),
                now=self._machine.utc(),
            ),
            body if method in ("POST", "PUT") else None,
            timeout_s=timeout_s,
        )

    def _credentials(self) -> Credentials:
        folder = "meta-data/iam/security-credentials/"
        role = self._metadata(folder).strip()
        keys = json.loads(self._metadata(folder + role))
        return Credentials(
            keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"]
        )

    def _open_session(self) -> str:
        answer = self._machine.send(
            "PUT",
            f"{METADATA_URL}/api/token",
            {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)},
        )
        return answer.body.decode()

    def _metadata(self, name: str) -> str:
        token = self._session.get(self._open_session)
        answer = self._machine.send(
            "GET", f"{METADATA_URL}/{name}", {"X-aws-ec2-metadata-token": token}
        )
        return answer.body.decode()


def _texts(body: bytes, tag: str) -> list[str]:
    """Return the texts of all elements of a name, whatever their namespace."""
    return [
        element.text or ""
        for element in ET.fromstring(body).iter()  # noqa: S314 - from the cloud itself
        if element.tag.rpartition("}")[2] == tag
    ]


def signed_headers(
    credentials: Credentials,
    target: Target,
    method: str,
    url: str,
    body: bytes,
    *,
    headers: dict[str, str],
    now: dt.datetime,
) -> dict[str, str]:
    """Return the headers of a request with its signature.

    signature = HMAC(key(date, region, service), time + scope + digest of the request)

    Source: AWS documentation, "Create a signed AWS API request".
    """
    parts = urlsplit(url)
    digest = hashlib.sha256(body).hexdigest()
    timestamp = now.strftime("%Y%m%dT%H%M%SZ")
    sent_headers = {
        **{name.lower(): text.strip() for name, text in headers.items()},
        "host": parts.netloc,
        "x-amz-content-sha256": digest,
        "x-amz-date": timestamp,
        "x-amz-security-token": credentials.token,
    }
    names = ";".join(sorted(sent_headers))
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(text, safe='-_.~')}"
        for name, text in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    canonical_request = "\n".join(
        [
            method,
            parts.path or "/",
            query,
            *(f"{name}:{sent_headers[name]}" for name in sorted(sent_headers)),
            "",
            names,
            digest,
        ]
    )
    scope = f"{timestamp[:8]}/{target.region}/{target.service}/aws4_request"
    signed_text = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            timestamp,
            scope,
            hashlib.sha256(canonical_request.encode()).hexdigest(),
        ]
    )
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    sent_headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={names}, Signature={_hmac(key, signed_text).hex()}"
    )
    return sent_headers


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
