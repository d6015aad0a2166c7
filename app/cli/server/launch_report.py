"""What a trial launch prints: its stages as they end, what it waits for meanwhile, the verdict.

A screen gets one line that is redrawn; a pipe gets a line now and then. Not here: what the stages
mean (`launch_stages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.cli.client import wording
from app.cli.client.terminal import Terminal, printable
from app.cli.server.launch_stages import LaunchPhase, StageView
from app.domain.units.durations import format_duration, measured_duration

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LINE_SECONDS: Final = 30.0
_NAME_WIDTH: Final = 10
_TIME_WIDTH: Final = 8
_TOLD_EVENTS: Final = frozenset(
    {"launch_refused", "waiting", "interruption_noticed", "instance_unreachable"}
)
"""What is worth a line before the stage that it belongs to has ended."""

_TOLD_AT_ONCE: Final = (LaunchPhase.RENT, LaunchPhase.BOOT, LaunchPhase.REGISTER)
"""The others take seconds, and are told together with what the job said."""

_MARKS: Final = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "dim")}


class LaunchReport:
    """Prints each thing once."""

    def __init__(self, terminal: Terminal, timeout_seconds: int) -> None:
        self._terminal = terminal
        self._limit = format_duration(timeout_seconds)
        self._shown: set[LaunchPhase] = set()
        self._events = 0
        self._said: set[str] = set()
        self._looks = 0
        self._next_line_at = _LINE_SECONDS
        self._drawn = False

    def begin(self, name: str, url: str) -> None:
        """The job is submitted."""
        self._terminal.line(f"{name} is submitted: {url}/jobs/{name}")

    def show(
        self, views: Sequence[StageView], events: Sequence[Mapping[str, Any]], seconds: float
    ) -> None:
        """What is new, and what is waited for now."""
        for event in events[self._events :]:
            said = printable(str(event["message"]))
            if event["kind"] in _TOLD_EVENTS and said not in self._said:
                self._said.add(said)
                self._line(f"  {self._terminal.paint(said, 'yellow')}")
        self._events = len(events)
        for view in views:
            if view.ok and view.stage in _TOLD_AT_ONCE and view.stage not in self._shown:
                self._stage(view)
        waits = next((view.stage for view in views if not view.ok), LaunchPhase.GIVE_BACK)
        if self._terminal.interactive:
            self._spin(f"{waits.value} … {format_duration(seconds)} of at most {self._limit}")
        elif seconds >= self._next_line_at:
            self._next_line_at = seconds + _LINE_SECONDS
            self._line(f"  {waits.value} … {format_duration(seconds)} of at most {self._limit}")

    def wait_for_end(self, left: Sequence[str]) -> None:
        """Machines are being released."""
        if left and self._terminal.interactive:
            self._spin(f"release … {wording.plural(len(left), 'machine')} left")

    def end(self, views: Sequence[StageView], spent_microusd: int, name: str) -> None:
        """The stages that were not printed yet, and the verdict."""
        self.clear()
        for view in views:
            if view.ok is False or view.stage not in self._shown:
                self._stage(view)
        verdict = "It works." if all(view.ok for view in views) else "It does not work yet."
        self._terminal.line()
        spent = wording.money(spent_microusd)
        self._terminal.line(f"{verdict} It cost {spent} so far: lowtide cost {name}")

    def note(self, text: str) -> None:
        """A remark on stderr, seen under --json as well."""
        self._terminal.note(text)

    def clear(self) -> None:
        """Take away the line that is redrawn."""
        if self._drawn:
            self._terminal.raw("\r\x1b[K")
        self._drawn = False

    def _stage(self, view: StageView) -> None:
        self._shown.add(view.stage)
        mark, style = _MARKS[view.ok]
        took = "" if view.seconds is None else measured_duration(view.seconds)
        head = f"{self._terminal.paint(mark, style)} {view.stage.value.ljust(_NAME_WIDTH)}"
        text = f"{head} {took.rjust(_TIME_WIDTH)}  {printable(view.sentence)}".rstrip()
        write = self._terminal.result if view.ok is False else self._terminal.line
        self.clear()
        write(text)
        indent = " " * (_NAME_WIDTH + _TIME_WIDTH + 5)
        for line in view.log:
            write(f"{indent}| {printable(line)}")
        if view.remedy:
            write(f"{indent}→ {printable(view.remedy)}")

    def _line(self, text: str) -> None:
        self.clear()
        self._terminal.line(text)

    def _spin(self, text: str) -> None:
        self._looks += 1
        frame = _FRAMES[self._looks % len(_FRAMES)]
        shown = f"{frame} {text}"[: self._terminal.width - 1]
        self._terminal.raw(f"\r\x1b[K{shown}")
        self._drawn = True
