"""The cloud's memory: what it rented out, one JSON document a line, the newest word counts.

A line is flushed to the disk before its caller goes on. Here: reading, appending, compacting.
Not here: what the records mean (`machine`, `launching`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from app.adapters.providers.local.durable_files import replace_durably
from app.adapters.providers.local.machine import Machine

_FILE = "cloud.jsonl"


class Journal:
    """The journal of one folder; one process writes it. Close it to release the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self.machines: dict[str, Machine] = {}
        self.launches: dict[str, dict[str, Any]] = {}
        self._read()
        self._compact()
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def record_launch(self, token: str, launch: dict[str, Any], machines: list[Machine]) -> None:
        """A launch and its machines in one line: a crash leaves all of it or nothing."""
        self.launches[token] = launch
        self.machines.update((machine.machine_id, machine) for machine in machines)
        documents = [machine.to_document() for machine in machines]
        self._append({"token": token, "launch": launch, "machines": documents})

    def record_machine(self, machine: Machine) -> None:
        """The machine as it is now."""
        self._append({"machines": [machine.to_document()]})

    def close(self) -> None:
        """Release the file."""
        os.close(self._handle)

    def _append(self, line: dict[str, Any]) -> None:
        os.write(self._handle, (json.dumps(line) + "\n").encode())
        os.fsync(self._handle)

    def _read(self) -> None:
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return
        for number, text in enumerate(lines, start=1):
            try:
                line = json.loads(text)
            except ValueError:
                if number == len(lines):
                    break  # torn by a crash before its caller was answered
                raise
            if "token" in line:
                self.launches[line["token"]] = line["launch"]
            for document in line["machines"]:
                machine = Machine.from_document(document)
                self.machines[machine.machine_id] = machine

    def _compact(self) -> None:
        """One line per launch and per machine, without what later lines replaced."""
        lines: list[dict[str, Any]] = [
            {"token": token, "launch": launch, "machines": []}
            for token, launch in self.launches.items()
        ]
        lines += [{"machines": [machine.to_document()]} for machine in self.machines.values()]
        replace_durably(self._path, "".join(json.dumps(line) + "\n" for line in lines))
