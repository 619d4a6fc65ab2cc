"""A Pulumi provider plugin over the simulated world: the real engine on mocked clouds.

The engine starts it as `pulumi-resource-aws`, `-gcp` or `-azure-native`; each is a process of its
own, so they share the world through its file, one call at a time.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent import futures
from pathlib import Path
from typing import Any, Final

import grpc
from filelock import FileLock
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from providers.simulated import world
from providers.simulated.cloud import Cloud, CloudError

FOLDER: Final = "TONNAGE_SIMULATED_FOLDER"
WORLD: Final = "TONNAGE_SIMULATED_WORLD"
GRACE: Final = 20.0


def plain(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Read a protobuf struct; whole doubles become integers, nulls are left out."""
    pairs = ((key, _value(struct.fields[key])) for key in sorted(struct.fields))
    return {key: value for key, value in pairs if value is not None}


def _value(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return plain(value.struct_value)
    if kind == "list_value":
        return [_value(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    return None if kind in (None, "null_value") else getattr(value, kind)


def struct(value: dict[str, Any]) -> struct_pb2.Struct:
    """Write a protobuf struct."""
    result = struct_pb2.Struct()
    result.update(value)
    return result


class Provider(provider_pb2_grpc.ResourceProviderServicer):  # type: ignore[misc, unused-ignore]
    """The calls that the engine makes, answered from the world."""

    def __init__(self, version: str, folder: Path, rules: world.World) -> None:
        self.version, self.folder, self.rules = version, folder, rules
        self.region = ""

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Agree on a protocol without wrappers around secrets and references."""
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Tell the version that the engine asked for."""
        return plugin_pb2.PluginInfo(version=self.version)

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Accept any configuration."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Say that another region is another place: everything in it must be replaced."""
        before, after = plain(request.old_inputs), plain(request.news)
        keys = [
            k for k in ("location", "region") if before.get(k) != after.get(k)
        ]
        same, some = (
            provider_pb2.DiffResponse.DIFF_NONE,
            provider_pb2.DiffResponse.DIFF_SOME,
        )
        return provider_pb2.DiffResponse(
            changes=some if keys else same, replaces=keys, diffs=keys
        )

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Learn the region."""
        found = plain(request.args)
        self.region = str(found.get("region") or found.get("location") or "")
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Accept the inputs as they are."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Compare inputs with inputs, and say what cannot change in place."""
        before, after = plain(request.old_inputs), plain(request.news)
        keys = sorted(
            k for k in {*before, *after} if before.get(k) != after.get(k)
        )
        cloud = Cloud(self.rules, world.Memory(), self.region)
        replaces = cloud.replaces(request.type, before, after)
        kinds = provider_pb2.PropertyDiff
        detail = {
            k: kinds(
                kind=kinds.Kind.Value(
                    "UPDATE_REPLACE" if k in replaces else "UPDATE"
                ),
                inputDiff=True,
            )
            for k in keys
        }
        some = provider_pb2.DiffResponse.DIFF_SOME
        return provider_pb2.DiffResponse(
            changes=some if keys else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=keys,
            replaces=replaces,
            detailedDiff=detail,
            hasDetailedDiff=True,
        )

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Create an object; a preview knows no outputs yet."""
        inputs = plain(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(
                id="", properties=request.properties
            )
        with self._cloud(context) as cloud:
            name = request.urn.rsplit("::", 1)[-1]
            identity, outputs = cloud.create(request.type, name, inputs)
            return provider_pb2.CreateResponse(
                id=identity, properties=struct(outputs)
            )

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Change an object in place."""
        inputs = plain(request.news)
        if request.preview:
            outputs = {**plain(request.olds), **inputs}
            return provider_pb2.UpdateResponse(properties=struct(outputs))
        with self._cloud(context) as cloud:
            outputs = cloud.update(request.id, inputs)
            return provider_pb2.UpdateResponse(properties=struct(outputs))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Delete an object; one that is gone is fine."""
        with self._cloud(context) as cloud:
            cloud.delete(request.id)
        return empty_pb2.Empty()

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return an object as it is; an empty answer means that it is gone."""
        with self._cloud(context) as cloud:
            found = cloud.read(request.id)
        if found is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=request.id,
            inputs=struct(found["inputs"]),
            properties=struct(found["outputs"]),
        )

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Nothing runs long enough to be cancelled."""
        return empty_pb2.Empty()

    def _cloud(self, context: Any) -> _Turn:
        return _Turn(self, context)


class _Turn:
    """One call on the shared world: under its lock, saved also when the cloud refuses."""

    def __init__(self, provider: Provider, context: Any) -> None:
        self.provider, self.context = provider, context
        self.path = provider.folder / "world.json"
        self.lock = FileLock(provider.folder / "world.lock", timeout=60)

    def __enter__(self) -> Cloud:
        self.provider.folder.mkdir(parents=True, exist_ok=True)
        self.lock.acquire()
        self.memory = world.recall(self.path)
        return Cloud(self.provider.rules, self.memory, self.provider.region)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            world.remember(self.path, self.memory)
        finally:
            self.lock.release()
        if isinstance(error, CloudError):
            self.context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


def main(version: str) -> None:
    """Serve until the engine ends it; the first line on standard output is the port."""
    source = os.environ.get(WORLD, "")
    rules = (
        world.read(Path(source).read_bytes(), source)
        if source
        else world.default()
    )
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(
        Provider(version, Path(os.environ[FOLDER]), rules), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop(GRACE))
    server.wait_for_termination()
