"""Google Cloud: the metadata server, managed groups, Cloud Storage, Monitoring and Lustre."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from stacks.runtime.vm.node.cloud import (
    TELL_TIMEOUT_S,
    Conflict,
    Kept,
    Listed,
    Stored,
    block_notice,
)
from stacks.runtime.vm.node.host import RequestError
from stacks.runtime.vm.node.unique import fill_unique

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stacks.runtime.vm.node.cloud import Line
    from stacks.runtime.vm.node.host import Answer, Host

METADATA_URL = "http://metadata.google.internal/computeMetadata/v1"
COMPUTE_URL = "https://compute.googleapis.com/compute/v1"
STORAGE_URL = "https://storage.googleapis.com"
LUSTRE_URL = "https://lustre.googleapis.com/v1"
POLL_S = 30.0
PART_BYTES = 64 * 2**20  # a multiple of 256 KiB, as resumable uploads want
NO_OBJECT = "0"
HOME_DEVICE = "tonnage-home"


def open_cloud(machine: Host, settings: Mapping[str, Any]) -> GcpApi:
    """Return Google Cloud as this machine sees it."""
    return GcpApi(machine, settings)


class GcpApi:
    """Google Cloud.

    Settings: stack, bucket, group, metrics, file_system, dataset, homes, and when a capacity block
    ends its work.
    """

    def __init__(self, machine: Host, settings: Mapping[str, Any]) -> None:
        self._machine = machine
        self._bucket: str = settings["bucket"]
        self._group: str = settings["group"]
        self._stack: str = settings["stack"]
        self._metrics: str = settings["metrics"]
        self._file_system: str = settings["file_system"]
        self._dataset: str = settings["dataset"]
        self._homes: list[str] = settings["homes"]
        self._ends: str = settings.get("ends", "")
        self._token = Kept(machine)

    def node_name(self) -> str:
        """Return the number of the instance: a name is used again after a repair."""
        return self._metadata("instance/id")

    def address(self) -> str:
        """Return the address of the first interface."""
        return self._metadata("instance/network-interfaces/0/ip")

    def handle(self) -> str:
        """Return the path of the instance in its project."""
        zone = self._metadata("instance/zone").rpartition("/")[2]
        return f"zones/{zone}/instances/{self._metadata('instance/name')}"

    def give_back(self, handle: str) -> None:
        """Delete an instance from the group, which lowers the size of the group.

        Another one that does not run is left to its group, which makes it anew.
        """
        if handle != self.handle() and not self._is_running(handle):
            return
        self._ask_group(
            "deleteInstances",
            {
                "instances": [handle],
                "skipInstancesOnValidationError": True,
            },
        )

    def size(self) -> int:
        """Return the target size of the group."""
        answer = self._authorized("GET", self._manager_url())
        return int(answer.document()["targetSize"])

    def resize(self, nodes: int) -> None:
        """Set the target size of the group."""
        self._ask_group(f"resize?size={nodes}", {})

    def replace(self) -> None:
        """Let the group delete the instance and create it anew."""
        self._ask_group("recreateInstances", {"instances": [self.handle()]})

    def _is_running(self, handle: str) -> bool:
        answer = self._authorized("GET", f"{self._project_url()}/{handle}")
        status: str = answer.document()["status"]
        return status == "RUNNING"

    def _ask_group(self, verb: str, body: Mapping[str, Any]) -> None:
        self._authorized("POST", f"{self._manager_url()}/{verb}", body)

    def _manager_url(self) -> str:
        zone = self._metadata("instance/zone").rpartition("/")[2]
        return (
            f"{self._project_url()}/zones/{zone}"
            f"/instanceGroupManagers/{self._group}"
        )

    def _project_url(self) -> str:
        return f"{COMPUTE_URL}/projects/{self._metadata('project/project-id')}"

    def notice(self) -> str:
        """Return that a block ends, that the machine is preempted or its host maintained."""
        if ending := block_notice(self._machine, self._ends):
            return ending
        if self._metadata("instance/preempted") == "TRUE":
            return "preempted"
        event = self._metadata("instance/maintenance-event")
        return "" if event == "NONE" else event

    def show(self, phase: str) -> None:
        """Do nothing: nobody asks."""

    def publish(self, metrics: Mapping[str, float]) -> None:
        """Write points of custom metrics, each of this instance."""
        project = self._metadata("project/project-id")
        end_time = self._machine.utc().strftime("%Y-%m-%dT%H:%M:%SZ")
        resource = self._monitored_resource()
        series = [
            {
                "metric": {
                    "type": f"{self._metrics}/{name.lower()}",
                    "labels": {"group": self._group},
                },
                "resource": resource,
                "points": [
                    {
                        "interval": {"endTime": end_time},
                        "value": {"doubleValue": amount},
                    }
                ],
            }
            for name, amount in sorted(metrics.items())
        ]
        self._authorized(
            "POST",
            f"https://monitoring.googleapis.com/v3/projects/{project}/timeSeries",
            {"timeSeries": series},
        )

    def tell(self, lines: Sequence[Line]) -> None:
        """Write log entries of this instance. One that is told again is the same entry."""
        project = self._metadata("project/project-id")
        self._authorized(
            "POST",
            "https://logging.googleapis.com/v2/entries:write",
            {
                "logName": f"projects/{project}/logs/tonnage",
                "resource": self._monitored_resource(),
                "labels": {"stack": self._stack, "group": self._group},
                # A line that is refused keeps no other from being written.
                "partialSuccess": True,
                "entries": [
                    {
                        "timestamp": line.timestamp,
                        "insertId": line.key,
                        "severity": line.level or "DEFAULT",
                        "textPayload": line.text,
                        "labels": {"source": line.source},
                    }
                    for line in lines
                ],
            },
            timeout_s=TELL_TIMEOUT_S,
        )

    def _monitored_resource(self) -> dict[str, Any]:
        return {
            "type": "gce_instance",
            "labels": {
                "instance_id": self.node_name(),
                "zone": self._metadata("instance/zone").rpartition("/")[2],
            },
        }

    def home_disk(self) -> list[str]:
        """Attach a disk of the stack that is kept."""
        machine = f"{self._project_url()}/{self.handle()}"
        zone_url = machine.rpartition("/instances/")[0]
        users = {
            name: self._authorized("GET", f"{zone_url}/disks/{name}")
            .document()
            .get("users", [])
            for name in self._homes
        }
        own_path = machine.partition("/projects/")[2]
        if not any(
            user.endswith(own_path)
            for names in users.values()
            for user in names
        ):
            free = [name for name, names in users.items() if not names]
            if not free:
                raise RequestError(409, "other machines have all disks")
            disk_path = f"{zone_url.partition('/v1/')[2]}/disks/{free[0]}"
            self._authorized(
                "POST",
                f"{machine}/attachDisk",
                {
                    "source": disk_path,
                    "deviceName": HOME_DEVICE,
                    "mode": "READ_WRITE",
                    "autoDelete": False,
                },
            )
        return [f"/dev/disk/by-id/google-{HOME_DEVICE}"]

    def secret(self, name: str) -> str:
        """Return the newest version of a secret of the project."""
        project = self._metadata("project/project-id")
        answer = self._authorized(
            "GET",
            f"https://secretmanager.googleapis.com/v1/projects/{project}/secrets/"
            f"{name}/versions/latest:access",
        )
        payload: str = answer.document()["payload"]["data"]
        return base64.b64decode(payload).decode()

    def file_system(self) -> str:
        """Ask Managed Lustre for the mount point."""
        answer = self._authorized("GET", self._file_system_url())
        mount_point: str = answer.document()["mountPoint"]
        return mount_point

    def fill_files(self) -> None:
        """Let Managed Lustre import the dataset, and wait until it has."""
        begun = self._authorized(
            "POST",
            f"{self._file_system_url()}:importData",
            {
                # A folder ends with a slash.
                "gcsPath": {"uri": f"{self._dataset.rstrip('/')}/"},
                "lustrePath": {"path": "/dataset"},
            },
        )
        operation = begun.document()
        while not operation.get("done"):
            self._machine.sleep(POLL_S)
            operation = self._authorized(
                "GET", f"{LUSTRE_URL}/{operation['name']}"
            ).document()
        if "error" in operation:
            raise RequestError(500, json.dumps(operation["error"]))

    def _file_system_url(self) -> str:
        zone = self._metadata("instance/zone").rpartition("/")[2]
        project = self._metadata("project/project-id")
        return (
            f"{LUSTRE_URL}/projects/{project}/locations/{zone}"
            f"/instances/{self._file_system}"
        )

    def read(self, key: str, start: int = 0, size: int = 0) -> Stored | None:
        """Return an object of the bucket, or a range of its bytes."""
        headers = {"range": f"bytes={start}-{start + size - 1}"} if size else {}
        try:
            answer = self._authorized(
                "GET", f"{self._object_url(key)}?alt=media", headers=headers
            )
        except RequestError as error:
            if error.status == 404:
                return None
            raise
        return Stored(answer.body, answer.headers["x-goog-generation"])

    def write(
        self, key: str, data: bytes, *, version: str | None = None
    ) -> str:
        """Write an object, on the condition of its generation where one is given."""
        query = {"uploadType": "media", "name": key}
        if version is not None:
            query["ifGenerationMatch"] = version or NO_OBJECT
        try:
            answer = self._authorized("POST", self._upload_url(query), data)
        except RequestError as error:
            if version is not None and error.status == 412:
                raise Conflict(key) from error
            raise
        generation: str = answer.document()["generation"]
        return generation

    def write_file(
        self, key: str, path: str, pulse: Callable[[], None]
    ) -> None:
        """Write an object in parts; it is there once the last one is."""
        file_path = self._machine.path(path)
        size = file_path.stat().st_size
        if size <= PART_BYTES:
            self.write(key, file_path.read_bytes())
            return
        session = self._authorized(
            "POST",
            self._upload_url({"uploadType": "resumable", "name": key}),
            {},
        ).headers["location"]
        with file_path.open("rb") as stream:
            start = 0
            while start < size:
                stream.seek(start)
                start = self._send_part(
                    session, stream.read(PART_BYTES), start, size
                )
                pulse()

    def _send_part(
        self, session: str, part: bytes, start: int, size: int
    ) -> int:
        """Send a part of an upload; return the first byte that is still to be sent."""
        end = start + len(part)
        try:
            self._authorized(
                "PUT",
                session,
                part,
                {"content-range": f"bytes {start}-{end - 1}/{size}"},
            )
        except RequestError as error:
            # So all but the last part are acknowledged, with what was kept of them.
            if error.status != 308:
                raise
            kept = error.headers.get("range", "")
            return int(kept.rpartition("-")[2]) + 1 if kept else 0
        return end

    def delete(self, key: str) -> None:
        """Delete an object; one that is missing is deleted already."""
        try:
            self._authorized("DELETE", self._object_url(key))
        except RequestError as error:
            if error.status != 404:
                raise

    def list(self, prefix: str) -> list[Listed]:
        """Return the objects under a prefix, page by page."""
        objects: list[Listed] = []
        query = {"prefix": prefix}
        while True:
            page = self._authorized(
                "GET",
                self._bucket_url(f"?{urlencode(query)}"),
            ).document()
            objects += [
                Listed(item["name"], int(item["size"]), item["generation"])
                for item in page.get("items", [])
            ]
            if "nextPageToken" not in page:
                return objects
            query["pageToken"] = page["nextPageToken"]

    def _object_url(self, key: str) -> str:
        return self._bucket_url(f"/{quote(key, safe='')}")

    def _upload_url(self, query: Mapping[str, str]) -> str:
        return self._bucket_url(f"?{urlencode(query)}", "/upload")

    def _bucket_url(self, end: str, way: str = "") -> str:
        # After the first time there are no digits to fill in.
        self._bucket = fill_unique(
            self._bucket, lambda: self._metadata("project/project-id")
        )
        return f"{STORAGE_URL}{way}/storage/v1/b/{self._bucket}/o{end}"

    def _authorized(
        self,
        method: str,
        url: str,
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 300,
    ) -> Answer:
        """Send a request as the account of the machine; a mapping is sent as JSON."""
        token = self._token.get(
            lambda: json.loads(
                self._metadata("instance/service-accounts/default/token")
            )["access_token"]
        )
        sent_headers = {
            **(headers or {}),
            "authorization": f"Bearer {token}",
            "content-type": "application/octet-stream"
            if isinstance(body, bytes)
            else "application/json",
        }
        sent_body = (
            body
            if body is None or isinstance(body, bytes)
            else json.dumps(body).encode()
        )
        return self._machine.send(
            method, url, sent_headers, sent_body, timeout_s=timeout_s
        )

    def _metadata(self, name: str) -> str:
        answer = self._machine.send(
            "GET", f"{METADATA_URL}/{name}", {"Metadata-Flavor": "Google"}
        )
        return answer.body.decode()
