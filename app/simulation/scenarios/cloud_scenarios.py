"""Worlds in which the cloud does something to us, one thing in each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from app.domain.lifecycle.instance import EndedBy
from app.ports.cloud_provider import LaunchOrder, PoolBid, RefusalKind
from app.simulation.faults.fault_kinds import Fault
from app.simulation.runs.run_world import WorldRun
from app.simulation.scenarios.scenario import (
    CALM,
    EndState,
    Scenario,
    at,
    check_succeeded,
    given_back_when_overdue,
    machine,
    one_job,
    take,
    when,
)
from app.simulation.simulated.simulated_market import Drought
from app.simulation.simulated.world import SIMULATED_LIMITS


def _notice_while_training(run: WorldRun) -> None:
    when(run, "attempt_started", partial(take, run, 120.0), after=1_000.0)


def _resumes_where_it_drained(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    first, second = seen.attempts()
    seen.expect(first.state == "interrupted", f"the first attempt is {first.state}")
    seen.expect(
        second.parent_step == first.best_step and first.best_step >= 450,
        f"drained at {first.best_step}, resumed at {second.parent_step}",
    )
    seen.expect("replacement_requested" in seen.kinds(), "no replacement was asked for")
    seen.expect(len(seen.machines()) == 3, f"{len(seen.machines())} machines for a gang of two")


def _notice_on_the_replacement_too(run: WorldRun) -> None:
    _notice_while_training(run)
    when(run, "replacement_requested", partial(take, run, 120.0, -1), after=60.0)


def _elsewhere_after_a_notice(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    first, second = seen.instances()
    seen.expect(first.noticed_at is not None, "no notice came")
    seen.expect(first.pool != second.pool, f"asked for anew where it is taken: {second.pool}")


def _notice_without_kill(run: WorldRun) -> None:
    when(run, "attempt_started", partial(take, run, 120.0, kill=False), after=1_000.0)


def _kill_without_notice(run: WorldRun) -> None:
    when(run, "checkpoint_committed", partial(take, run, None), after=300.0)


def _lost_since_the_checkpoint(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=2)
    first, second = seen.attempts()
    seen.expect(first.end_reason == "spot_interrupted", f"it ended {first.end_reason}")
    seen.expect(second.parent_step == 450, f"resumed at {second.parent_step}")


def _notice_while_booting(run: WorldRun) -> None:
    when(run, "launch_accepted", lambda: run.faults.inject(Fault.NOTICE_WHILE_BOOTING), after=5.0)


def _machine_fails(run: WorldRun) -> None:
    def fail() -> None:
        taken = machine(run)
        run.world.clouds[taken.pool.provider].stop(taken, EndedBy.CLOUD_FAILURE, 0.0)

    when(run, "attempt_started", fail, after=600.0)


def _launch_reply_lost(run: WorldRun) -> None:
    run.faults.inject(Fault.LAUNCH_REPLY_LOST)


def _no_machine_too_many(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=1)
    seen.expect(len(seen.machines()) == 2, f"{len(seen.machines())} machines were started")


def _reply_never_comes(run: WorldRun) -> None:
    for cloud in run.world.clouds.values():
        cloud.faults.lose_reply = 9


def _found_by_its_token(run: WorldRun) -> None:
    """Machines whose launch never answered are found by its token, and train."""
    seen = EndState(run)
    seen.succeeded(attempts=1)
    seen.expect(len(seen.machines()) == 2, f"{len(seen.machines())} machines were started")
    adopted = [one for one in seen.instances() if one.origin == "adopted"]
    seen.expect(not adopted, f"a sweep had to find {adopted}")


def _paid_for_and_replaced(run: WorldRun) -> None:
    """Machines that ended before their launch was answered have their rows, and successors."""
    seen = EndState(run)
    seen.succeeded()
    known = {one.provider_instance_id for one in seen.instances()}
    lost = [one.machine_id for one in seen.machines() if one.machine_id not in known]
    seen.expect(not lost, f"no row knows {lost}")
    seen.expect(len(seen.machines()) > 2, "nothing was replaced")


def _taken_before_it_was_known(run: WorldRun) -> None:
    """Never answered, and taken by the cloud before anything has seen them."""
    _reply_never_comes(run)

    def take() -> None:
        for cloud in run.world.clouds.values():
            for one in cloud.alive():
                cloud.stop(one, EndedBy.CLOUD_FAILURE, 0.0)

    at(run, 60.0, take)


def _throttled(run: WorldRun) -> None:
    for seconds in range(0, 1_200, 30):
        at(run, seconds, lambda: run.faults.inject(Fault.THROTTLED))


def _refused(run: WorldRun) -> None:
    for cloud in run.world.clouds.values():
        cloud.faults.refuse += [RefusalKind.NO_CAPACITY] * 2


def _drought(run: WorldRun) -> None:
    clock, paths = run.world.clock, run.world.market.paths
    for pool, path in sorted(paths.items()):
        dry = Drought(clock.starts_us, clock.starts_us + 3_600_000_000)
        paths[pool] = replace(path, droughts=(dry,))


def _waited_with_a_reason(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded()
    seen.expect(seen.job().started_at > seen.job().submitted_at, "it never waited")
    waited = {"waiting", "attempt_ended_fresh"} & set(seen.kinds())
    seen.expect(bool(waited), f"no reason was written: {seen.kinds()}")


def _a_machine_of_no_job(run: WorldRun) -> None:
    """Someone's call with our tag, and no job: it belongs to the deployment's own cost."""

    def launch() -> None:
        pool = sorted(run.world.market.paths)[0]
        order = LaunchOrder("nobody", 1, 1, pool.market, (PoolBid(pool, None),))
        run.world.clouds[pool.provider].launch(order)

    at(run, 30.0, launch)


def _adopted_and_given_back(run: WorldRun) -> None:
    seen = EndState(run)
    seen.succeeded(attempts=1)
    adopted = [one for one in seen.instances() if one.origin == "adopted"]
    seen.expect(len(adopted) == 1 and adopted[0].job_id is None, f"adopted: {adopted}")


CLOUD_SCENARIOS = {
    "notice": Scenario(_notice_while_training, _resumes_where_it_drained),
    "notice_on_the_replacement_too": Scenario(_notice_on_the_replacement_too, check_succeeded()),
    "notice_without_kill": Scenario(_notice_without_kill, given_back_when_overdue),
    "kill_without_notice": Scenario(_kill_without_notice, _lost_since_the_checkpoint),
    "notice_while_booting": Scenario(_notice_while_booting, check_succeeded()),
    "machine_fails": Scenario(_machine_fails, check_succeeded(2)),
    "notice_of_a_single_machine": Scenario(
        _notice_while_training, _elsewhere_after_a_notice, jobs=(one_job(nodes=1),)
    ),
    "launch_reply_lost": Scenario(_launch_reply_lost, _no_machine_too_many),
    "launch_never_answered": Scenario(
        _reply_never_comes,
        _found_by_its_token,
        limits=replace(SIMULATED_LIMITS, sweep_seconds=90.0),
    ),
    "launched_and_lost_between_sweeps": Scenario(
        _taken_before_it_was_known, _paid_for_and_replaced
    ),
    "throttled": Scenario(_throttled, check_succeeded()),
    "refused": Scenario(_refused, check_succeeded()),
    "drought": Scenario(_drought, _waited_with_a_reason, hours=4.0),
    "machine_of_no_job": Scenario(_a_machine_of_no_job, _adopted_and_given_back),
    "calm": Scenario(lambda _run: None, check_succeeded(1), jobs=(one_job(nodes=4),), market=CALM),
}
