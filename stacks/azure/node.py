"""Azure: the instance metadata service, scale sets, blobs and metrics."""

from __future__ import annotations

import base64
import gzip
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

from stacks.runtime.vm.node.cloud import (
    TELL_TIMEOUT_S,
    Conflict,
    Kept,
    Listed,
    Stored,
)
from stacks.runtime.vm.node.host import REQUEST_TIMEOUT_S, RequestError
from stacks.runtime.vm.node.unique import fill_unique

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stacks.runtime.vm.node.cloud import Line
    from stacks.runtime.vm.node.host import Answer, Host

METADATA_URL = "http://169.254.169.254/metadata"
MANAGEMENT_URL = "https://management.azure.com"
STORAGE_VERSION = "2021-12-02"
PART_BYTES = 64 * 2**20
READ_FOLDERS = ("models/", "job/", "program/")
FILL_TIMEOUT_S = 86_400.0
QUOTE = '"'
# The place of the disk of a workspace, and the folders of links by that number.
HOME_LUN = 10
HOME_LINKS = ("/dev/disk/azure/data/by-lun/", "/dev/disk/azure/scsi1/lun")
MOST_PARTS = 50_000
# The first question after events switches their service on.
EVENTS_TIMEOUT_S = 130.0
# Announced ends of a machine; a freeze passes by itself.
ENDING_EVENTS = ("Preempt", "Terminate", "Redeploy", "Reboot")
# What a scale set makes of what the work does.
HEALTH_STATES = {
    "working": "Healthy",
    "failed": "Unhealthy",
    "unhealthy": "Unhealthy",
}


def answer(
    machine: Host, port: int, tell: Callable[[], tuple[int, bytes]]
) -> None:
    """Answer every GET on a machine with a status and a body, in the background.

    A port that somebody else has is told, and answers nothing.
    """

    class HealthAnswer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = tell()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write nothing: the journal is for what happens."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), HealthAnswer)
    except OSError as error:
        machine.log(f"port {port} is not answered: {error}")
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()


def open_cloud(machine: Host, settings: Mapping[str, Any]) -> AzureApi:
    """Return Azure as this machine sees it."""
    return AzureApi(machine, settings)


class AzureApi:
    """Azure.

    Settings: stack, region, account, group, numbers_machines, file_system, dataset, homes, and
    health_port where a scale set asks its machines for their health.
    """

    def __init__(self, machine: Host, settings: Mapping[str, Any]) -> None:
        self._machine = machine
        self._account: str = settings["account"]
        self._region: str = settings["region"]
        self._scale_set: str = settings["group"]
        self._file_system: str = settings["file_system"]
        self._dataset: str = settings["dataset"]
        self._homes: list[str] = settings["homes"]
        # Of an account that is not the stack's; that one has several.
        self._container: str = settings.get("container", "")
        self._numbers_machines: bool = settings["numbers_machines"]
        self._stack: str = settings["stack"]
        self._tokens: dict[str, Kept] = {}
        self._log_target: tuple[str, str] | None = None
        # Nobody asks machines of a set that does not roll.
        self._health_port: int = settings.get("health_port", 0)
        self._phase = ""
        self._is_shown = False

    def node_name(self) -> str:
        """Return the id that Azure gave the machine."""
        vm_id: str = self._instance()["vmId"]
        return vm_id

    def address(self) -> str:
        """Return the private address of the first interface."""
        interfaces = self._metadata(
            "instance/network/interface", "2021-02-01"
        ).document()
        private_address: str = interfaces[0]["ipv4"]["ipAddress"][0][
            "privateIpAddress"
        ]
        return private_address

    def handle(self) -> str:
        """Return the id of the machine in its scale set."""
        name: str = self._instance()["name"]
        # Uniform sets number their machines after the last _, Flexible ones use the whole name.
        return name.rpartition("_")[2] if self._numbers_machines else name

    def give_back(self, handle: str) -> None:
        """Delete a machine from the scale set; one that only halts still bills."""
        self._authorized(
            "POST",
            f"{self._scale_set_url(self._instance())}/delete?api-version=2024-03-01",
            {"instanceIds": [handle]},
        )

    def size(self) -> int:
        """Return the capacity of the scale set."""
        answer = self._authorized(
            "GET",
            f"{self._scale_set_url(self._instance())}?api-version=2024-03-01",
        )
        return int(answer.document()["sku"]["capacity"])

    def resize(self, nodes: int) -> None:
        """Set the capacity of the scale set; everything else of it stays."""
        self._authorized(
            "PATCH",
            f"{self._scale_set_url(self._instance())}?api-version=2024-03-01",
            {"sku": {"capacity": nodes}},
        )

    def replace(self) -> None:
        """Move this machine to other hardware, where it boots with empty local disks.

        A scale set does not replace what is deleted from it.
        """
        self._authorized(
            "POST", f"{self._machine_url()}/redeploy?api-version=2024-03-01"
        )

    def notice(self) -> str:
        """Return the kind of an announced event that ends this machine."""
        own_name = self._instance()["name"]
        events = self._metadata(
            "scheduledevents", "2020-07-01", EVENTS_TIMEOUT_S
        ).document()
        for event in events["Events"]:
            # The document lists the events of the whole set.
            if (
                own_name in event["Resources"]
                and event["EventType"] in ENDING_EVENTS
            ):
                kind: str = event["EventType"]
                return kind
        return ""

    def show(self, phase: str) -> None:
        """Answer the extension that asks this machine for its health, while a set rolls."""
        self._phase = phase
        if self._health_port and not self._is_shown:
            self._is_shown = True
            answer(self._machine, self._health_port, self._health)

    def _health(self) -> tuple[int, bytes]:
        """Return status and body; what is no state yet leaves the machine in its start."""
        state = HEALTH_STATES.get(self._phase)
        if state is None:
            return 503, b""
        return 200, json.dumps({"ApplicationHealthState": state}).encode()

    def publish(self, metrics: Mapping[str, float]) -> None:
        """Write custom metrics of the scale set."""
        instance = self._instance()
        resource = self._scale_set_url(instance).removeprefix(MANAGEMENT_URL)
        for name, amount in sorted(metrics.items()):
            summary = {
                "dimValues": [instance["name"]],
                "min": amount,
                "max": amount,
                "sum": amount,
                "count": 1,
            }
            base_data = {
                "metric": name,
                "namespace": "tonnage",
                "dimNames": ["node"],
                "series": [summary],
            }
            self._authorized(
                "POST",
                f"https://{self._region}.monitoring.azure.com{resource}/metrics",
                {
                    "time": self._machine.utc().strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "data": {"baseData": base_data},
                },
                resource="https://monitoring.azure.com/",
            )

    def tell(self, lines: Sequence[Line]) -> None:
        """Send lines to the table of the stack, by the rule that leads there."""
        # It stays as long as the stack.
        self._log_target = self._log_target or self._find_log_target()
        endpoint, rule = self._log_target
        instance = self._instance()
        rows = [
            {
                "TimeGenerated": line.timestamp,
                "Pool": self._scale_set,
                "Machine": instance["vmId"],
                "Source": line.source,
                "Level": line.level,
                "Line": line.text,
                "Key": line.key,
            }
            for line in lines
        ]
        self._authorized(
            "POST",
            f"{endpoint}/dataCollectionRules/{rule}/streams/Custom-Tonnage"
            "?api-version=2023-01-01",
            gzip.compress(
                json.dumps(rows, ensure_ascii=False).encode(errors="replace")
            ),
            resource="https://monitor.azure.com",
            headers={
                "content-type": "application/json",
                "content-encoding": "gzip",
            },
            timeout_s=TELL_TIMEOUT_S,
        )

    def _find_log_target(self) -> tuple[str, str]:
        """Ask for the address of the endpoint and the name of the rule: Azure makes them up."""
        found = [
            self._authorized(
                "GET",
                f"{_group_url(self._instance())}/Microsoft.Insights/{kind}/"
                f"{self._stack[:39].rstrip('-')}-logs?api-version=2022-06-01",
                timeout_s=TELL_TIMEOUT_S,
            ).document()["properties"]
            for kind in ("dataCollectionEndpoints", "dataCollectionRules")
        ]
        return found[0]["logsIngestion"]["endpoint"], found[1]["immutableId"]

    def home_disk(self) -> list[str]:
        """Attach a disk of the stack that is kept."""
        instance = self._instance()
        owners = {}
        for name in self._homes:
            disk_path = f"{_group_url(instance)}/Microsoft.Compute/disks/{name}"
            disk = self._authorized(
                "GET", f"{disk_path}?api-version=2024-03-02"
            ).document()
            owners[disk["id"]] = disk.get("managedBy", "")
        own_end = f"/virtualmachines/{self.handle()}".lower()
        if not any(
            owner.lower().endswith(own_end) for owner in owners.values()
        ):
            free = [disk_id for disk_id, owner in owners.items() if not owner]
            if not free:
                raise RequestError(409, "other machines have all disks")
            disk = {
                "diskId": free[0],
                "lun": HOME_LUN,
                "caching": "None",
                "deleteOption": "Detach",
            }
            self._authorized(
                "POST",
                f"{self._machine_url()}/attachDetachDataDisks?api-version=2024-07-01",
                {"dataDisksToAttach": [disk]},
            )
        return [f"{folder}{HOME_LUN}" for folder in HOME_LINKS]

    def _machine_url(self) -> str:
        instance = self._instance()
        return (
            f"{self._scale_set_url(instance)}/virtualMachines/{self.handle()}"
            if self._numbers_machines
            else f"{_group_url(instance)}/Microsoft.Compute/virtualMachines/"
            f"{instance['name']}"
        )

    def secret(self, name: str) -> str:
        """Return a secret by the name of its vault and its own, VAULT/NAME."""
        vault, _, secret_name = name.partition("/")
        answer = self._authorized(
            "GET",
            f"https://{vault}.vault.azure.net/secrets/{secret_name}?api-version=7.4",
            resource="https://vault.azure.net",
        )
        text: str = answer.document()["value"]
        return text

    def file_system(self) -> str:
        """Ask Managed Lustre for the address of its servers."""
        instance = self._instance()
        answer = self._authorized(
            "GET",
            f"{_group_url(instance)}/Microsoft.StorageCache/amlFilesystems/"
            f"{self._file_system}?api-version=2024-03-01",
        )
        address = answer.document()["properties"]["clientInfo"]["mgsAddress"]
        return f"{address}@tcp:/lustrefs"

    def fill_files(self) -> None:
        """Copy the dataset with azcopy, which the image has."""
        self._machine.run(
            "azcopy",
            "copy",
            f"{self._dataset}/*",
            "/data/dataset",
            "--recursive",
            timeout_s=FILL_TIMEOUT_S,
            env={"AZCOPY_AUTO_LOGIN_TYPE": "MSI"},
        )

    def read(self, key: str, start: int = 0, size: int = 0) -> Stored | None:
        """Return a blob of the container, or a range of its bytes."""
        headers = (
            {"x-ms-range": f"bytes={start}-{start + size - 1}"} if size else {}
        )
        try:
            answer = self._blob("GET", key, headers=headers)
        except RequestError as error:
            if error.status == 404:
                return None
            raise
        return Stored(answer.body, answer.headers["etag"])

    def write(
        self, key: str, data: bytes, *, version: str | None = None
    ) -> str:
        """Write a blob, on the condition of its version where one is given."""
        headers = {"x-ms-blob-type": "BlockBlob"}
        if version is not None:
            headers |= (
                {"if-match": version} if version else {"if-none-match": "*"}
            )
        try:
            answer = self._blob("PUT", key, body=data, headers=headers)
        except RequestError as error:
            # An object that is gone is another version; with none, the container is gone.
            if version is not None and (
                error.status == 412
                or error.headers.get("x-ms-error-code") == "BlobAlreadyExists"
                or (version and error.status == 404)
            ):
                raise Conflict(key) from error
            raise
        return answer.headers["etag"]

    def write_file(
        self, key: str, path: str, pulse: Callable[[], None]
    ) -> None:
        """Write a blob in blocks; it is there once their list is."""
        file_path = self._machine.path(path)
        size = file_path.stat().st_size
        if size <= PART_BYTES:
            self.write(key, file_path.read_bytes())
            return
        part_bytes = max(PART_BYTES, math.ceil(size / MOST_PARTS))
        block_ids: list[str] = []
        with file_path.open("rb") as stream:
            while block := stream.read(part_bytes):
                block_id = base64.b64encode(
                    f"{len(block_ids):08d}".encode()
                ).decode()
                block_ids.append(block_id)
                query = urlencode({"comp": "block", "blockid": block_id})
                self._blob("PUT", key, query, body=block)
                pulse()
        blocks = "".join(
            f"<Latest>{block_id}</Latest>" for block_id in block_ids
        )
        self._blob(
            "PUT",
            key,
            "comp=blocklist",
            body=f"<BlockList>{blocks}</BlockList>".encode(),
        )

    def delete(self, key: str) -> None:
        """Delete a blob; one that is missing is deleted already."""
        try:
            self._blob("DELETE", key)
        except RequestError as error:
            if error.status != 404:
                raise

    def list(self, prefix: str) -> list[Listed]:
        """Return the blobs under a prefix, page by page."""
        objects: list[Listed] = []
        query = {"restype": "container", "comp": "list", "prefix": prefix}
        while True:
            answer = self._stored(
                "GET",
                f"{self._container or container_of(prefix)}?{urlencode(query)}",
            )
            page = ET.fromstring(answer.body)  # noqa: S314 - from the cloud itself
            objects += [
                Listed(
                    blob.findtext("Name", ""),
                    int(blob.findtext("Properties/Content-Length", "0")),
                    # Headers have it in quotes, listings do not.
                    f'"{blob.findtext("Properties/Etag", "").strip(QUOTE)}"',
                )
                for blob in page.iter("Blob")
            ]
            marker = page.findtext("NextMarker", "")
            if not marker:
                return objects
            query["marker"] = marker

    def _blob(
        self,
        method: str,
        key: str,
        query: str = "",
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        name = f"{self._container or container_of(key)}/{quote(key)}"
        return self._stored(
            method, f"{name}?{query}" if query else name, body, headers
        )

    def _stored(
        self,
        method: str,
        name: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        # After the first time there are no digits to fill in.
        self._account = fill_unique(
            self._account, lambda: str(self._instance()["subscriptionId"])
        )
        return self._authorized(
            method,
            f"https://{self._account}.blob.core.windows.net/{name}",
            body,
            resource="https://storage.azure.com/",
            headers={
                **(headers or {}),
                "x-ms-version": STORAGE_VERSION,
                "x-ms-date": self._machine.utc().strftime(
                    "%a, %d %b %Y %H:%M:%S GMT"
                ),
            },
        )

    def _scale_set_url(self, instance: Mapping[str, Any]) -> str:
        return (
            f"{_group_url(instance)}/Microsoft.Compute/"
            f"virtualMachineScaleSets/{self._scale_set}"
        )

    def _authorized(
        self,
        method: str,
        url: str,
        body: bytes | Mapping[str, Any] | None = None,
        *,
        resource: str = f"{MANAGEMENT_URL}/",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 300,
    ) -> Answer:
        """Send a request as the identity of the machine; a mapping is sent as JSON."""
        query = urlencode({"resource": resource})
        token = self._tokens.setdefault(resource, Kept(self._machine)).get(
            lambda: self._metadata(
                f"identity/oauth2/token?{query}", "2018-02-01"
            ).document()["access_token"]
        )
        sent_headers = {
            **(headers or {}),
            "authorization": f"Bearer {token}",
        }
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent_headers["content-type"] = "application/json"
        return self._machine.send(
            method, url, sent_headers, body, timeout_s=timeout_s
        )

    def _instance(self) -> dict[str, Any]:
        instance: dict[str, Any] = self._metadata(
            "instance/compute", "2021-02-01"
        ).document()
        return instance

    def _metadata(
        self, name: str, version: str, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Answer:
        sign = "&" if "?" in name else "?"
        return self._machine.send(
            "GET",
            f"{METADATA_URL}/{name}{sign}api-version={version}",
            {"Metadata": "true"},
            timeout_s=timeout_s,
        )


def container_of(key: str) -> str:
    """Return the container of an object: nodes read the one and write the other."""
    return "models" if key.startswith(READ_FOLDERS) else "work"


def _group_url(instance: Mapping[str, Any]) -> str:
    return (
        f"{MANAGEMENT_URL}/subscriptions/{instance['subscriptionId']}/resourceGroups/"
        f"{instance['resourceGroupName']}/providers"
    )
