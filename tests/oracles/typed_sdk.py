"""The typed SDKs of Pulumi: what a program that is written with them would send.

Ours registers resources by their tokens, with plain inputs. A class of an SDK translates names,
checks required properties, and fills in defaults; what it sends for the same inputs is the truth.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

import pulumi
from pulumi import _types as sdk_types
from pulumi.runtime import mocks

# A folder with the SDKs, as `pip install --no-deps --target` fills one.
FOLDER: Final = os.environ.get("TONNAGE_TYPED_SDKS", "")
PACKAGES: Final = {
    "aws": "pulumi_aws",
    "gcp": "pulumi_gcp",
    "azure-native": "pulumi_azure_native",
}


def is_here() -> bool:
    """Tell whether there are SDKs."""
    return bool(FOLDER) and Path(FOLDER).is_dir()


class _Heard(mocks.Mocks):  # type: ignore[misc]  # it has no types
    """Hears what is sent for each resource, and answers that it was made."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}

    def new_resource(
        self, args: mocks.MockResourceArgs
    ) -> tuple[str, dict[str, Any]]:
        self.inputs[args.name] = args.inputs
        # Azure answers with a map of identities where it is told a list.
        outputs: dict[str, Any] = (
            {"identity": {}} if "identity" in args.inputs else {}
        )
        return f"{args.name}-id", outputs

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"{args.token} was called")


def sent_inputs(
    resources: Mapping[str, tuple[str, dict[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """Return what typed classes send, by the names of resources: each a type and its inputs."""
    heard = _Heard()
    mocks.set_mocks(heard, project="tonnage", stack="typed", preview=False)

    def register() -> Any:
        made = []
        for name, (token, inputs) in resources.items():
            resource_class = _resource_class(token)
            keywords = _keywords(_args_class(resource_class), inputs)
            # The first argument of every class has this name already.
            if "resource_name" in keywords:
                keywords["resource_name_"] = keywords.pop("resource_name")
            made.append(resource_class(name, **keywords).urn)
        return pulumi.Output.all(*made)

    pulumi.runtime.test(register)()
    return heard.inputs


@cache
def _modules(package: str) -> dict[str, tuple[str, str]]:
    """Return the module and the class of each token of a package."""
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)
    text = (Path(FOLDER) / package / "__init__.py").read_text()
    listed = re.search(r'resource_modules="""(.*?)"""', text, re.DOTALL)
    assert listed is not None
    return {
        token: (module["fqn"], class_name)
        for module in json.loads(listed[1])
        for token, class_name in module["classes"].items()
    }


def _resource_class(token: str) -> Any:
    package = PACKAGES[token.partition(":")[0]]
    module, class_name = _modules(package)[token]
    return getattr(importlib.import_module(module), class_name)


def _args_class(resource_class: Any) -> Any:
    module = sys.modules[resource_class.__module__]
    name = resource_class.__name__
    # Where a part of some resource has the name already.
    return getattr(module, f"{name}InitArgs", getattr(module, f"{name}Args"))


def _keywords(args_class: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs as the arguments of their class, with objects of the classes in them."""
    names = {
        pulumi_name: name
        for name, pulumi_name in sdk_types.input_type_py_to_pulumi_names(
            args_class
        ).items()
    }
    hints = _hints(args_class)
    return {
        names[key]: _converted(value, hints[names[key]])
        for key, value in inputs.items()
        if value is not None
    }


@cache
def _hints(args_class: Any) -> dict[str, Any]:
    """Return the types of the arguments of a class, whose names are those of its module."""
    module = sys.modules[args_class.__module__]
    scope = {**vars(module), **vars(_siblings(module))}
    return {
        name: eval(str(annotation), scope)
        if isinstance(annotation, str)
        else annotation
        for name, annotation in inspect.get_annotations(
            args_class.__init__
        ).items()
        if name != "return"
    }


def _siblings(module: types.ModuleType) -> types.ModuleType:
    return sys.modules[module.__name__.rpartition(".")[0]]


def _converted(value: Any, hint: Any) -> Any:
    """Return a value as its type wants it: objects of classes, lists and maps of them."""
    if isinstance(value, list):
        return [_converted(part, hint) for part in value]
    if not isinstance(value, dict):
        return value
    classes = [part for part in _parts(hint) if sdk_types.is_input_type(part)]
    if classes:
        return classes[0](**_keywords(classes[0], value))
    return {key: _converted(part, hint) for key, part in value.items()}


def _parts(hint: Any) -> list[Any]:
    """Return every type that a hint is made of."""
    if isinstance(hint, str):
        return []
    if get_origin(hint) in (Union, types.UnionType) or get_args(hint):
        return [part for inner in get_args(hint) for part in _parts(inner)]
    return [hint]
