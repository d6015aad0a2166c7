"""The cloud's memory: what it rented out, one JSON document a line, the newest word counts.

A line is flushed to the disk before its caller goes on. The file has room ahead, zeros that the
disk has granted already, so that the ends of machines can be written while the disk is full.
Here: reading, appending, compacting. Not here: what the records mean (`machine`, `launching`).
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Final

from app.adapters.providers.local.files.durable_files import replace_durably
from app.adapters.providers.local.machines.machine import Machine

ROOM_BYTES: Final = 256 * 1024
"""Granted ahead: some 400 lines, more than the machines of one cloud have left to say."""

LAUNCH_ROOM_BYTES: Final = 64 * 1024
"""A launch must leave this much, or the end of its machines could not be written."""

_FILE = "cloud.jsonl"
_TORN_FILE = "cloud.jsonl.torn"
_ZERO = b"\0"


class JournalFull(Exception):
    """The disk has no room for a launch and for what must be written of it later."""


class Journal:
    """The journal of one folder; one process writes it. Close it to release the file.

    repairs: what was wrong with the file and was mended, a sentence each.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self.machines: dict[str, Machine] = {}
        self.launches: dict[str, dict[str, Any]] = {}
        self.repairs: list[str] = []
        self._unwritten: dict[str, None] = {}
        self._tail_is_open = False
        self._end = self._read()
        self._compact()
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        self._granted = 0  # up to here the disk has granted room
        self._make_room()

    @property
    def is_behind(self) -> bool:
        """Whether something could not be written as yet; `catch_up` tries again."""
        return bool(self._unwritten)

    def record_launch(self, token: str, launch: dict[str, Any], machines: list[Machine]) -> None:
        """A launch and its machines in one line: a crash leaves all of it or nothing.

        Raises JournalFull, and nothing is recorded, when the disk is too full for it.
        """
        documents = [machine.to_document() for machine in machines]
        line = _encoded({"token": token, "launch": launch, "machines": documents})
        self._make_room()
        if self._granted - self._end < len(line) + LAUNCH_ROOM_BYTES:
            raise JournalFull(f"no room for {self._path}")
        try:
            self._append(line)
        except OSError as error:
            raise JournalFull(str(error)) from error
        self.launches[token] = launch
        self.machines.update((machine.machine_id, machine) for machine in machines)

    def record_machine(self, machine: Machine) -> bool:
        """The machine as it is now; False when it could not be written as yet."""
        self._unwritten[machine.machine_id] = None
        return self.catch_up()

    def catch_up(self) -> bool:
        """Write what could not be written before; True once nothing is left."""
        for machine_id in list(self._unwritten):
            line = _encoded({"machines": [self.machines[machine_id].to_document()]})
            try:
                self._append(line)
            except OSError:
                return False
            del self._unwritten[machine_id]
        self._make_room()
        return True

    def close(self) -> None:
        """Release the file."""
        os.close(self._handle)

    def _append(self, line: bytes) -> None:
        """Write a whole line behind the last whole one, however often it was tried before."""
        at, rest = self._end, (b"\n" if self._tail_is_open else b"") + line
        try:
            while rest:
                written = os.pwrite(self._handle, rest, at)
                at, rest = at + written, rest[written:]
            os.fsync(self._handle)
        except OSError:
            # A piece must not stick out behind a shorter line that takes its place.
            with contextlib.suppress(OSError):
                os.pwrite(self._handle, _ZERO * (at - self._end), self._end)
            raise
        self._end, self._tail_is_open = at, False

    def _make_room(self) -> None:
        """Have the disk grant room for lines to come, if it has any."""
        if self._granted - self._end < ROOM_BYTES // 2:
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._handle, self._end, ROOM_BYTES)
                self._granted = self._end + ROOM_BYTES

    def _read(self) -> int:
        """Take in every whole line; where the next one goes."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        content = content.rstrip(_ZERO)
        self._tail_is_open = content[-1:] not in (b"", b"\n")
        torn = []
        for number, written in enumerate(content.split(b"\n"), start=1):
            text = written.strip(_ZERO + b" \r")
            if text and not self._take_in(text):
                torn.append(text)
                self.repairs.append(
                    f"line {number} of {self._path.name} ({len(text)} bytes) was torn and is left "
                    f"out; what was left of it is in {_TORN_FILE}"
                )
        if torn:
            with contextlib.suppress(OSError):
                replace_durably(self._path.with_name(_TORN_FILE), _as_text(torn))
        return len(content)

    def _take_in(self, text: bytes) -> bool:
        """False for anything but a whole line of ours."""
        try:
            line = json.loads(text)
            machines = [Machine.from_document(document) for document in line["machines"]]
            launches = {line["token"]: dict(line["launch"])} if "token" in line else {}
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        self.launches.update(launches)
        self.machines.update((machine.machine_id, machine) for machine in machines)
        return True

    def _compact(self) -> None:
        """One line per launch and per machine, without what later lines replaced.

        On a full disk the file stays as it is, and the next line goes behind all that is there.
        """
        lines: list[dict[str, Any]] = [
            {"token": token, "launch": launch, "machines": []}
            for token, launch in self.launches.items()
        ]
        lines += [{"machines": [machine.to_document()]} for machine in self.machines.values()]
        content = b"".join(map(_encoded, lines))
        try:
            replace_durably(self._path, content.decode())
        except OSError as error:
            self.repairs.append(f"{self._path.name} could not be rewritten: {error.strerror}")
        else:
            self._end, self._tail_is_open = len(content), False


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _as_text(pieces: list[bytes]) -> str:
    return "".join(piece.decode("utf-8", "replace") + "\n" for piece in pieces)
