"""Runs the agent or the work of this machine: `python3 -m stacks.runtime.vm.node agent|work`."""

from __future__ import annotations

import base64
import bz2
import json
import signal
import sys
from functools import partial
from importlib import import_module, invalidate_caches
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.agent import Agent
from stacks.runtime.vm.node.cloud import open_cloud
from stacks.runtime.vm.node.host import Host, write_whole
from stacks.runtime.vm.node.work import FAILURES, StepError, Work, run_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi


SETTINGS_PATH = "/etc/tonnage/node.json"


def main(program: str) -> None:
    """Run one of the two programs until the machine ends."""
    machine = Host()
    settings = json.loads(
        machine.path(SETTINGS_PATH).read_text(encoding="utf-8")
    )
    # A unit that is stopped ends like a program that is interrupted: it cleans up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if program == "agent":
        run_agent(machine, settings)
    else:
        run_work(machine, settings)


def run_agent(machine: Host, settings: Mapping[str, Any]) -> None:
    """Look again and again; nothing ends the agent but its machine."""
    cloud = open_cloud(machine, settings["cloud"])
    agent = Agent(machine, cloud, settings["agent"])
    while True:
        try:
            agent.look()
        except FAILURES as error:
            machine.log(f"looks again: {error}")
        machine.sleep(settings["agent"]["poll_s"])


def run_work(machine: Host, settings: Mapping[str, Any]) -> None:
    """Bring what the machine does not have of its program, and do the work."""
    cloud = open_cloud(machine, settings["cloud"])
    work = Work(machine)
    run_steps(
        machine,
        work,
        [
            (
                "program",
                partial(bring_program, machine, cloud, settings["program"]),
            )
        ],
    )
    job = import_module("stacks.runtime.vm.node.job")
    job.do_work(machine, cloud, work, settings)


def bring_program(machine: Host, cloud: CloudApi, key: str) -> None:
    """Install the rest of the program from the bucket; without a key all of it is here."""
    if not key:
        return
    stored = cloud.read(key)
    if stored is None:
        raise StepError(f"{key} is not in the bucket")
    sources = json.loads(bz2.decompress(base64.b85decode(stored.data)))
    for path, text in sources.items():
        write_whole(machine.path(path), text)
    invalidate_caches()


if __name__ == "__main__":
    main(sys.argv[1])
