"""A Pulumi provider plugin that serves the simulated world.

The engine starts it as `pulumi-resource-aws`, `-gcp` or `-azure-native`. Each is a process of
its own. They share the world through its file, one call at a time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc
from pulumi.runtime.rpc import UNKNOWN

from providers.files import MAX_DOCUMENT_BYTES, read_regular
from providers.simulated import world
from providers.simulated.cloud import (
    VERSION_OUTPUT,
    CloudError,
    SimulatedCloud,
    computed_outputs,
    immutable_changes,
)
from providers.simulated.shared import (
    FOLDER_VARIABLE,
    WORLD_VARIABLE,
    SharedWorld,
)
from providers.simulated.world_file import read_world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.types import Properties

STOP_GRACE_S: Final = 20.0
# How often a plugin looks whether the engine that started it is still there.
PARENT_CHECK_S: Final = 0.5


def struct_to_dict(protobuf_struct: struct_pb2.Struct) -> Properties:
    """Convert a protobuf struct; whole numbers become integers, nulls are left out."""
    field_pairs = (
        (field_name, _plain_value(protobuf_struct.fields[field_name]))
        for field_name in sorted(protobuf_struct.fields)
    )
    return {
        field_name: field_value
        for field_name, field_value in field_pairs
        if field_value is not None
    }


def _plain_value(protobuf_value: struct_pb2.Value) -> Any:
    value_kind = protobuf_value.WhichOneof("kind")
    if value_kind == "struct_value":
        return struct_to_dict(protobuf_value.struct_value)
    if value_kind == "list_value":
        return [
            _plain_value(list_item)
            for list_item in protobuf_value.list_value.values
        ]
    if value_kind == "number_value":
        number = protobuf_value.number_value
        # Protobuf has no integers: every number is a double.
        return int(number) if number.is_integer() else number
    return (
        None
        if value_kind in (None, "null_value")
        else getattr(protobuf_value, value_kind)
    )


def dict_to_struct(properties: Properties) -> struct_pb2.Struct:
    """Convert properties to a protobuf struct."""
    protobuf_struct = struct_pb2.Struct()
    protobuf_struct.update(properties)
    return protobuf_struct


class SimulatedProvider(provider_pb2_grpc.ResourceProviderServicer):
    """The resource provider service of the engine, on a simulated world."""

    def __init__(
        self, plugin_version: str, folder: Path, world_rules: world.World
    ) -> None:
        self.plugin_version = plugin_version
        self.world = SharedWorld(world_rules, folder)
        self.region = ""

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Select the protocol without wrappers around secrets and references."""
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Return the version that the engine asked for."""
        return plugin_pb2.PluginInfo(version=self.plugin_version)

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Accept any configuration."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Compare configurations: another region replaces every resource."""
        prior_inputs = struct_to_dict(request.old_inputs)
        target_inputs = struct_to_dict(request.news)
        changed_keys = [
            property_name
            # Azure calls it location, the others region.
            for property_name in ("location", "region")
            if prior_inputs.get(property_name)
            != target_inputs.get(property_name)
        ]
        diff_none = provider_pb2.DiffResponse.DIFF_NONE
        diff_some = provider_pb2.DiffResponse.DIFF_SOME
        return provider_pb2.DiffResponse(
            changes=diff_some if changed_keys else diff_none,
            replaces=changed_keys,
            diffs=changed_keys,
        )

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Set the region from the configuration."""
        provider_config = struct_to_dict(request.args)
        self.region = str(
            provider_config.get("region")
            or provider_config.get("location")
            or ""
        )
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Accept the inputs as they are."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Compare old and new inputs, and name those that force a replacement."""
        prior_inputs = struct_to_dict(request.old_inputs)
        target_inputs = struct_to_dict(request.news)
        changed_keys = sorted(
            property_name
            for property_name in {*prior_inputs, *target_inputs}
            if prior_inputs.get(property_name)
            != target_inputs.get(property_name)
        )
        replacing_keys = immutable_changes(
            request.type, prior_inputs, target_inputs
        )
        property_diff = provider_pb2.PropertyDiff
        detailed_diff = {
            property_name: property_diff(
                kind=property_diff.Kind.Value(
                    "UPDATE_REPLACE"
                    if property_name in replacing_keys
                    else "UPDATE"
                ),
                inputDiff=True,
            )
            for property_name in changed_keys
        }
        diff_some = provider_pb2.DiffResponse.DIFF_SOME
        return provider_pb2.DiffResponse(
            changes=diff_some
            if changed_keys
            else provider_pb2.DiffResponse.DIFF_NONE,
            diffs=changed_keys,
            replaces=replacing_keys,
            detailedDiff=detailed_diff,
            hasDetailedDiff=True,
        )

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Create an object; a preview knows its inputs, and not yet what the cloud adds."""
        inputs = struct_to_dict(request.properties)
        if request.preview:
            unknown = dict.fromkeys(computed_outputs(request.type), UNKNOWN)
            return provider_pb2.CreateResponse(
                id="", properties=dict_to_struct({**inputs, **unknown})
            )
        with self._call(context) as cloud:
            resource_name = request.urn.rsplit("::", 1)[-1]
            object_id, outputs = cloud.create(
                request.type, resource_name, inputs, request.urn
            )
            return provider_pb2.CreateResponse(
                id=object_id, properties=dict_to_struct(outputs)
            )

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Change an object in place."""
        inputs = struct_to_dict(request.news)
        # A preview assumes that outputs stay and inputs are applied.
        if request.preview:
            prior_inputs = struct_to_dict(request.old_inputs)
            computed = computed_outputs(request.type)
            changed = {
                name: UNKNOWN if name in computed else value
                for name, value in inputs.items()
                if value != prior_inputs.get(name)
            }
            outputs = {**struct_to_dict(request.olds), **changed}
            if changed and VERSION_OUTPUT in outputs:
                outputs[VERSION_OUTPUT] = UNKNOWN
            return provider_pb2.UpdateResponse(
                properties=dict_to_struct(outputs)
            )
        with self._call(context) as cloud:
            outputs = cloud.update(request.id, inputs)
            return provider_pb2.UpdateResponse(
                properties=dict_to_struct(outputs)
            )

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Delete an object; an absent one is no error."""
        with self._call(context) as cloud:
            cloud.delete(request.id)
        return empty_pb2.Empty()

    def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return an object; an empty response means that it does not exist."""
        with self._call(context) as cloud:
            cloud_object = cloud.read(request.id)
        if cloud_object is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=request.id,
            inputs=dict_to_struct(cloud_object["inputs"]),
            properties=dict_to_struct(cloud_object["outputs"]),
        )

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """Do nothing: no call is long enough to be canceled."""
        return empty_pb2.Empty()

    @contextmanager
    def _call(self, context: Any) -> Iterator[SimulatedCloud]:
        """Make a call; the engine reports a refusal as an error of the resource."""
        try:
            with self.world.call(self.region) as cloud:
                yield cloud
        except CloudError as refusal:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))


def main(plugin_version: str) -> None:
    """Serve until the engine ends the process.

    The first line on standard output is the port, as the engine expects.
    """
    world_path = os.environ.get(WORLD_VARIABLE, "")
    world_rules = (
        read_world(read_regular(world_path, MAX_DOCUMENT_BYTES), world_path)
        if world_path
        else world.default_world()
    )
    grpc_server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(
        SimulatedProvider(
            plugin_version, Path(os.environ[FOLDER_VARIABLE]), world_rules
        ),
        grpc_server,
    )
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: grpc_server.stop(STOP_GRACE_S))
    threading.Thread(
        target=_end_with_parent, args=(grpc_server, os.getppid()), daemon=True
    ).start()
    grpc_server.wait_for_termination()


def _end_with_parent(grpc_server: grpc.Server, parent_id: int) -> None:
    """End this process when the engine is gone: one that is killed ends nothing itself."""
    while os.getppid() == parent_id:
        time.sleep(PARENT_CHECK_S)
    grpc_server.stop(STOP_GRACE_S)
