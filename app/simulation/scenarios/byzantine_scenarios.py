"""Worlds of an hour in which one who should be believed is wrong: agents, clouds, clocks, rows.

Not here: what each fault does (`byzantine_faults`, `lying_agents`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import (
    EndState,
    agent,
    check_succeeded,
    in_an_hour,
    known_again,
    often,
    short_job,
    take,
    when,
)
from app.simulation.simulated.simulated_agent import SimulatedAgent
from app.simulation.simulated.simulated_gang import Workload
from app.simulation.simulated.world import SIMULATED_LIMITS

_LIES = (
    Fault.FENCE_OF_OTHERS,
    Fault.OTHER_MACHINE,
    Fault.OTHER_SESSION,
    Fault.SECOND_AGENT,
    Fault.REPORT_REPLAYED,
    Fault.REPORT_TORN,
    Fault.STEP_FALLS,
)


def _agents_lie(run: WorldRun) -> None:
    often(run, _LIES, every=60.0)


def _ended_attempts_speak(run: WorldRun) -> None:
    when(run, "checkpoint_committed", partial(take, run, None), after=60.0)
    often(run, (Fault.ENDED_FENCE, Fault.REPORT_REPLAYED, Fault.AFTER_ITS_END), every=40.0)


def _former_agents_speak(run: WorldRun) -> None:
    when(run, "checkpoint_committed", lambda: agent(run).restart(), after=30.0)
    for seconds in range(32, 60, 2):
        speak = partial(run.faults.inject, Fault.FORMER_AGENT)
        when(run, "checkpoint_committed", speak, after=float(seconds))
    often(run, (Fault.REPORT_REPLAYED, Fault.OTHER_SESSION), every=60.0)


def _former_agent_was_refused(run: WorldRun) -> None:
    EndState(run).succeeded(attempts=2)
    EndState(run).expect(Fault.FORMER_AGENT in run.faults.history.counts, "it never spoke")


def _absent_for_one_look(run: WorldRun) -> None:
    often(run, (Fault.FALSE_ABSENCE,), every=150.0, since=240.0)


def _absent_for_seconds(run: WorldRun) -> None:
    often(run, (Fault.ABSENT_BRIEFLY,), every=60.0, since=240.0)


def _shown_late(run: WorldRun) -> None:
    for cloud in run.world.clouds.values():
        cloud.faults.show_late = 99


def _stale_launches(run: WorldRun) -> None:
    for _ in range(3):
        run.faults.inject(Fault.LAUNCH_OVERTAKEN)


def _launches_called_late(run: WorldRun) -> None:
    for _ in range(3):
        run.faults.inject(Fault.LAUNCH_CALLED_LATE)


def _releases_called_late(run: WorldRun) -> None:
    # Rung again at once, while the lease is held.
    run.world.wakeups.faults.double = 1_000_000
    for _ in range(3):
        run.faults.inject(Fault.RELEASE_CALLED_LATE)


def _disks_full(run: WorldRun) -> None:
    often(run, (Fault.AGENT_DISK_FULL, Fault.STORE_FULL), every=400.0, since=300.0, until=1_800.0)


def _trained_on(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    seen.expect("disk_full" in seen.kinds(), f"no disk was full: {seen.kinds()}")
    seen.expect("disk_has_room" in seen.kinds(), f"none has room again: {seen.kinds()}")


def _clocks_apart(run: WorldRun) -> None:
    often(run, (Fault.CLOCKS_APART, Fault.CLOCKS_DRIFT), every=300.0)


def _cut_off(pace: float) -> Callable[[WorldRun], None]:
    """The machine that publishes is cut off for good; its clock makes so many seconds in one."""

    def script(run: WorldRun) -> None:
        def cut_off() -> None:
            publisher = _publisher(run)
            publisher.drift(pace)
            run.faults.cut_off(publisher, 7_200.0)

        when(run, "attempt_started", cut_off, after=200.0)

    return script


def _cut_off_with_a_slow_store(run: WorldRun) -> None:
    """Uploads last longer than an attempt settles and waits, and end before the lease does."""
    run.world.store.upload_seconds = (140.0, 160.0)
    _cut_off(1.0)(run)


def _publisher(run: WorldRun) -> SimulatedAgent:
    """The agent whose checkpoints count."""
    for _, one in sorted(run.world.agents.items()):
        work = None if one.dead or one.state is None else one.state.work
        if work is not None and work.publishes:
            return one
    raise LookupError("no machine publishes")


def _given_up_by_its_lease(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    released = [one.release_reason for one in seen.instances()]
    seen.expect("its agent did not renew its lease" in released, f"{released}")


def _drained_by_its_lease(run: WorldRun) -> None:
    """It drained before its lease ended, though nobody told it to, and its peers with it.

    What it saved then is the only checkpoint: it must have had the time to upload it.
    """
    seen = EndState(run)
    seen.succeeded(attempts=2)
    seen.expect("member_drained" in seen.kinds(), f"nobody drained: {seen.kinds()}")
    seen.expect(bool(seen.attempts()[1].parent_step), "it was released before it had saved")


def _backup_restored_early(run: WorldRun) -> None:
    """The attempt that is lost has a number, and has not recorded its start in the store."""
    restores: list[Callable[[], None]] = []

    def back_up() -> None:
        restores.append(run.faults.byzantine.back_up())

    def restore() -> None:
        restores.pop()()

    when(run, "checkpoint_committed", back_up, after=20.0)
    when(run, "checkpoint_committed", partial(take, run, None), after=40.0)
    when(run, "claimed", restore, after=15.0, nth=2)
    when(run, "claimed", run.users.ask_for_sweep, after=80.0, nth=2)


def _backup_restored(run: WorldRun) -> None:
    """A machine is lost after the backup: the rows of its successor, and its attempt, go too."""
    restore = partial(run.faults.byzantine.restore_after, 700.0)
    when(run, "checkpoint_committed", restore, after=20.0)
    when(run, "checkpoint_committed", partial(take, run, None), after=40.0)


def _backup_of_a_waiting_job(run: WorldRun) -> None:
    """Its rows wait to be claimed again, while its machines train and no row knows them.

    Prices are known before: what a machine costs is not booked before the first of its pool.
    """
    when(run, "submitted", partial(run.faults.byzantine.restore_after, 700.0))


def _backup_of_a_forming_gang(run: WorldRun) -> None:
    """By its rows it waits for a machine that has trained since, and that no row lets report."""
    when(run, "launch_submitted", partial(run.faults.byzantine.restore_after, 700.0))


def _numbered_anew(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    reasons = [str(one.end_reason) for one in seen.attempts()]
    seen.expect("fenced_off" in reasons, f"attempts ended as {reasons}")


def _called_and_shown_late(run: WorldRun) -> None:
    _launches_called_late(run)
    _shown_late(run)


def _not_launched_twice(run: WorldRun) -> None:
    known_again(run)
    seen = EndState(run)
    seen.expect(len(seen.machines()) == 2, f"{len(seen.machines())} machines for a gang of 2")


# Both train for longer than an agent's lease.
_NEVER_SAVES = Workload(1_500, checkpoint_seconds=9_999.0, progress_seconds=60.0)
_STUBBORN = Workload(total_steps=1_500, checkpoint_seconds=20.0, stubborn=True)

BYZANTINE_SCENARIOS = {
    "agents_lie": in_an_hour(_agents_lie, check_succeeded(1)),
    "ended_attempts_speak": in_an_hour(_ended_attempts_speak, check_succeeded(2)),
    "former_agents_speak": in_an_hour(_former_agents_speak, _former_agent_was_refused),
    "absent_for_one_look": in_an_hour(_absent_for_one_look, check_succeeded(1)),
    "absent_for_seconds": in_an_hour(_absent_for_seconds, check_succeeded(1)),
    "shown_late": in_an_hour(_shown_late, check_succeeded(1)),
    "stale_launches": in_an_hour(_stale_launches, check_succeeded()),
    "launches_called_late": in_an_hour(_launches_called_late, check_succeeded()),
    "launches_called_late_and_shown_late": in_an_hour(_called_and_shown_late, check_succeeded(1)),
    "releases_called_late": in_an_hour(_releases_called_late, check_succeeded()),
    "disks_full": in_an_hour(_disks_full, _trained_on),
    "clocks_apart": in_an_hour(_clocks_apart, check_succeeded()),
    "cut_off_with_a_slow_clock": in_an_hour(
        _cut_off(0.991), _given_up_by_its_lease, short_job(2, _STUBBORN)
    ),
    "cut_off_and_drained": in_an_hour(
        _cut_off(1.0), _drained_by_its_lease, short_job(2, _NEVER_SAVES)
    ),
    "cut_off_and_saving": in_an_hour(
        _cut_off_with_a_slow_store,
        _drained_by_its_lease,
        short_job(2, _NEVER_SAVES),
        limits=replace(SIMULATED_LIMITS, settle_seconds=60.0),
    ),
    "waiting_in_its_backup": in_an_hour(
        _backup_of_a_waiting_job, _not_launched_twice, replace(short_job(), submit_at_seconds=20.0)
    ),
    "forming_in_its_backup": in_an_hour(_backup_of_a_forming_gang, _numbered_anew, short_job(1)),
    "backup_restored": in_an_hour(_backup_restored, known_again),
    "backup_restored_early": in_an_hour(_backup_restored_early, known_again),
}
