"""The trainers of one attempt as one thing: they step together, save together, and die together.

Lives here: progress in virtual time, checkpoints, drain, and what a lost rank does to the others.
Not here: the agent on each machine (`simulated_agent`), which is real.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.simulation.engine.event_loop import Event, EventLoop
from app.simulation.engine.seeded_entropy import Dice
from trainer.agent.rules.agent_state import LocalCheckpoint, TrainerEnd
from trainer.agent.rules.observations import (
    CheckpointReady,
    Observation,
    ProgressSeen,
    TrainerExited,
)
from trainer.protocol.agent_report import EXIT_DRAINED, TrainerError, TrainerOutcome

_EPSILON_SECONDS = 1e-6
_STUBBORN_SECONDS = 90.0

Tell = Callable[[Observation], None]


@dataclass(frozen=True)
class Workload:
    """What the trainers of a job do. `steps_per_second` is of the whole gang.

    fails_at: the step at which rank 0 ends with `exit_code`; hangs_at: at which all stand still.
    Both happen in the first attempt that reaches the step, once. start_up_seconds: least and most
    from the start of the processes to their stepping; each attempt draws its own. stubborn: it
    ignores SIGTERM, and SIGKILL ends it only after a while, as where its storage hangs.
    """

    total_steps: int
    steps_per_second: float = 0.5
    checkpoint_seconds: float = 1_200.0
    progress_seconds: float = 600.0
    fails_at: int | None = None
    hangs_at: int | None = None
    out_of_memory: bool = False
    start_up_seconds: tuple[float, float] = (0.0, 0.0)
    stubborn: bool = False


class Trainings:
    """Every gang of the world, by job and fence."""

    def __init__(self, loop: EventLoop, dice: Dice) -> None:
        self._loop = loop
        self._dice = dice
        self._gangs: dict[tuple[str, int], SimulatedGang] = {}
        self.workloads: dict[str, Workload] = {}
        self._misfortunes_used: set[tuple[str, str]] = set()

    def gang(self, job_id: str, fence: int, size: int) -> SimulatedGang:
        """The gang of an attempt."""
        key = (job_id, fence)
        if key not in self._gangs:
            self._gangs[key] = SimulatedGang(self, job_id, fence, size, self._loop, self._dice)
        return self._gangs[key]

    def running(self) -> list[SimulatedGang]:
        """Gangs that step just now, by job and fence."""
        return [gang for _, gang in sorted(self._gangs.items()) if gang.stepping]

    def misfortune(self, job_id: str, kind: str) -> bool:
        """Whether a workload's own trouble is still to come; it comes once."""
        if (job_id, kind) in self._misfortunes_used:
            return False
        self._misfortunes_used.add((job_id, kind))
        return True


class SimulatedGang:
    """The trainers of one attempt, one per machine."""

    def __init__(
        self,
        trainings: Trainings,
        job_id: str,
        fence: int,
        size: int,
        loop: EventLoop,
        dice: Dice,
    ) -> None:
        self.job_id = job_id
        self.fence = fence
        self.size = size
        self.hung = False
        self._trainings = trainings
        self._loop = loop
        self._dice = dice
        self._ranks: dict[int, Tell] = {}
        self._ever: set[int] = set()
        self._began_seconds: float | None = None
        self._began_step = 0
        self._next: Event | None = None
        self._draining = False
        self._saves = 0
        self._saved_at = 0.0

    @property
    def stepping(self) -> bool:
        """All ranks are there and make steps."""
        return self._began_seconds is not None and bool(self._ranks) and not self.hung

    @property
    def workload(self) -> Workload:
        """What it does."""
        return self._trainings.workloads[self.job_id]

    def step(self) -> int:
        """The newest step."""
        if self._began_seconds is None:
            return self._began_step
        ran = self._loop.clock.elapsed_seconds - self._began_seconds + _EPSILON_SECONDS
        reached = self._began_step + int(ran * self.workload.steps_per_second)
        return min(reached, self.workload.total_steps)

    def join(self, rank: int, from_step: int, tell: Tell) -> None:
        """A rank's trainer has started; when all have, they begin to step."""
        self._ranks[rank] = tell
        self._ever.add(rank)
        self._began_step = from_step
        if self._draining:
            self._after(self._dice.uniform(0.1, 1.0), lambda: self._end_rank(rank, _terminated()))
        elif len(self._ever) == self.size and len(self._ranks) == self.size:
            least, most = self.workload.start_up_seconds
            if most > 0:
                self._next = self._after(self._dice.uniform(least, most), self._begin)
            else:
                self._begin()

    def drain(self, rank: int) -> None:
        """SIGTERM to one rank: all agree on it after the present step, save and end."""
        if rank not in self._ranks or self._draining or self.workload.stubborn:
            return
        self._draining = True
        if not self.stepping:
            if not self.hung:
                for one in sorted(self._ranks):
                    self._after(0.5, self._ender(one, _terminated()))
            return
        self._after(self._dice.uniform(1.0, 8.0), self._drained)

    def kill(self, rank: int) -> None:
        """SIGKILL to one rank; the others lose their peer."""
        killed = TrainerEnd(TrainerOutcome.KILLED, exit_code=-9, step=self.step())
        seconds = _STUBBORN_SECONDS if self.workload.stubborn else 0.2
        self._after(seconds, lambda: self._end_rank(rank, killed))

    def vanish(self, rank: int) -> None:
        """The rank's machine is gone: it says nothing any more."""
        if self._ranks.pop(rank, None) is not None:
            self._peer_lost()

    def fail(self, exit_code: int, out_of_memory: bool = False) -> None:
        """Rank 0 ends by an error of its own."""
        text = "CUDA out of memory" if out_of_memory else "simulated failure"
        error = TrainerError(text, rank=0, type="RuntimeError", out_of_memory=out_of_memory)
        end = TrainerEnd(TrainerOutcome.FAILED, exit_code, self.step(), error)
        self._end_rank(0, end)

    # --- inside ---

    def _begin(self) -> None:
        """The start-up is over, unless a rank was lost or drained in it."""
        if not self._draining and len(self._ranks) == self.size:
            self._began_seconds = self._saved_at = self._loop.clock.elapsed_seconds
            self._plan()

    def _plan(self) -> None:
        """The next instant at which the trainers have something to say."""
        if not self.stepping or self._draining:
            return
        work = self.workload
        left = (work.total_steps - self.step()) / work.steps_per_second
        since_save = self._loop.clock.elapsed_seconds - self._saved_at
        to_save = max(0.0, work.checkpoint_seconds - since_save)
        waits = [left, to_save, work.progress_seconds]
        if self.step() == self._began_step:
            waits.append(1 / work.steps_per_second)  # a trainer tells its first step at once
        for step in (work.fails_at, work.hangs_at):
            if step is not None and step > self.step():
                waits.append((step - self.step()) / work.steps_per_second)
        self._next = self._after(max(0.5, min(waits)), self._advance)

    def _advance(self) -> None:
        if not self.stepping or self._draining:
            return
        step, work = self.step(), self.workload
        for tell in self._tells():
            tell(ProgressSeen(self.fence, step, work.total_steps, {"loss": 4.0 / (1 + step)}))
        if self._meets("fails", work.fails_at, step):
            self.fail(1, work.out_of_memory)
            return
        if self._meets("hangs", work.hangs_at, step):
            self.hung = True
            return
        if step >= work.total_steps:
            self._finish(step)
            return
        if self._loop.clock.elapsed_seconds - self._saved_at >= work.checkpoint_seconds:
            self._saved_at = self._loop.clock.elapsed_seconds
            self._save(step, final=False)
        self._plan()

    def _meets(self, kind: str, at_step: int | None, step: int) -> bool:
        """Whether the workload's own trouble comes now; each kind comes once in a job."""
        due = at_step is not None and step >= at_step
        return due and self._trainings.misfortune(self.job_id, kind)

    def _save(self, step: int, final: bool) -> None:
        self._saves += 1
        checkpoint = LocalCheckpoint(step, final, key=f"save-{self._saves}")
        for tell in self._tells():
            tell(CheckpointReady(self.fence, checkpoint))

    def _finish(self, step: int) -> None:
        self._save(step, final=True)
        for rank in sorted(self._ranks):
            end = TrainerEnd(TrainerOutcome.FINISHED, exit_code=0, step=step)
            self._after(self._dice.uniform(0.5, 3.0), self._ender(rank, end, peer=False))
        self._draining = True

    def _drained(self) -> None:
        if not self._ranks:
            return
        if len(self._ranks) < self.size:
            self._peer_lost()
            return
        step = self.step()
        self._save(step, final=step >= self.workload.total_steps)
        for rank in sorted(self._ranks):
            end = TrainerEnd(TrainerOutcome.DRAINED, EXIT_DRAINED, step)
            self._after(self._dice.uniform(0.1, 1.0), self._ender(rank, end, peer=False))

    def _peer_lost(self) -> None:
        """The survivors' collectives fail: each ends by an error that blames a peer."""
        if self.hung:
            return
        error = TrainerError("connection closed by peer", type="DistError", peer_communication=True)
        end = TrainerEnd(TrainerOutcome.FAILED, exit_code=1, step=self.step(), error=error)
        for rank in sorted(self._ranks):
            self._after(self._dice.uniform(1.0, 12.0), self._ender(rank, end, peer=False))

    def _ender(self, rank: int, end: TrainerEnd, peer: bool = True) -> Callable[[], None]:
        return lambda: self._end_rank(rank, end, peer)

    def _end_rank(self, rank: int, end: TrainerEnd, peer: bool = True) -> None:
        tell = self._ranks.pop(rank, None)
        if tell is None:
            return
        tell(TrainerExited(self.fence, end))
        if peer:
            self._peer_lost()

    def _tells(self) -> list[Tell]:
        return [self._ranks[rank] for rank in sorted(self._ranks)]

    def _after(self, seconds: float, action: Callable[[], None]) -> Event:
        return self._loop.after(seconds, action)


def _terminated() -> TrainerEnd:
    """A process that does not handle SIGTERM yet simply ends by it."""
    error = TrainerError("terminated by a signal", signal=15)
    return TrainerEnd(TrainerOutcome.FAILED, exit_code=-15, error=error)
