"""How fast a trainer steps and how long it took to start, as its agent saw it.

Lives here: the measuring of one attempt on one machine, on the machine's CLOCK_BOOTTIME, from the
end of the first step that was seen. Not here: what a line of progress looks like
(`progress_file`), or the rate that follows from it, which the control plane works out.

Start-up is the time from the start of the process to the end of its first step: imports,
downloads, compiling and loading a checkpoint. It says nothing about the pace of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainer.protocol.agent_report import Pace

JUMP_RATIO = 100
"""Steps advance evenly from line to line. An advance so many times another one is no training but
a counter that was set, as by a command that loads its own state after its first line."""


@dataclass(frozen=True)
class StepPace:
    """What was measured of one trainer process. Instants are seconds on CLOCK_BOOTTIME.

    first_step, first_step_at: where measuring began; last_step, last_step_at: the highest step
    and when it was first seen. start_up_seconds: None before the first step. advances, advance:
    how often the step has grown since measuring began, and by how much at most.
    """

    started_at: float
    first_step: int | None = None
    first_step_at: float = 0.0
    last_step: int = 0
    last_step_at: float = 0.0
    start_up_seconds: float | None = None
    advances: int = 0
    advance: int = 0

    def seen(self, step: int, parent_step: int | None, now: float) -> StepPace:
        """With one more line of progress that names `step`.

        A line at step 0 or at the step that the attempt resumed from precedes the first step. A
        step that repeats or falls adds nothing; time goes on until the highest one is passed.
        """
        if self.first_step is None:
            if step <= 0 or step == parent_step:
                return self
            took = max(0.0, now - self.started_at)
            return replace(self._begun(step, now), start_up_seconds=took)
        advance = step - self.last_step
        if advance <= 0 or now < self.last_step_at:
            return self
        before = self
        if self.advances and advance > JUMP_RATIO * self.advance:
            return self._begun(step, now)
        if self.advances == 1 and self.advance > JUMP_RATIO * advance:
            # The one before was the jump: the steps since then are the first that were trained.
            before = self._begun(self.last_step, self.last_step_at)
        return replace(
            before,
            last_step=step,
            last_step_at=now,
            advances=before.advances + 1,
            advance=max(before.advance, advance),
        )

    @property
    def told(self) -> Pace | None:
        """The figures for a report; None before the first step."""
        if self.first_step is None or self.start_up_seconds is None:
            return None
        return Pace(
            first_step=self.first_step,
            last_step=self.last_step,
            stepping_seconds=self.last_step_at - self.first_step_at,
            start_up_seconds=self.start_up_seconds,
        )

    def _begun(self, step: int, now: float) -> StepPace:
        """Measured anew from `step`; how long the process took to start stays known."""
        return replace(
            self,
            first_step=step,
            first_step_at=now,
            last_step=step,
            last_step_at=now,
            advances=0,
            advance=0,
        )
