"""A batch: input files of the bucket are answered by the engine of this node, file by file.

    batch/<job>/input/00000.jsonl    requests, one a line: {"custom_id", "url", "body"}
    batch/<job>/lease/00000.jsonl    the node that works on them
    batch/<job>/output/00000.jsonl   their answers, written when all of the file are there
    batch/<job>/errors/00000.jsonl   what was refused
    batch/<job>/manifest.json        {"files": how many there are}, written last by who submits

A file whose lease nobody renews is taken by another node. A line is that of the batch files of
OpenAI, so that what was made for one service runs here.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node.cloud import notice_of
from stacks.runtime.vm.node.host import RequestError
from stacks.runtime.vm.node.lease import Lease, Leases
from stacks.runtime.vm.node.serve import ServingNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

PREFIX = "batch/"
MANIFEST = "manifest.json"
# Of one request, in seconds: a long answer behind a full queue.
ANSWER_TIMEOUT_S = 3600.0
# Rounds in which lines that the engine could not answer are sent again, and the time between.
MOST_ROUNDS = 5
RETRY_S = 20.0
# While answers are waited for, the engine and the lease are looked after so often.
PULSE_S = 15.0


class LeftFileError(Exception):
    """Another node answers the file, or begins it anew."""


class LineResult(NamedTuple):
    """What came of a line: the line of its answer or of its error."""

    text: str
    is_error: bool = False
    is_retried: bool = False


class BatchNode:
    """The part of a batch that this node does, with the engine that it serves.

    Settings: parallel, runs_once, and those of ServingNode.
    """

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        work: Work,
        settings: Mapping[str, Any],
    ) -> None:
        self._server = ServingNode(machine, cloud, work, settings)
        self._machine = machine
        self._cloud = cloud
        self._work = work
        self._settings = settings
        self._leases = Leases(machine, cloud)
        self._pulsed_s = machine.now_s()

    def look(self) -> bool:
        """Answer one file if there is one; False once everything is answered."""
        self._server.look()
        if not (self._server.is_ready and self._server.leads):
            return True
        keys = {item.key: item.version for item in self._cloud.list(PREFIX)}
        for key in sorted(key for key in keys if _is_part(key, "input")):
            output = key.replace("/input/", "/output/")
            if output not in keys and self._answer_file(key, keys):
                return True
        is_open = any(
            _is_part(key, "input")
            and key.replace("/input/", "/output/") not in keys
            for key in keys
        )
        manifests = [key for key in keys if key.endswith(f"/{MANIFEST}")]
        if (
            manifests
            and not is_open
            and self._settings["runs_once"]
            and all(self._is_whole(key, keys) for key in manifests)
        ):
            self._work.tell("done", "everything is answered")
            return False
        # Other nodes do the rest, or nothing is there to be done.
        self._work.tell("working", "wait for input", is_busy=is_open)
        return True

    def _is_whole(self, manifest_key: str, keys: dict[str, str]) -> bool:
        """Whether every file that was submitted has its answers."""
        manifest = self._cloud.read(manifest_key)
        folder = manifest_key.rpartition("/")[0]
        outputs = [key for key in keys if key.startswith(f"{folder}/output/")]
        count = manifest and file_count(manifest.data)
        return count is not None and len(outputs) >= count

    def leave(self) -> None:
        """Stop; another node takes the file when the lease is old."""
        self._server.leave()

    def _answer_file(self, key: str, keys: dict[str, str]) -> bool:
        """Take the lease of a file and answer it; False when another node has it."""
        lease_key = key.replace("/input/", "/lease/")
        if not self._leases.is_free(lease_key, keys):
            return False
        lease = Lease(
            self._machine, self._cloud, lease_key, keys.get(lease_key, "")
        )
        source = self._cloud.read(key) if lease.write() else None
        if source is None:
            return False
        try:
            answers, errors = self._answer_lines(
                source.data, partial(self._pulse, lease, key)
            )
        except LeftFileError as error:
            self._machine.log(f"{key}: {error}")
            return True
        if errors:
            self._cloud.write(
                key.replace("/input/", "/errors/"), "".join(errors).encode()
            )
        # The answers come last: with them the file is done.
        self._cloud.write(
            key.replace("/input/", "/output/"), "".join(answers).encode()
        )
        self._cloud.delete(lease_key)
        return True

    def _answer_lines(
        self, source: bytes, pulse: Callable[[], None]
    ) -> tuple[list[str], list[str]]:
        """Return the lines of the answers and of the errors. Raises LeftFileError."""
        answers: list[str] = []
        errors: list[str] = []
        # A line ends with a line feed alone: others may stand in a text.
        pending = [line for line in source.split(b"\n") if line.strip()]
        rounds = 0
        while pending:
            unanswered = []
            for line, outcome in self._outcomes(pending, pulse):
                if outcome.is_retried and rounds < MOST_ROUNDS:
                    unanswered.append(line)
                    continue
                (errors if outcome.is_error else answers).append(outcome.text)
            pending = unanswered
            rounds += 1
            if pending:
                self._machine.sleep(RETRY_S)
                pulse()
        return answers, errors

    def _pulse(self, lease: Lease, key: str) -> None:
        """Look after the engine and the lease while a file is answered. Raises LeftFileError."""
        if self._machine.now_s() - self._pulsed_s < PULSE_S:
            return
        self._pulsed_s = self._machine.now_s()
        self._server.look()
        if notice := notice_of(self._machine, self._cloud):
            self._cloud.delete(lease.key)
            raise LeftFileError(f"the machine leaves: {notice}")
        # The engine may be started again meanwhile, or its group may be gone.
        if not self._server.is_ready:
            self._cloud.delete(lease.key)
            raise LeftFileError("the engine is started again")
        if not self._renew(lease):
            raise LeftFileError("another node has taken it")
        self._work.tell("working", f"answer {key}")

    def _renew(self, lease: Lease) -> bool:
        """Keep the lease; a cloud that does not answer for a moment takes no file away."""
        try:
            return lease.renew()
        except RequestError as error:
            self._machine.log(f"{lease.key} is not renewed: {error}")
            return True

    def _outcomes(
        self, lines: list[bytes], pulse: Callable[[], None]
    ) -> Iterator[tuple[bytes, LineResult]]:
        """Send lines to the engine, as many at once as it takes, and yield what comes of each."""
        workers = ThreadPoolExecutor(self._settings["parallel"])
        futures = [workers.submit(self._answer, line) for line in lines]
        try:
            for line, future in zip(lines, futures, strict=True):
                yield line, _awaited(future, pulse)
                pulse()
        finally:
            workers.shutdown(wait=False, cancel_futures=True)

    def _answer(self, line: bytes) -> LineResult:
        """Send a line to the engine."""
        try:
            request = json.loads(line)
            identity, url, body = (
                request["custom_id"],
                request.get("url", "/v1/chat/completions"),
                json.dumps(request["body"]).encode(),
            )
        except (ValueError, KeyError, TypeError) as error:
            problem = f"not a request: {error!r}"
            shown = line.decode("utf-8", "replace")
            return LineResult(
                _line({"line": shown, "error": problem}), is_error=True
            )
        try:
            answer = self._machine.send(
                "POST",
                f"http://127.0.0.1:{self._settings['port']}{url}",
                {"content-type": "application/json"},
                body,
                timeout_s=ANSWER_TIMEOUT_S,
            )
        except RequestError as error:
            return LineResult(
                _line({"custom_id": identity, "error": str(error)}),
                is_error=True,
                # What the engine refuses, it refuses again.
                is_retried=not 400 <= error.status < 500,
            )
        try:
            response = {"status_code": answer.status, "body": answer.document()}
        except ValueError as error:
            text = _line({"custom_id": identity, "error": repr(error)})
            return LineResult(text, is_error=True)
        return LineResult(_line({"custom_id": identity, "response": response}))


def file_count(manifest: bytes) -> int | None:
    """Return how many files a batch has; None when its manifest cannot be read."""
    try:
        count = json.loads(manifest)["files"]
    except (ValueError, LookupError, TypeError):
        return None
    return count if isinstance(count, int) else None


def _awaited(
    future: Future[LineResult], pulse: Callable[[], None]
) -> LineResult:
    """Return what comes of a line, and look after the machine meanwhile."""
    while not wait([future], timeout=PULSE_S).done:
        pulse()
    return future.result()


def _is_part(key: str, part: str) -> bool:
    return f"/{part}/" in key and key.endswith(".jsonl")


def _line(document: Mapping[str, Any]) -> str:
    return f"{json.dumps(document)}\n"
