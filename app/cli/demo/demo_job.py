"""One job of the demo as it goes: waiting for what must happen, with lines of progress meanwhile.

Not here: the story that is told of it (`demo`, `demo_proof`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.cli.client import wording
from app.cli.client.api_client import ApiClient
from app.cli.client.failures import JOB_FAILED, CommandFailed
from app.cli.demo.demo_losses import ProgressRecorder
from app.cli.demo.demo_story import progress
from app.domain.units.durations import format_duration, stopwatch

Document = Mapping[str, Any]

LIMIT_SECONDS: Final = 240.0
_LOOK_SECONDS: Final = 0.3
_LINE_SECONDS: Final = 6.0


class DemoNarrator:
    """What the demo has said, and how long it has run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()
        self.lines: list[str] = []

    def tell(self, *lines: str) -> None:
        """Say these lines, and keep them for the report."""
        for line in lines:
            self.lines.append(line)
            self._say(line)

    def clock(self) -> str:
        """Minutes and seconds since the beginning: "0:24"."""
        return stopwatch(time.monotonic() - self._began)


class DemoJob:
    """A job of the demo, from its submission on; all waits together are bounded.

    `labels`: m1, m2, … by the id of the machine. `recorder` gets every look at the machines.
    """

    def __init__(
        self, api: ApiClient, name: str, telling: DemoNarrator, recorder: ProgressRecorder
    ) -> None:
        self._api = api
        self._telling = telling
        self._recorder = recorder
        self._limit_at = time.monotonic() + LIMIT_SECONDS
        self._last_line = 0.0
        self.name = name
        self.labels: dict[str, str] = {}

    def until(self, met: Callable[[Document], bool], what: str, *, lines: bool = False) -> Document:
        """The job's document once `met`; raises CommandFailed when it fails, or takes too long."""
        while time.monotonic() < self._limit_at:
            job: Document = self._api.get(f"/jobs/{self.name}")
            for machine in job["machines"]:
                if machine["name"]:
                    self.labels[machine["id"]] = machine["name"]
                self._recorder.look(machine["provider_instance_id"])
            if met(job):
                return job
            if job["state"] in ("failed", "cancelled", "paused"):
                raise CommandFailed(
                    f"{self.name} {wording.standing(job['state'])}: {job['why']}", JOB_FAILED
                )
            due = time.monotonic() - self._last_line > _LINE_SECONDS
            if lines and due and job["progress"]["step"]:
                self._telling.tell(progress(self._telling.clock(), job))
                self._last_line = time.monotonic()
            time.sleep(_LOOK_SECONDS)
        raise CommandFailed(
            f"this did not happen within {format_duration(LIMIT_SECONDS)}: {what}", JOB_FAILED
        )

    def is_gone(self, instance_id: str) -> bool:
        """Whether the cloud has confirmed the end of a machine."""
        return any(i["id"] == instance_id and i["ended_at"] for i in self.instances())

    def events(self) -> list[Document]:
        """The history so far."""
        return self._api.pages(f"/jobs/{self.name}/events", limit=2000, turn="after")

    def first_placement(self) -> Document:
        """The decision that its first attempt began with: its pools, best first."""
        found = self._api.get(f"/jobs/{self.name}/explanation", {"limit": 100})["decisions"]
        placed = [one for one in found if one["fence"] == 1 and any(_chosen(one))]
        if not placed:
            raise CommandFailed(f"no decision about the first machines of {self.name} was recorded")
        return dict(placed[-1])

    def attempts(self) -> list[Document]:
        """Attempts by fence."""
        return list(self._api.get(f"/jobs/{self.name}/attempts")["items"])

    def checkpoints(self) -> list[Document]:
        """Committed checkpoints, newest first."""
        return list(self._api.get(f"/jobs/{self.name}/checkpoints")["items"])

    def instances(self) -> list[Document]:
        """Every machine it ever had."""
        return list(self._api.get("/instances", {"job": self.name, "live": False})["items"])

    def accuracy(self) -> float | None:
        """The test accuracy of the final checkpoint, None without one."""
        for point in self.checkpoints():
            if point["final"]:
                return dict(point["metrics"]).get("test_accuracy")
        return None


def _chosen(decision: Document) -> list[bool]:
    return [row["chosen"] for row in decision["pools"]]
