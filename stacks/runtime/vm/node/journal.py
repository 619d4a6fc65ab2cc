"""Tells the cloud what agent, work and containers of this machine have written to its journal.

The journal is the queue: it lies on the disk, and a cursor says how far it was told. So a machine
that was offline, or has restarted, goes on where it was, and nothing is held in memory.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.cloud import TELL_TIMEOUT_S, Line
from stacks.runtime.vm.node.host import (
    CommandError,
    RequestError,
    read_document,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

POSITION_PATH = "/var/lib/tonnage/journal.json"
UNITS = ("tonnage-agent", "tonnage-work")
CONTAINERS = (
    "tonnage-serve",
    # Engines beside the first one.
    *(f"tonnage-serve-{number}" for number in range(1, 7)),
    "tonnage-train",
    "tonnage-rxdm",
    "tonnage-router",
    "tonnage-notebook",
    "tonnage-hub",
)
# What every cloud takes in one request: lines, bytes of text, and time between them.
BATCH_LINES = 500
BATCH_BYTES = 500_000
BATCH_SPAN_US = 23 * 3600 * 1_000_000
LINE_CHARACTERS = 2000
MOST_BATCHES = 4
# Of one source; what floods the journal would cost more than it says.
LINES_A_MINUTE = 300
MINUTE_US = 60_000_000
# Nothing of the journal may end the agent, such as an entry without a time.
FAILURES = (
    RequestError,
    CommandError,
    OSError,
    LookupError,
    TypeError,
    ValueError,
)
FIRST_WAIT_S = 20.0
LONGEST_WAIT_S = 600.0
# What a cloud has not taken for so long is given up, but for the newest lines.
GIVEN_UP_S = 3600.0
LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
LEVEL_CHARACTERS = 80
COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
UNPRINTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Secrets that programs print by mistake; what stays is what they were called.
SECRETS = re.compile(
    r"(?:AKIA|ASIA)[A-Z0-9]{16}|hf_\w{20,}|sk-[\w-]{20,}|gh[pousr]_\w{30,}"
    r"|ya29\.[\w.-]+|eyJ[\w-]+\.eyJ[\w-]+\.[\w-]*"
    r"|(?i:(?<=bearer )\S+|(?<=sig=)[^&\s\"']+|(?<=accountkey=)[^;\s]+"
    r"|(?<=authorization: basic )\S+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@))"
)
# Those that stand after their names, as in JSON, settings and arguments; numbers count tokens.
NAMED_SECRETS = re.compile(
    r"(?i)((?:password|passwd|secret|access[_-]?key|api[_-]?key)[\"']?\s*[=:]\s*"
    r"|--(?:password|secret|api-key|token)\s+|token[\"']?\s*[=:]\s*(?![\"']?\d+\b))"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;&}]{4,})"
)


class Journal:
    """The journal of this machine, as far as it was told to the cloud."""

    def __init__(self, machine: Host, cloud: CloudApi) -> None:
        self._machine = machine
        self._cloud = cloud
        self._next_s = self._wait_s = 0.0
        self._failed_s: float | None = None
        self._position: dict[str, Any] = (
            read_document(machine.path(POSITION_PATH)) or {}
        )
        self._problem = ""

    def ship(self, *, at_once: bool = False) -> None:
        """Tell what is new; `at_once` also while a cloud that refused is let alone.

        What fails is tried again, at first after 20 seconds and later every ten minutes.
        """
        now_s = self._machine.now_s()
        if now_s < self._next_s and not at_once:
            return
        try:
            for _ in range(MOST_BATCHES):
                if not self._ship_batch():
                    break
        except FAILURES as error:
            self._put_off(now_s, str(error))
        else:
            self._wait_s, self._failed_s, self._problem = 0.0, None, ""

    def _put_off(self, now_s: float, problem: str) -> None:
        if self._failed_s is None:
            self._failed_s = now_s
        # The line itself would be the next that cannot be told: once is enough.
        if problem != self._problem:
            self._problem = problem
            self._machine.log(f"the journal is not told: {problem}")
        if now_s - self._failed_s >= GIVEN_UP_S:
            self._failed_s = None
            self._machine.log("an hour of the journal is given up")
            self._keep({})
        self._wait_s = min(LONGEST_WAIT_S, max(FIRST_WAIT_S, 2 * self._wait_s))
        self._next_s = now_s + self._wait_s

    def _ship_batch(self) -> bool:
        """Tell the next lines, and say whether there are more."""
        # What was not told is not counted either.
        position = copy.deepcopy(self._position)
        entries = self._entries(position.get("cursor", ""))
        lines: list[Line] = []
        told_bytes = told_entries = 0
        for entry in entries:
            is_far = (
                lines and _time_us(entry) - lines[0].time_us > BATCH_SPAN_US
            )
            if is_far or told_bytes >= BATCH_BYTES:
                break
            admitted = list(_admitted(entry, position))
            lines += admitted
            told_bytes += sum(len(line.text.encode()) for line in admitted)
            told_entries += 1
            position["cursor"] = entry["__CURSOR"]
        if lines:
            self._cloud.tell(lines)
        if entries:
            self._keep(position)
        return told_entries < len(entries) or len(entries) == BATCH_LINES

    def _entries(self, cursor: str) -> list[dict[str, Any]]:
        """Return the first entries after a cursor; without one the last of all."""
        matches = [
            *(f"_SYSTEMD_UNIT={unit}.service" for unit in UNITS),
            *(f"CONTAINER_NAME={name}" for name in CONTAINERS),
        ]
        text = self._machine.run(
            "journalctl",
            "--quiet",
            "--no-pager",
            # Else long messages are left out.
            "--all",
            "--output=json",
            "--output-fields=MESSAGE,CONTAINER_NAME,_SYSTEMD_UNIT",
            f"--lines={BATCH_LINES}",
            *([f"--after-cursor={cursor}"] if cursor else []),
            # A plus between two matches is an or.
            *" + ".join(matches).split(),
            timeout_s=TELL_TIMEOUT_S,
        )
        # Other ends of lines than \n may stand in a message.
        return [json.loads(line) for line in text.split("\n") if line]

    def _keep(self, position: dict[str, Any]) -> None:
        self._position = position
        # On a full disk it is known until the machine restarts.
        with suppress(OSError):
            write_whole(self._machine.path(POSITION_PATH), json.dumps(position))


def _admitted(
    entry: dict[str, Any], position: dict[str, Any]
) -> Iterator[Line]:
    """Yield the line of an entry unless its minute is full, and what a full minute has lost."""
    time_us = _time_us(entry)
    minute = time_us // MINUTE_US
    source = str(
        entry.get("CONTAINER_NAME") or entry.get("_SYSTEMD_UNIT", "")
    ).removesuffix(".service")
    if position.get("minute") != minute:
        for name, count in sorted(position.get("counts", {}).items()):
            if count > LINES_A_MINUTE:
                text = (
                    f"{count - LINES_A_MINUTE} lines of a minute are not told"
                )
                yield Line(time_us, name, "WARNING", text, _key(entry, name))
        position["minute"], position["counts"] = minute, {}
    counts: dict[str, int] = position["counts"]
    counts[source] = counts.get(source, 0) + 1
    text = clean(entry.get("MESSAGE"))
    if text and counts[source] <= LINES_A_MINUTE:
        level = LEVEL.search(text[:LEVEL_CHARACTERS])
        yield Line(
            time_us, source, level[0] if level else "", text, _key(entry, "")
        )


def clean(message: Any) -> str:
    """Return a message as one text, without colors, secrets and what a progress bar overwrote."""
    # What is not UTF-8 comes as numbers.
    if isinstance(message, list):
        message = bytes(
            byte for byte in message if isinstance(byte, int)
        ).decode("utf-8", "replace")
    text = COLORS.sub("", str(message or "")).rstrip("\r\n")
    text = UNPRINTED.sub("", text.rpartition("\r")[2])
    text = NAMED_SECRETS.sub(r"\1***", SECRETS.sub("***", text))
    return text[:LINE_CHARACTERS].strip()


def _time_us(entry: dict[str, Any]) -> int:
    return int(entry["__REALTIME_TIMESTAMP"])


def _key(entry: dict[str, Any], suffix: str) -> str:
    """Return what is the same when a line is told again."""
    text = entry["__CURSOR"] + suffix
    return hashlib.sha256(text.encode()).hexdigest()[:32]
