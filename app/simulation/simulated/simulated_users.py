"""People in a simulated world: they submit, cancel, pause and resume through the production verbs.

Not here: what their commands do (`submit_job`, `stop_job`).
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.job import LIVE_JOB_STATES, StopCause
from app.domain.units.errors import CommandRefused
from app.orchestration.deployment.confirm_sweep import ask_for_sweep, confirm_sweep
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.gang.stop_job import order_stop, resume
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.engine.watched_transactions import Interrupted
from app.simulation.simulated.world import World

ANSWER_LOST_AGAIN_SECONDS = 5.0
_ACTOR = Actor(ActorKind.PERSON, "simulated")


class SimulatedUsers:
    """Whoever holds a key to the simulated project."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cancelled: set[UUID] = set()
        self.paused: set[UUID] = set()

    def cancel(self, job_id: UUID, at_once: bool = False) -> None:
        """Cancel a job; a refusal (it has ended already) is fine."""
        self.cancelled.add(job_id)
        limits = self._world.runtime.limits

        def deed(aggregate: JobAggregate) -> None:
            order_stop(aggregate, StopCause.USER, "Cancelled by a person.", limits, at_once=at_once)

        self._command(job_id, "cancel", deed)

    def pause(self, job_id: UUID, resume_after_seconds: float) -> None:
        """Pause a job, and resume it later."""
        self.paused.add(job_id)
        limits = self._world.runtime.limits
        self._command(
            job_id,
            "pause",
            lambda aggregate: order_stop(aggregate, StopCause.PAUSE, "Paused by a person.", limits),
        )
        self._world.loop.after(resume_after_seconds, lambda: self.resume(job_id, None))

    def resume(self, job_id: UUID, add_budget_microusd: int | None) -> None:
        """Resume a paused job."""
        self.paused.discard(job_id)
        self._command(job_id, "resume", lambda found: resume(found, add_budget_microusd))

    def ask_for_sweep(self) -> None:
        """Have every region listed now."""
        world = self._world
        if world.network.away:
            return
        try:
            with world.runtime.begin() as uow:
                ask_for_sweep(uow)
        except Interrupted:
            world.log.write("person", "asks for a sweep, and gets no answer")

    def confirm_sweep(self) -> None:
        """Say that what is kept is known; asked again until somebody answers."""
        world = self._world
        try:
            if world.network.away:
                raise Interrupted
            with world.runtime.begin() as uow:
                confirm_sweep(uow, world.runtime, _ACTOR)
        except CommandRefused as refused:
            world.log.write("person", f"confirming the sweep is refused: {refused}")
        except Interrupted:
            world.loop.after(ANSWER_LOST_AGAIN_SECONDS, self.confirm_sweep)

    def cancel_one(self, dice: Dice, launching: bool = False) -> bool:
        """Cancel some live job; `launching`: one that waits for a launch's reply."""
        found = self._live_jobs(launching)
        if not found:
            return False
        self.cancel(dice.choice(found), at_once=dice.chance(0.3))
        return True

    def pause_one(self, dice: Dice, resume_after_seconds: float) -> bool:
        """Pause some live job for a while."""
        found = [job_id for job_id in self._live_jobs() if job_id not in self.paused]
        if not found:
            return False
        self.pause(dice.choice(found), resume_after_seconds)
        return True

    def _live_jobs(self, launching: bool = False) -> list[UUID]:
        found = []
        with self._world.runtime.begin() as uow:
            for job_id in self._world.jobs:
                job = uow.jobs.get(job_id)
                if job is None or job.state not in LIVE_JOB_STATES:
                    continue
                if not launching or uow.launches.open_of_job(job_id):
                    found.append(job_id)
        return found

    def _command(self, job_id: UUID, what: str, deed: Callable[[JobAggregate], None]) -> None:
        """As the API does it; a person whose answer is lost, or who gets a 503, tries again."""
        world = self._world
        if world.network.away:
            world.loop.after(ANSWER_LOST_AGAIN_SECONDS, lambda: self._command(job_id, what, deed))
            return
        try:
            with (
                world.runtime.begin() as uow,
                open_job(uow, world.entropy, job_id, _ACTOR) as aggregate,
            ):
                if aggregate is not None:
                    deed(aggregate)
        except CommandRefused as refused:
            world.log.write("person", f"{what} is refused: {refused}")
        except Interrupted:
            world.loop.after(ANSWER_LOST_AGAIN_SECONDS, lambda: self._command(job_id, what, deed))
        else:
            world.log.write("person", what)
