"""A folder of specs, some of them hostile, and its pages as a client of HTTP asks for them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.cli.compose import PlanningOptions
from planner.cli.file_tree import FolderTree
from planner.cli.served.worker import FolderPlanner
from tests.conftest import BLUEPRINTS, chat

HOSTILE = "<script>alert(1)<&\"'.yaml"
HOST = "http://127.0.0.1:8080"
BROKEN = """
apiVersion: tonnage/v1
kind: Inference
name: broken
model: {name: llama-3.1-8b}
traffic: {peak_rpx: 3}
labels: {team: '<b onclick="x">&'}
"""
TOO_LARGE = """
apiVersion: tonnage/v1
kind: Workspace
name: large
accelerator: {memory: 200GiB}
where: {accelerators: {allow: [t4]}}
"""
DESK = """
apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 16GiB}
"""


def fill(folder: Path) -> None:
    """Specs that plan, one that is broken, one that nothing meets, and what is none."""
    (folder / "team").mkdir()
    (folder / "chat.yaml").write_text(chat())
    (folder / "team" / "more.yaml").write_text(chat(traffic="peak_rps: 60"))
    (folder / HOSTILE).write_text(TOO_LARGE)
    (folder / "broken.yaml").write_text(BROKEN)
    (folder / "other.yaml").write_text("services: {web: {}}\n")
    (folder / "other.json").write_text('{"schema": "tonnage.plan/1"}')
    night = next(path for path in BLUEPRINTS if path.stem == "workspace-night")
    (folder / "night.yaml").write_text(night.read_text())
    (folder / "team" / "desk.yaml").write_text(DESK)
    outside = folder.parent / "outside.yaml"
    outside.write_text(chat())
    (folder / "link.yaml").symlink_to(outside)
    (folder / "linked").symlink_to(folder.parent)
    (folder / ".hidden.yaml").write_text(chat())


def digests(folder: Path) -> dict[str, str]:
    """What every file of a folder holds."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class HereWorkers:
    """A planner of this process, which counts what it is asked."""

    def __init__(self, planner: FolderPlanner) -> None:
        self.planner = planner
        self.asked: list[str] = []

    async def run(
        self, home: str, work: Callable[..., Any], *arguments: object
    ) -> Any:
        self.asked.append(home)
        return work(self.planner, *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "specs"
    path.mkdir()
    fill(path)
    return path


@pytest.fixture(scope="module")
def workers(folder: Path) -> HereWorkers:
    return HereWorkers(
        FolderPlanner(folder, PlanningOptions(simulate="default"))
    )


class Client:
    """Asks an application without a socket, on one loop as a server has one."""

    def __init__(self, app: Any) -> None:
        httpx = pytest.importorskip("httpx")
        self.url = httpx.URL(HOST)
        self.loop = asyncio.new_event_loop()
        self.session = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=HOST
        )

    def ask(self, method: str, address: str, **headers: str) -> Any:
        """An address goes out letter by letter as it is given."""
        url = self.url.copy_with(raw_path=address.encode())
        request = self.session.build_request(
            method,
            url,
            headers={key.replace("_", "-"): headers[key] for key in headers},
        )
        return self.loop.run_until_complete(self.session.send(request))

    def get(self, address: str, **headers: str) -> Any:
        return self.ask("GET", address, **headers)

    def close(self) -> None:
        self.loop.run_until_complete(self.session.aclose())
        self.loop.close()


@pytest.fixture(scope="module")
def client(folder: Path, workers: HereWorkers) -> Iterator[Client]:
    """Pages of the folder."""
    pytest.importorskip("starlette")
    from planner.cli.served.app import FolderPages
    from planner.cli.served.guard import Guard
    from planner.cli.served.library import Library

    library = Library(FolderTree(folder), workers, 90)
    site = FolderPages(library, "specs", workers.planner.catalog.as_of)
    guard = Guard(site.app(), frozenset({"plans.local"}), is_public=False)
    asking = Client(guard)
    yield asking
    asking.close()
