"""Three clouds as a machine sees them: metadata, objects, groups and metrics, in memory."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from stacks.runtime.vm.node.host import Answer, RequestError
from stacks.runtime.vm.node.unique import fill_unique

if TYPE_CHECKING:
    from tests.stacks.runtime.vm.sandbox import SandboxMachine, World


# A bucket, or an account, that is not the stack's.
FOREIGN = "teamweights"
# Whose machines they are, as each cloud tells them.
ACCOUNTS = {"aws": "1", "gcp": "p", "azure": "s"}


def answer(
    world: World,
    machine: SandboxMachine,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """What a cloud answers to a request of a machine."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    call = Call(
        world, machine, method, parts.netloc, parts.path, query, headers, body
    )
    found = {"aws": aws, "gcp": gcp, "azure": azure}[world.provider](call)
    if isinstance(found, Answer):
        return found
    text = found if isinstance(found, bytes) else json.dumps(found).encode()
    return Answer(200, {}, text)


class Call:
    """A request."""

    def __init__(
        self, world, machine, method, host, path, query, headers, body
    ) -> None:
        self.world: World = world
        self.machine: SandboxMachine = machine
        self.method: str = method
        self.host: str = host
        self.path: str = path
        self.query: dict[str, str] = query
        self.headers = {name.lower(): text for name, text in headers.items()}
        self.body: bytes = body

    @property
    def stack(self) -> str:
        stack: str = self.machine.settings["cloud"]["stack"]
        return stack

    @property
    def group(self) -> str:
        group: str = self.machine.settings["cloud"]["group"]
        return group

    @property
    def own_store(self) -> str:
        """The bucket, or the account, of the stack: named for the account of the machine."""
        settings = self.machine.settings["cloud"]
        name: str = settings.get("bucket") or settings["account"]
        return fill_unique(name, lambda: ACCOUNTS[self.world.provider])

    @property
    def objects(self) -> dict[str, tuple[bytes, int]]:
        """Those of the bucket that is asked: of the stack, or of somebody else, to be read."""
        place = unquote(self.host + self.path)
        if FOREIGN not in place:
            assert self.own_store in place
            return self.world.objects
        assert self.method == "GET"
        return self.world.foreign

    def stored(self, key: str) -> tuple[bytes, int]:
        if key not in self.objects:
            raise RequestError(404, "no such object")
        return self.objects[key]

    def part(self, key: str, header: str) -> tuple[bytes, int]:
        data, version = self.stored(key)
        span = self.headers.get(header, "")
        if span:
            start, _, end = span.removeprefix("bytes=").partition("-")
            data = data[int(start) : int(end) + 1]
        return data, version

    def put(self, key: str, *, wanted: int | None) -> int:
        """Write an object, when its version is `wanted` (0 for none)."""
        before = self.world.objects.get(key, (b"", 0))[1]
        if wanted is not None and wanted != before:
            raise RequestError(412, "precondition failed")
        return self.world.put(key, self.body)

    def leave(self, name: str, *, replaced: bool = False) -> None:
        """End a machine of the group."""
        self.world.end(self.known(name), replaced=replaced)

    def secret(self, name: str) -> str:
        if name not in self.world.secrets:
            raise RequestError(403, "no such secret, or no right to read it")
        return self.world.secrets[name]

    def known(self, name: str) -> SandboxMachine:
        """The machine of a name; one that is gone is not known any more."""
        for machine in self.world.machines:
            if machine.name.endswith(name) and machine.is_up:
                return machine
        raise RequestError(400, f"ValidationError: {name} was not found")

    def condition(self) -> int | None:
        """The version that headers of conditions ask for."""
        if "if-none-match" in self.headers:
            return 0
        text = self.headers.get("if-match")
        return int(text.strip('"')) if text else None


def aws(call: Call) -> Any:
    if call.host == "169.254.169.254":
        return _aws_metadata(call)
    assert "authorization" in call.headers
    if ".s3." in call.host:
        return _s3(call)
    return {
        "autoscaling": _auto_scaling,
        "ec2": _ec2,
        "fsx": _fsx,
        "logs": _cloudwatch_logs,
        "monitoring": _cloudwatch,
        "secretsmanager": _secrets_manager,
    }[call.host.partition(".")[0]](call)


def _auto_scaling(call: Call) -> Any:
    values = dict(parse_qsl(call.body.decode()))
    if values["Action"] == "DescribeAutoScalingGroups":
        assert values["AutoScalingGroupNames.member.1"] == call.group
        size = f"<DesiredCapacity>{call.world.wished}</DesiredCapacity>"
        return f"<A><G><member>{size}</member></G></A>".encode()
    if values["Action"] == "SetDesiredCapacity":
        assert values["AutoScalingGroupName"] == call.group
        call.world.resize(call.machine, int(values["DesiredCapacity"]))
        return b""
    assert values["Action"] == "TerminateInstanceInAutoScalingGroup"
    call.leave(
        values["InstanceId"],
        replaced=values["ShouldDecrementDesiredCapacity"] == "false",
    )
    return b""


def _ec2(call: Call) -> Any:
    values = dict(parse_qsl(call.body.decode()))
    if values["Action"] == "AttachVolume":
        assert values["InstanceId"] == call.machine.name
        call.machine.attach_home(
            values["VolumeId"],
            "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_"
            + values["VolumeId"].replace("-", ""),
        )
        return b"<A/>"
    assert values["Action"] == "DescribeVolumes"
    assert values["Filter.1.Name"] == "tag:tonnage-home"
    wants_own = values["Filter.2.Name"] == "attachment.instance-id"
    rows = "".join(
        f"<item><volumeId>{name}</volumeId></item>"
        for name, home in call.world.homes.items()
        if home.holder is (call.machine if wants_own else None)
    )
    space = "http://ec2.amazonaws.com/doc/2016-11-15/"
    return f'<D xmlns="{space}"><volumeSet>{rows}</volumeSet></D>'.encode()


def _cloudwatch(call: Call) -> Any:
    values = dict(parse_qsl(call.body.decode()))
    call.world.publish(
        call.machine,
        {
            values[f"MetricData.member.{n}.MetricName"]: float(
                values[f"MetricData.member.{n}.Value"]
            )
            for n in range(1, 20)
            if f"MetricData.member.{n}.Value" in values
        },
    )
    return b""


def _secrets_manager(call: Call) -> Any:
    assert call.headers["x-amz-target"] == "secretsmanager.GetSecretValue"
    return {"SecretString": call.secret(json.loads(call.body)["SecretId"])}


def _fsx(call: Call) -> Any:
    return {
        "FileSystems": [
            {
                "DNSName": "fs",
                "Lifecycle": "AVAILABLE",
                "LustreConfiguration": {"MountName": "m"},
                "Tags": [{"Key": "tonnage-stack", "Value": call.world.stack}],
            }
        ]
    }


def _cloudwatch_logs(call: Call) -> Any:
    document = json.loads(call.body)
    assert document["logGroupName"] == f"/tonnage/{call.stack}"
    stream = document["logStreamName"]
    assert (
        stream
        == f"{call.machine.settings['cloud']['group']}/{call.machine.name}"
    )
    if call.headers["x-amz-target"] == "Logs_20140328.CreateLogStream":
        call.world.log_streams.add(stream)
        return b""
    if stream not in call.world.log_streams:
        raise RequestError(400, '{"__type":"ResourceNotFoundException"}')
    events = document["logEvents"]
    times = [event["timestamp"] for event in events]
    assert times == sorted(times)
    call.world.take_lines(call, [event["message"] for event in events])
    return {}


def _aws_metadata(call: Call) -> bytes:
    if call.method == "PUT":
        return b"token"
    assert call.headers["x-aws-ec2-metadata-token"] == "token"
    role = "meta-data/iam/security-credentials/"
    keys = {"AccessKeyId": "A", "SecretAccessKey": "s", "Token": "t"}
    texts = {
        "meta-data/instance-id": call.machine.name,
        "meta-data/local-ipv4": call.machine.address,
        "dynamic/instance-identity/document": json.dumps(
            {"accountId": ACCOUNTS["aws"]}
        ),
        role: "node",
        f"{role}node": json.dumps(keys),
    }
    if call.machine.notice:
        texts["meta-data/spot/instance-action"] = '{"action": "terminate"}'
    name = call.path.removeprefix("/latest/")
    if name not in texts:
        raise RequestError(404, name)
    return texts[name].encode()


def _s3(call: Call) -> Any:
    key = unquote(call.path[1:])
    if call.query.get("list-type") == "2":
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size>"
            f"<ETag>&quot;{version}&quot;</ETag></Contents>"
            for name, (data, version) in sorted(call.objects.items())
            if name.startswith(call.query["prefix"])
        )
        return f'<L xmlns="http://s3.amazonaws.com/doc/">{rows}</L>'.encode()
    if call.method == "GET":
        data, version = call.part(key, "range")
        return Answer(200, {"etag": f'"{version}"'}, data)
    if call.method == "DELETE":
        call.world.objects.pop(key, None)
        return b""
    version = call.put(key, wanted=call.condition())
    return Answer(200, {"etag": f'"{version}"'}, b"")


def gcp(call: Call) -> Any:
    if call.host == "metadata.google.internal":
        return _gcp_metadata(call)
    assert call.headers["authorization"] == "Bearer t"
    return {
        "storage.googleapis.com": _gcs,
        "logging.googleapis.com": _cloud_logging,
        "monitoring.googleapis.com": _cloud_monitoring,
        "compute.googleapis.com": _gcp_instance,
        "lustre.googleapis.com": _managed_lustre,
        "secretmanager.googleapis.com": _secret_manager,
    }[call.host](call)


def _cloud_monitoring(call: Call) -> Any:
    series = json.loads(call.body)["timeSeries"]
    call.world.publish(
        call.machine,
        {
            s["metric"]["type"].rpartition("/")[2].title(): s["points"][0][
                "value"
            ]["doubleValue"]
            for s in series
        },
    )
    return {}


def _managed_lustre(call: Call) -> Any:
    if call.path.endswith(":importData"):
        return {"name": "operations/1", "done": True}
    return {"mountPoint": "10.0.0.9@tcp:/data"}


def _secret_manager(call: Call) -> Any:
    name = call.path.removeprefix("/v1/projects/p/secrets/")
    text = call.secret(name.removesuffix("/versions/latest:access"))
    return {"payload": {"data": base64.b64encode(text.encode()).decode()}}


def _cloud_logging(call: Call) -> Any:
    document = json.loads(call.body)
    assert document["labels"]["stack"] == call.stack
    entries = {e["insertId"]: e for e in document["entries"]}
    call.world.take_lines(
        call,
        [
            f"{e['labels']['source']}: {e['textPayload']}"
            for key, e in entries.items()
            if key not in call.world.told_keys
        ],
    )
    call.world.told_keys |= entries.keys()
    return {}


def _gcp_instance(call: Call) -> Any:
    verb = call.path.rpartition("/")[2]
    if "/disks/" in call.path:
        holder = call.world.homes[verb].holder
        path = (
            "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances"
        )
        return {"users": [f"{path}/{holder.name}"]} if holder else {}
    if verb == "attachDisk":
        sent = json.loads(call.body)
        assert call.path.split("/")[-2] == call.machine.name
        name = sent["source"].removeprefix("projects/p/zones/z/disks/")
        call.machine.attach_home(
            name, f"/dev/disk/by-id/google-{sent['deviceName']}"
        )
        return {"name": "operation-1"}
    if "/instanceGroupManagers/" in call.path and call.path.split("/")[-1] in (
        call.group,
        "resize",
    ):
        if call.method == "GET":
            return {"targetSize": call.world.wished}
        call.world.resize(call.machine, int(call.query["size"]))
        return {}
    if call.method == "GET":
        is_stopped = call.known(verb).is_stopped
        return {"status": "TERMINATED" if is_stopped else "RUNNING"}
    instance = json.loads(call.body)["instances"][0]
    call.leave(
        instance.rpartition("/")[2], replaced=verb == "recreateInstances"
    )
    return {}


def _gcp_metadata(call: Call) -> bytes:
    assert call.headers["metadata-flavor"] == "Google"
    name = call.path.removeprefix("/computeMetadata/v1/")
    return {
        "instance/id": call.machine.name,
        "instance/name": call.machine.name,
        "instance/zone": "projects/1/zones/z",
        "instance/network-interfaces/0/ip": call.machine.address,
        "instance/preempted": "TRUE" if call.machine.notice else "FALSE",
        "instance/maintenance-event": "NONE",
        "instance/service-accounts/default/token": '{"access_token": "t"}',
        "project/project-id": ACCOUNTS["gcp"],
    }[name].encode()


def _gcs(call: Call) -> Any:
    if call.path.startswith("/upload/"):
        wanted = call.query.get("ifGenerationMatch")
        version = call.put(
            call.query["name"], wanted=None if wanted is None else int(wanted)
        )
        return {"generation": str(version)}
    _, _, name = call.path.partition("/o/")
    if not name:
        return {
            "items": [
                {
                    "name": key,
                    "size": str(len(data)),
                    "generation": str(version),
                }
                for key, (data, version) in sorted(call.objects.items())
                if key.startswith(call.query["prefix"])
            ]
        }
    key = unquote(name)
    if call.method == "DELETE":
        call.stored(key)
        del call.world.objects[key]
        return b""
    data, version = call.part(key, "range")
    return Answer(200, {"x-goog-generation": str(version)}, data)


def azure(call: Call) -> Any:
    if call.host == "169.254.169.254":
        return _azure_metadata(call)
    assert call.headers["authorization"] == "Bearer t"
    return {
        "blob.core.windows.net": _blobs,
        "monitoring.azure.com": _azure_monitor,
        "vault.azure.net": _key_vault,
        "ingest.monitor.azure.com": _log_ingestion,
        "azure.com": _azure_management,
    }[call.host.partition(".")[2]](call)


def _azure_monitor(call: Call) -> Any:
    data = json.loads(call.body)["data"]["baseData"]
    call.world.publish(call.machine, {data["metric"]: data["series"][0]["sum"]})
    return b""


def _key_vault(call: Call) -> Any:
    vault, name = call.host.partition(".")[0], call.path.rpartition("/")[2]
    return {"value": call.secret(f"{vault}/{name}")}


def _azure_management(call: Call) -> Any:
    if call.path.endswith("/delete"):
        [instance] = json.loads(call.body)["instanceIds"]
        call.leave(instance)
        return b""
    if call.path.endswith(f"/virtualMachineScaleSets/{call.group}"):
        if call.method == "PATCH":
            nodes = json.loads(call.body)["sku"]["capacity"]
            call.world.resize(call.machine, nodes)
        return {"sku": {"capacity": call.world.wished}}
    if call.path.endswith("/redeploy"):
        call.world.move(call.known(call.path.split("/")[-2]))
        return b""
    if "/Microsoft.Compute/disks/" in call.path:
        name = call.path.rpartition("/")[2]
        holder = call.world.homes[name].holder
        owner = f"/x/virtualMachines/{holder.name.upper()}" if holder else ""
        return {"id": call.path, **({"managedBy": owner} if owner else {})}
    if call.path.endswith("/attachDetachDataDisks"):
        [disk] = json.loads(call.body)["dataDisksToAttach"]
        assert disk["deleteOption"] == "Detach"
        call.machine.attach_home(
            disk["diskId"].rpartition("/")[2],
            f"/dev/disk/azure/data/by-lun/{disk['lun']}",
        )
        return b""
    assert "/Microsoft.Insights/" not in call.path or call.path.endswith(
        f"/{call.stack}-logs"
    )
    return {
        "properties": {
            "clientInfo": {"mgsAddress": "10.0.0.9"},
            "immutableId": "dcr-1",
            "logsIngestion": {"endpoint": "https://e.ingest.monitor.azure.com"},
        }
    }


def _log_ingestion(call: Call) -> Any:
    assert call.path == "/dataCollectionRules/dcr-1/streams/Custom-Tonnage"
    assert call.headers["content-type"] == "application/json"
    rows = json.loads(gzip.decompress(call.body))
    assert all(row["Machine"] == call.machine.name for row in rows)
    call.world.take_lines(
        call, [f"{row['Source']}: {row['Line']}" for row in rows]
    )
    return Answer(204, {}, b"")


def _azure_metadata(call: Call) -> Any:
    assert call.headers["metadata"] == "true"
    name = call.path.removeprefix("/metadata/")
    event = {"Resources": [call.machine.name], "EventType": "Preempt"}
    neighbour = {"Resources": ["somebody_9"], "EventType": "Preempt"}
    return {
        "instance/compute": {
            "vmId": call.machine.name,
            "name": call.machine.name,
            "subscriptionId": ACCOUNTS["azure"],
            "resourceGroupName": "g",
        },
        "instance/network/interface": [
            {
                "ipv4": {
                    "ipAddress": [{"privateIpAddress": call.machine.address}]
                }
            }
        ],
        "identity/oauth2/token": {"access_token": "t"},
        "scheduledevents": {
            "Events": [event if call.machine.notice else neighbour]
        },
    }[name]


def _blobs(call: Call) -> Any:
    container, _, name = call.path[1:].partition("/")
    key = unquote(name)
    if call.query.get("comp") == "list":
        rows = "".join(
            f"<Blob><Name>{escape(blob)}</Name><Properties>"
            f"<Content-Length>{len(data)}</Content-Length><Etag>{version}</Etag>"
            "</Properties></Blob>"
            for blob, (data, version) in sorted(call.objects.items())
            if blob.startswith(call.query["prefix"])
        )
        text = f"<E><Blobs>{rows}</Blobs><NextMarker /></E>"
        return b"\xef\xbb\xbf" + text.encode()
    is_read_only = key.startswith(("models/", "job/"))
    own = "models" if is_read_only else "work"
    assert container == ("llms" if FOREIGN in call.host else own)
    if call.method == "GET":
        data, version = call.part(key, "x-ms-range")
        return Answer(200, {"etag": f'"{version}"'}, data)
    if call.method == "DELETE":
        call.stored(key)
        del call.world.objects[key]
        return b""
    version = call.put(key, wanted=call.condition())
    return Answer(200, {"etag": f'"{version}"'}, b"")
