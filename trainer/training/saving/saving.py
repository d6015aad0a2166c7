"""The checkpoints of one run: taking them beside training, hurrying the last one, telling of them.

Under agents all ranks of a gang write, each its part, to their own machine's disk: every agent
uploads its machine's share. By hand the ranks of the first machine write, into one folder; the
other machines' ranks only hand over their random state. How a checkpoint is written is
``checkpoint/``; when one is due, ``save_schedule.py``; reading one back, ``restoring.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainer.training.checkpoint import (
    CheckpointEngine,
    CheckpointFolder,
    InFlight,
    KeepRule,
    Saved,
    Writer,
    own_tensors,
)
from trainer.training.config import TrainConfig
from trainer.training.gang.distributed import Gang
from trainer.training.gang.rank_environment import RankEnvironment
from trainer.training.kernels import compilation
from trainer.training.loop import randomness
from trainer.training.reporting.goodput import Bucket
from trainer.training.reporting.progress import ProgressLog
from trainer.training.saving.own_tensors import own_tensors_of
from trainer.training.saving.save_schedule import SaveSchedule
from trainer.training.training_errors import CheckpointNotSavedError

Trees = Mapping[str, Any]
OwnState = Mapping[str, Any]
STATE = "training_state"
COMPILED_CODE = "compiled_code"

# With so little left it is cheaper to have it than to lose what was written.
NEARLY_DONE = 0.1


class Saving:
    """Of one rank. ``take``, ``take_last`` and ``prepare`` are called by all ranks alike."""

    def __init__(
        self,
        config: TrainConfig,
        environment: RankEnvironment,
        gang: Gang,
        progress: ProgressLog,
        uncut: Collection[str] = (),
    ) -> None:
        """A machine's first rank clears away what killed processes left half-written.

        uncut: names of buffers: what other ranks hold of them may differ from the first one's.
        """
        self._uncut = frozenset(uncut)
        self._gang = gang
        self._progress = progress
        here = min(environment.local_world_size, gang.world_size)
        together = environment.saves_together and gang.world_size % here == 0
        self._machines = gang.world_size // here if together else 1
        self._all_write = here * self._machines == gang.world_size
        self._engine: CheckpointEngine | None = None
        self._compiles = compilation.is_compiled(config, gang.device) and gang.world_size > 1
        self._compiled_code: Tensor | None = None
        self._newest: int | None = None
        self._inflation_before = 0.0
        if self._all_write or gang.rank == environment.local_rank:  # the latter: on the first one
            keep = KeepRule(every=config.checkpoint_keep_every)
            folder = CheckpointFolder(environment.checkpoint_dir, keep)
            writer = Writer(gang.rank, here * self._machines, environment.fence, self._machines)
            self._engine = CheckpointEngine(folder, writer)
            if writer.commits:
                folder.sweep()

    @property
    def busy(self) -> bool:
        """Whether this rank's share of a checkpoint is still on its way."""
        return self._engine is not None and self._engine.busy

    def prepare(self, trees: Trees, own: OwnState) -> None:
        """Has the memory for such a state allocated in the background."""
        tensors, trees = self._own_tensors(own), self._within_reach(self._alike(trees))
        if self._engine is not None:
            self._engine.prepare(trees, tensors, self._uncut)

    def take(
        self, header: dict[str, Any], trees: Trees, own: OwnState, *, best: bool = False
    ) -> None:
        """Copies the state as it is now; it becomes a checkpoint in the background.

        own: what this rank alone has, beside its random state.
        """
        self._inflation_before = self._inflation()
        self._take(header, trees, own, best, hurried=False)

    def take_last(
        self,
        header: dict[str, Any],
        trees: Trees,
        own: OwnState,
        seconds_left: float | None = None,
    ) -> None:
        """Returns when a checkpoint of this state is durable; the end of an attempt.

        What is on its way is finished by this thread or dropped, whichever saves the newest step in
        the ``seconds_left``, None if nobody knows; a state is not written twice, nor are two where
        one is enough. Raises ``CheckpointNotSavedError`` on all ranks when it cannot be written.
        """
        step, asked_at = header["step"], time.monotonic()
        plan = self._plan_of(header, seconds_left)
        if self._engine is not None:
            self._engine.take_over(plan.finish)
        self.tell()
        # Only a machine's first rank knows what was committed there, and all shares are needed; a
        # final checkpoint is another one at its step.
        spent = time.monotonic() - asked_at
        newest, older, late = self._gang.sum(
            self._newest == step,
            self._newest is not None and self._newest == plan.flight_step,
            not plan.fits_after(spent),
        )
        if header["final"] or newest < self._machines:
            if older >= self._machines and late > 0 and not header["final"]:
                self._leave_out(step)
                return
            self._take(header, trees, own, best=False, hurried=True)
            problem = self.tell()
            problems = [each for each in self._gang.gather(problem) if each]
            if problems:
                raise CheckpointNotSavedError(problems[0])

    def _plan_of(self, header: Mapping[str, Any], seconds_left: float | None) -> LastSave:
        """Alike on all ranks: of the slowest one's figures, and of the machine that ends first."""
        engine = self._engine
        flight = engine.in_flight() if engine is not None else None
        whole = engine.whole_seconds() if engine is not None else None
        known = self._gang.gather((flight, whole, seconds_left))
        flights = [each[0] for each in known if each[0] is not None]
        return LastSave(
            step=header["step"],
            final=header["final"],
            flights=flights,
            whole_seconds=max((each[1] for each in known if each[1] is not None), default=None),
            seconds_left=min((each[2] for each in known if each[2] is not None), default=None),
        )

    def _leave_out(self, step: int) -> None:
        """The step is not saved: what was on its way was the newest that could be."""
        if self._gang.rank == 0:
            saved = "none is saved" if self._newest is None else f"step {self._newest:,} is saved"
            print(f"note: there was no time to save step {step:,} too; {saved}", flush=True)

    def tell(self, schedule: SaveSchedule | None = None) -> str | None:
        """Writes down the saves that have ended; the sentence of one that failed, or None.

        Cheap when none has: called after every step.
        """
        problem = None
        for result in self._engine.take_results() if self._engine is not None else ():
            if result.error is not None:
                problem = self._failed(result, result.error)
            elif result.path is not None:
                self._newest = result.step
                self._progress.write(
                    "checkpoint",
                    step=result.step,
                    path=str(result.path),
                    seconds=result.seconds,
                    stall_seconds=result.stall_seconds,
                    final=result.final,
                )
                if schedule is not None:
                    inflation = self._inflation() - self._inflation_before
                    schedule.cost(result.stall_seconds, inflation, result.seconds)
        return problem

    def close(self, seconds: float) -> None:
        """Waits so long at most for what is on its way, and tells of it."""
        if self._engine is not None:
            self._engine.finish(seconds)
            self.tell()

    def _take(
        self, header: dict[str, Any], trees: Trees, own: OwnState, best: bool, hurried: bool
    ) -> None:
        tensors, trees = self._own_tensors(own), self._within_reach(self._alike(trees))
        if self._engine is not None:
            self._engine.save(header, trees, tensors, uncut=self._uncut, best=best, hurried=hurried)

    def _alike(self, trees: Trees) -> Trees:
        """With the first rank's compiled code: each has its own, as large as it happens to be, and
        parts of a state are cut alike only where it is alike.
        """
        if not self._compiles:
            return trees
        state = dict(trees[STATE])
        mine = state.pop(COMPILED_CODE, None)
        if self._compiled_code is None:
            self._compiled_code = self._gang.from_first(mine)
        if self._compiled_code is not None:
            state[COMPILED_CODE] = self._compiled_code
        return {**trees, STATE: state}

    def _within_reach(self, trees: Trees) -> Trees:
        """What ranks that write nothing hold parts of (FSDP2) comes to the first machine whole."""
        if self._all_write:
            return trees
        return {name: own_tensors(tree, _whole) for name, tree in trees.items()}

    def _own_tensors(self, state: OwnState) -> dict[str, Tensor]:
        """What this rank writes of its own; rank 0 also that of others that write nothing."""
        mine = own_tensors_of(self._gang.rank, randomness.capture(self._gang.device), state)
        if self._all_write:
            return mine
        gathered = self._gang.gather(own_tensors(mine, Tensor.cpu))
        if self._gang.rank == 0 and self._engine is not None:
            for others in gathered[self._engine.writer.parts :]:
                mine.update(others)
        return mine

    def _failed(self, result: Saved, error: str) -> str:
        if self._engine is None or not self._engine.writer.commits:
            return error  # the machine's first rank, which waits for this part, says it
        safe = "none is safe" if self._newest is None else f"step {self._newest:,} is safe"
        sentence = (
            f"the checkpoint of step {result.step:,} could not be written: {error}; of this attempt"
            f" {safe}"
        )
        print(f"warning: {sentence}", file=sys.stderr, flush=True)
        self._progress.write(
            "checkpoint_failed",
            step=result.step,
            message=sentence,
            disk_full=result.disk_full,
        )
        return sentence

    def _inflation(self) -> float:
        return self._progress.ledger.seconds()[Bucket.CHECKPOINT_INFLATION.value]


def _whole(tensor: Any) -> Tensor:
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


@dataclass(frozen=True)
class LastSave:
    """The last save of an attempt, at ``step``, while ``flights`` are on their way: each rank's
    part of one. ``whole_seconds``: what a save takes; ``seconds_left``: until the machine's end;
    None for what nobody knows.
    """

    step: int
    final: bool
    flights: Sequence[InFlight]
    whole_seconds: float | None
    seconds_left: float | None

    @property
    def finish(self) -> bool:
        """Whether what is on its way is to be finished, not dropped."""
        if not self.flights or self.final or self.flight_step == self.step:
            return True
        if self._left <= NEARLY_DONE * self._whole and self.fits_after(self._left):
            return True
        # Only one of them can be saved: the newer one, unless only the older one can.
        return not self.fits_after(0.0) and self._left < self._whole

    @property
    def flight_step(self) -> int | None:
        """The step of what is on its way."""
        return self.flights[0].step if self.flights else None

    def fits_after(self, seconds: float) -> bool:
        """Whether a whole save still fits when so many seconds have gone by."""
        if not self.flights or self.seconds_left is None:
            return True
        return seconds + self._whole <= self.seconds_left

    @property
    def _left(self) -> float:
        return max(each.left_seconds for each in self.flights)

    @property
    def _whole(self) -> float:
        known = [each.whole_seconds for each in self.flights]
        return max([*known, *([self.whole_seconds] if self.whole_seconds is not None else [])])
