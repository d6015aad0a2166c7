"""What runs between an interruption notice and the launch of the replacement, in call order.

`make docs-regenerate` writes docs/notice-to-launch.md with it. The control plane runs on a real
PostgreSQL: two machines train, an agent reports that the cloud takes one of them, and the profiler
writes down every function of `app/orchestration` and `app/domain` until the cloud is called.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from sqlalchemy import Engine, create_engine

from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.instances.launch_instances import LaunchInstances
from app.simulation.engine.scratch_database import scratch_database
from tests.support.sources.source_tree import ROOT
from tests.support.stories.orchestration_story import PaperCloud, Story
from trainer.protocol.agent_report import FactKind

LISTED = ("app/orchestration/", "app/domain/")
PHASES = {"select", "effect", "apply"}
INTRODUCTION = """\
# From the interruption notice to the launch of the replacement

Generated: `make docs-regenerate`. On the machine, `trainer/agent/runtime/notice_watch.py` polls its
cloud (`trainer/agent/notices`). `trainer/agent/rules/supervisor.py` makes a fact of the notice and
begins the drain, and `trainer/agent/runtime/report_loop.py` sends the fact at once.
`app/api/agents/agents.py` gives the report to `receive_agent_report`. Its transaction orders the
drain, chooses the pool, reserves the money and writes the launch. `launch_instances` is rung and
calls the cloud.

These functions run for a gang of two machines that loses one, in the order of their first call,
each below its caller. Left out are functions private to a file, methods of values, and what has
been listed above.
"""


@dataclass
class Called:
    """A function that ran, with those that it called, in the order of their first calls."""

    file: str
    name: str
    calls: dict[CodeType, Called] = field(default_factory=dict)

    @property
    def is_listed(self) -> bool:
        """Whether people follow the path by it: a function for others, or a controller's phase."""
        owner, _, name = self.name.rpartition(".")
        if self.name == CLOUD_CALLED:
            return True
        return not name.startswith("_") and (not owner or name in PHASES)


CLOUD_CALLED = PaperCloud.launch.__qualname__


def render(engine: Engine, folder: Path) -> str:
    """The page."""
    root = _notice_to_launch(engine, folder)
    ran = {(one.file, one.name) for one in _all(root)}
    lines = list(_lines(root, 0, set()))
    files = len({file for file, _ in ran})
    told = f"{len(ran)} functions of {files} files run; {len(lines)} are listed."
    return "\n".join([INTRODUCTION, told, "", "```", *lines, "```", ""])


def _notice_to_launch(engine: Engine, folder: Path) -> Called:
    """The calls from an agent's report of a notice to the call of the cloud."""
    story = Story(engine, folder)
    _, (taken, _) = story.training(nodes=2)
    root, launching = Called("", ""), LaunchInstances(story.runtime)
    with _written_down(root):
        story.tell(taken, FactKind.NOTICE, seconds_left=120.0, action="terminate")
        run_controller(story.runtime, launching)
    assert len(story.cloud.orders) == 2, "nothing was launched for the machine that is taken"
    # A story signs in for its agent, which is the api's part.
    root.calls = {code: one for code, one in root.calls.items() if one.file.startswith(LISTED[0])}
    return root


@contextmanager
def _written_down(root: Called) -> Iterator[None]:
    """Every function that this thread runs until it calls the cloud goes into the tree."""
    stack: list[tuple[FrameType, Called]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "return" and stack and stack[-1][0] is frame:
            stack.pop()
        if event != "call" or code.co_name.startswith("<"):
            return
        file = code.co_filename.removeprefix(f"{ROOT}/")
        is_cloud = code.co_qualname == CLOUD_CALLED
        if file.startswith(LISTED) or is_cloud:
            caller = stack[-1][1] if stack else root
            called = caller.calls.setdefault(code, Called(file, code.co_qualname))
            stack.append((frame, called))
        if is_cloud:
            sys.setprofile(None)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def _all(root: Called) -> Iterator[Called]:
    for one in root.calls.values():
        yield one
        yield from _all(one)


def _lines(caller: Called, depth: int, told: set[CodeType]) -> Iterator[str]:
    for code, one in caller.calls.items():
        if not one.is_listed:
            yield from _lines(one, depth, told)
        elif code not in told:
            told.add(code)
            yield _line(one, depth)
            yield from _lines(one, depth + 1, told)


def _line(one: Called, depth: int) -> str:
    if one.name == CLOUD_CALLED:
        return f"{'  ' * depth}CloudProvider.launch"
    return f"{'  ' * depth + one.name:<52}{one.file.removeprefix('app/')}"


def main() -> None:
    """Print the page."""
    with scratch_database() as url, tempfile.TemporaryDirectory() as folder:
        engine = create_engine(url)
        try:
            sys.stdout.write(render(engine, Path(folder)))
        finally:
            engine.dispose()


if __name__ == "__main__":
    main()
