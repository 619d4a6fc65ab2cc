"""The logic app that gives lost machines back, run by an interpreter of its language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from stacks.build import build_stack
from tests.conftest import find, spec_of
from tests.oracles.logic_app import Answer, LogicApp
from tests.oracles.lost_machine import Machine, drawn, happened
from tests.stacks.runtime.vm.sandbox import SandboxMachine
from tests.stacks.watched import (
    SPEC,
    WatchedWorld,
    assert_a_dead_agent_ends_its_machine,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
GROUP_ID = "/subscriptions/sub/resourceGroups/group"
SET_ID = f"{GROUP_ID}/providers/Microsoft.Compute/virtualMachineScaleSets/pool"
MANAGEMENT = "https://management.azure.com"
PAGE_SIZE = 2


class Azure:
    """The services of Azure, as much as the logic app asks of them."""

    def __init__(
        self, machines: list[Machine], alive: str, *, numbers_machines: bool
    ) -> None:
        self._machines = {machine.name: machine for machine in machines}
        self._alive = alive
        self._numbers = numbers_machines
        self.deleted: list[str] = []
        self.troubled: list[str] = []

    def __call__(self, request: dict[str, Any]) -> Answer:
        identity = request["authentication"]
        assert identity["type"] == "ManagedServiceIdentity"
        assert identity["identity"] == "watch-id"
        uri = request["uri"]
        if uri.startswith(self._alive):
            assert identity["audience"] == "https://storage.azure.com/"
            return self._written(uri, request["headers"])
        if ".monitoring.azure.com" in uri:
            assert uri.endswith(f".monitoring.azure.com{SET_ID}/metrics")
            assert identity["audience"] == "https://monitoring.azure.com/"
            data = request["body"]["data"]["baseData"]
            assert (data["namespace"], data["metric"]) == ("tonnage", "Trouble")
            [point] = data["series"]
            self.troubled += point["dimValues"]
            return Answer(200, {})
        assert identity["audience"] == f"{MANAGEMENT}/"
        if uri == f"{MANAGEMENT}{SET_ID}/delete":
            [handle] = request["body"]["instanceIds"]
            self.deleted.append(self._name(handle))
            return Answer(202, {})
        if uri.endswith("/metrics"):
            return self._told(request["queries"])
        return self._page(uri)

    def _name(self, handle: str) -> str:
        return f"pool_{handle}" if self._numbers else handle

    def _page(self, uri: str) -> Answer:
        base, _, page = unquote(uri).partition("&page=")
        assert base == (
            f"{MANAGEMENT}{SET_ID}/virtualMachines?api-version=2024-03-01"
            if self._numbers
            else f"{MANAGEMENT}{GROUP_ID}/providers/Microsoft.Compute/virtualMachines"
            "?api-version=2024-03-01&$filter="
            f"'virtualMachineScaleSet/id' eq '{SET_ID}'"
        )
        start = int(page or 0)
        machines = list(self._machines.values())
        body: dict[str, Any] = {
            "value": [
                {
                    "name": machine.name,
                    "properties": {"timeCreated": moment(machine.age_s)},
                }
                for machine in machines[start : start + PAGE_SIZE]
            ]
        }
        if start + PAGE_SIZE < len(machines):
            body["nextLink"] = f"{base}&page={start + PAGE_SIZE}"
        return Answer(200, body)

    def _written(self, uri: str, headers: Mapping[str, str]) -> Answer:
        machine = self._machines[self._name(uri.removeprefix(self._alive))]
        if "written" in machine.refused:
            return Answer(503, {})
        if machine.wrote_s is None:
            return Answer(404, {})
        since = parsedate_to_datetime(headers["If-Modified-Since"])
        wrote = NOW - timedelta(seconds=machine.wrote_s)
        return Answer(200 if wrote > since else 304, {"handle": "3"})

    def _told(self, query: Mapping[str, str]) -> Answer:
        [name] = re.findall(r"^node eq '(.+)'$", query["$filter"])
        machine = self._machines[name]
        if query["metricnames"].lower() in machine.refused:
            return Answer(503, {})
        if machine.heard_s is None:
            return Answer(400, {"code": "BadRequest"})
        assert query["interval"] == "FULL"
        start, end = map(datetime.fromisoformat, query["timespan"].split("/"))
        assert end == NOW
        window_s = int((end - start).total_seconds())
        point: dict[str, Any] = {"timeStamp": query["timespan"].split("/")[0]}
        if happened(machine.heard_s, window_s):
            is_busy = query["metricnames"] == "Heartbeat" or happened(
                machine.worked_s, window_s
            )
            point["maximum"] = float(is_busy)
        return Answer(200, {"value": [{"timeseries": [{"data": [point]}]}]})


def moment(ago_s: int) -> str:
    return (NOW - timedelta(seconds=ago_s)).isoformat()


@pytest.fixture(scope="module")
def inputs(catalog) -> Mapping[str, Any]:
    text = SPEC.replace("CLOUD", "azure")
    spec = spec_of(text)
    graph = build_stack(spec, find(catalog, text, keep=0), spec.name).graph
    [app] = [r for r in graph.resources if r.name == "serve-watch"]
    return app.inputs


def parameters_of(inputs: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    values = {k: v["value"] for k, v in inputs["parameters"].items()}
    assert values["scale_set"] == {"$ref": "serve-nodes", "output": "id"}
    return {
        "identity": "watch-id",
        "scale_set": SET_ID,
        "resource_group": GROUP_ID,
        "group": {**values["group"], **changes},
    }


@pytest.mark.parametrize("numbers_machines", [False, True])
@pytest.mark.parametrize("seed", range(150))
def test_who_is_lost_goes_and_nobody_else(
    inputs: Mapping[str, Any], seed: int, numbers_machines: bool
) -> None:
    machines, idle_s = drawn(seed)
    if numbers_machines:
        machines = [
            machine._replace(name=machine.name.replace("-", "_"))
            for machine in machines
        ]
    parameters = parameters_of(
        inputs, idle_minutes=idle_s // 60, numbers_machines=numbers_machines
    )
    azure = Azure(
        machines,
        parameters["group"]["alive"],
        numbers_machines=numbers_machines,
    )
    LogicApp(inputs["definition"], parameters, azure, NOW).run()
    must_go = {m.name for m in machines if m.is_silent() or m.is_idle(idle_s)}
    answered = {m.name for m in machines if not m.refused}
    assert must_go & answered <= set(azure.deleted) <= must_go
    assert len(azure.deleted) == len(set(azure.deleted))
    assert azure.troubled == azure.deleted


def test_a_machine_of_unknown_age_is_left_alone(
    inputs: Mapping[str, Any],
) -> None:
    class Forgetful(Azure):
        def _page(self, uri: str) -> Answer:
            status, body = super()._page(uri)
            del body["value"][0]["properties"]["timeCreated"]
            return Answer(status, body)

    machines = [
        Machine(name, 90_000, None, None, None, frozenset())
        for name in ("pool-0000", "pool-0001")
    ]
    parameters = parameters_of(inputs)
    azure = Forgetful(
        machines, parameters["group"]["alive"], numbers_machines=False
    )
    LogicApp(inputs["definition"], parameters, azure, NOW).run()
    assert azure.deleted == ["pool-0001"]


def test_without_an_answer_about_the_machines_nothing_goes(
    inputs: Mapping[str, Any],
) -> None:
    asked = []

    def ask(request: dict[str, Any]) -> Answer:
        asked.append(request["uri"])
        return Answer(500, {"error": "internal"})

    LogicApp(inputs["definition"], parameters_of(inputs), ask, NOW).run()
    assert len(asked) == 1


def test_a_machine_whose_agent_has_died_ends(
    inputs: Mapping[str, Any], tmp_path: Path
) -> None:
    """The agent writes where the logic app looks for it."""
    world = WatchedWorld("azure", tmp_path)
    parameters = parameters_of(inputs)
    alive = parameters["group"]["alive"]

    def look(machine: SandboxMachine) -> list[str]:
        azure = Azure(world.seen(), alive, numbers_machines=False)
        folder = alive.rpartition("/work/")[2]
        assert world.signs(machine) in ([], [f"{folder}{machine.name}"])
        LogicApp(inputs["definition"], parameters, azure, NOW).run()
        return azure.deleted

    assert_a_dead_agent_ends_its_machine(world, look)
