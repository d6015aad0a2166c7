"""What a sweep does with machines that no row knows: a leak is ended, lost rows end nothing."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid5

import pytest
from sqlalchemy import delete, event, select

from app.domain.deployment.sweep_rules import FENCES_SKIPPED, version_floor, why_rows_are_missing
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.instance import EndedBy
from app.domain.units.errors import CommandRefused
from app.orchestration.agents.register_agent import NotKnownYet
from app.orchestration.deployment.confirm_sweep import ask_for_sweep, confirm_sweep
from app.orchestration.deployment.destroy_deployment import order_destroy
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.storage.instances.sweep_repository import SweepOrders
from app.storage.schema import tables
from app.storage.schema.money_tables import assignments
from tests.support.servers.database_backup import dump, restore
from tests.support.stories.orchestration_story import FAR, PRICES, ZONE_A, Story
from trainer.protocol.agent_report import FactKind

ADMIN = Actor(ActorKind.PERSON, "admin")


def _orders(story: Story) -> SweepOrders:
    with story.runtime.begin() as uow:
        return uow.sweeps.orders()


def _told(story: Story) -> list[str]:
    """Kinds of the deployment's events, in order."""
    with story.runtime.begin() as uow:
        return [event.kind for event in reversed(uow.sweeps.recent_events(50))]


def _confirm(story: Story) -> int:
    with story.runtime.begin() as uow:
        return confirm_sweep(uow, story.runtime, ADMIN)


def _sweep_for(story: Story, seconds: float) -> None:
    """Time goes by, with a sweep each minute."""
    until = story.time + timedelta(seconds=seconds)
    while story.time < until:
        story.pass_time(60, every=20)
        story.sweep()


# --- a leak ---


@pytest.mark.parametrize(
    ("listed", "unknown", "of_unknown_launches", "missing"),
    [
        (10, 0, 0, False),
        (10, 3, 0, False),
        (4, 4, 0, True),
        (100, 20, 0, False),
        (100, 21, 0, True),
        (100, 1, 1, True),
    ],
)
def test_when_unknown_machines_mean_that_rows_are_missing(
    listed: int, unknown: int, of_unknown_launches: int, missing: bool
) -> None:
    reason = why_rows_are_missing(
        listed=listed, unknown=unknown, of_unknown_launches=of_unknown_launches
    )
    assert (reason is not None) is missing


def test_a_leaked_machine_is_given_back_and_the_money_it_saves_is_told(story: Story) -> None:
    leaked = story.cloud.start(ZONE_A).provider_instance_id
    story.sleep(30)
    story.sweep()
    story.pass_time(30)
    assert story.cloud.running() == []
    with story.runtime.begin() as uow:
        (event,) = uow.sweeps.recent_events(10)
    assert event.kind == "orphan_reaped"
    assert event.data["saved_microusd_per_day"] == 24 * PRICES[ZONE_A]
    assert leaked in event.message
    assert "$24.00 a day" in event.message


def test_a_leaked_machine_of_a_job_is_told_in_its_history_too(story: Story) -> None:
    job_id = story.submit()
    story.run()
    story.stop(job_id)
    story.pass_time(60)
    story.cloud.start(ZONE_A, tags={"lowtide:job": str(job_id)})
    story.sleep(30)
    story.sweep()
    story.pass_time(30)
    assert story.cloud.running() == []
    table = tables.events
    (event,) = story.rows(table, table.c.job_id == job_id, table.c.kind == "instance_adopted")
    assert event.data["saved_microusd_per_day"] == 24 * PRICES[ZONE_A]


# --- lost rows ---


def _yesterday(story: Story) -> tuple[dict[str, UUID], list[str]]:
    """Jobs in the dump, all with machines that its rows do not know once it is restored."""
    jobs = {"training": story.submit(nodes=2), "moved": story.submit()}
    for job_id in jobs.values():
        story.train(job_id)
    jobs["waiting"] = story.submit()
    taken = dump(story.engine)
    # The day after the dump: a job starts, another moves to a new machine, a third is submitted.
    story.train(jobs["waiting"])
    (old,) = story.members(jobs["moved"])
    story.cloud.end(story.instance(old).provider_instance_id, EndedBy.CLOUD_INTERRUPTION)
    story.pass_time(60)
    story.train(jobs["moved"], 2)
    young = story.submit()
    story.train(young)
    assert len(story.cloud.running()) == 5
    restore(story.engine, taken)
    return jobs, story.cloud.running()


def _alive(story: Story, jobs: dict[str, UUID]) -> None:
    """Machines that the dump knows report on; nobody has ended a job."""
    for machine in story.members(jobs["training"]):
        story.tell(machine, None)
    for name, job_id in jobs.items():
        assert story.job(job_id).state not in ("failed", "cancelled", "paused"), name


@pytest.mark.full
def test_after_yesterdays_dump_is_restored_no_machine_and_no_job_is_killed(story: Story) -> None:
    jobs, running = _yesterday(story)
    story.sweep()
    assert _orders(story).adopting
    for _ in range(20):
        story.pass_time(20, every=10)
        _alive(story, jobs)
        story.sweep()
    assert set(running) <= set(story.cloud.running())
    rows = story.rows(tables.instances, tables.instances.c.origin == "adopted")
    known = {row.provider_instance_id: row.job_id for row in rows}
    assert len(known) == 3
    assert set(known.values()) == {jobs["waiting"], jobs["moved"], None}
    assert _told(story)[:1] == ["rows_missing"]
    # The two jobs wait for the machines that train them: none was rented beside them.
    assert len(story.cloud.running()) == 5


def test_an_agent_whose_row_is_lost_is_not_told_to_leave(story: Story) -> None:
    """401 would end its training: nobody has revoked its credential."""
    jobs = {"old": story.submit()}
    taken = dump(story.engine)
    story.train(jobs["old"])
    (machine,) = story.members(jobs["old"])
    restore(story.engine, taken)
    with pytest.raises(NotKnownYet):
        story.tell(machine)


def test_what_lost_attempts_have_numbered_is_not_numbered_again(story: Story) -> None:
    jobs, _ = _yesterday(story)
    story.sweep()
    story.sweep()
    story.run()
    assert story.attempt(jobs["waiting"], FENCES_SKIPPED + 1) is not None


def test_agents_are_told_above_what_lost_rows_have_told_them(story: Story) -> None:
    jobs, _ = _yesterday(story)
    before = {name: story.job(job_id).version for name, job_id in jobs.items()}
    story.sweep()
    story.sweep()
    for name, job_id in jobs.items():
        raised = story.job(job_id).version
        assert raised > before[name]
        assert version_floor(story.time) - 60 < raised < version_floor(story.time) + 60


def test_the_agent_of_an_adopted_machine_may_register_again(story: Story) -> None:
    jobs, _ = _yesterday(story)
    story.sweep()
    table = tables.instances
    (kept,) = story.rows(table, table.c.origin == "adopted", table.c.job_id == jobs["waiting"])
    story.register(kept.id)
    story.run()
    assert story.job(jobs["waiting"]).state == "starting"
    assert kept.id in story.members(jobs["waiting"], FENCES_SKIPPED + 1)


def test_only_a_confirmed_sweep_gives_back_what_no_job_needs(story: Story) -> None:
    jobs, running = _yesterday(story)
    story.sweep()
    _sweep_for(story, 120)
    assert set(running) <= set(story.cloud.running())
    assert _confirm(story) == 1
    story.pass_time(60)
    # What the rows know nothing of goes; what trains a job stays, though its agent is not heard.
    gone = set(running) - set(story.cloud.running())
    assert len(gone) == 1
    assert not _orders(story).adopting
    story.sleep(60)
    story.sweep()
    assert not _orders(story).adopting
    _alive(story, jobs)
    with pytest.raises(CommandRefused):
        _confirm(story)


def test_a_kept_machine_outlives_even_its_job_until_the_sweep_is_confirmed(story: Story) -> None:
    """The job's rows are a day old: what they order may be wrong."""
    jobs, running = _yesterday(story)
    story.sleep(30)
    story.sweep()
    story.stop(jobs["waiting"])
    story.pass_time(120)
    assert story.job(jobs["waiting"]).state == "cancelled"
    assert set(running) <= set(story.cloud.running())
    assert _confirm(story) == 2
    story.pass_time(60)
    assert len(set(running) - set(story.cloud.running())) == 2


def test_an_adopted_machine_that_is_never_heard_of_is_replaced_after_the_confirmation(
    story: Story,
) -> None:
    jobs, _ = _yesterday(story)
    story.sweep()
    story.pass_time(30)
    _confirm(story)
    story.pass_time(story.runtime.limits.registration_timeout_seconds + 60, every=30)
    table = tables.instances
    rows = story.rows(table, table.c.origin == "adopted", table.c.job_id == jobs["waiting"])
    assert {row.state for row in rows} <= {"terminating", "terminated"}
    assert story.living(jobs["waiting"])


def test_rows_that_are_missing_in_number_kill_nothing(story: Story) -> None:
    """No dump: somebody deleted rows; the launches are still known."""
    job_id = story.submit(nodes=4)
    story.train(job_id)
    with story.engine.begin() as connection:
        chosen = select(tables.instances.c.id)
        for table in (tables.attempt_members, tables.contacts):
            connection.execute(delete(table).where(table.c.instance_id.in_(chosen)))
        connection.execute(delete(assignments))
        connection.execute(delete(tables.instances))
    story.sleep(30)
    story.sweep()
    assert _orders(story).adopting
    story.pass_time(60)
    assert len(story.cloud.running()) == 4
    assert len(story.living(job_id)) == 4


def test_a_single_machine_of_a_launch_that_is_not_stored_is_kept(story: Story) -> None:
    lost = uuid5(UUID(int=0), "a launch of yesterday")
    story.cloud.start(FAR, tags={"lowtide:launch": str(lost)})
    story.sleep(30)
    story.sweep()
    _sweep_for(story, 240)
    assert len(story.cloud.running()) == 1
    assert _told(story) == ["rows_missing", "machine_kept"]


# --- asked for ---


def test_a_sweep_that_is_asked_for_lists_at_once(story: Story) -> None:
    story.sweep()
    calls = story.cloud.calls.count("list_deployment")
    story.sleep(1)
    story.sweep()
    assert story.cloud.calls.count("list_deployment") == calls
    with story.runtime.begin() as uow:
        ask_for_sweep(uow)
    story.sleep(0.5)
    story.sweep()
    assert story.cloud.calls.count("list_deployment") == calls + len(story.cloud.regions())
    story.sweep()
    assert story.cloud.calls.count("list_deployment") == calls + len(story.cloud.regions())


# --- destroy ---


def _destroy(story: Story) -> None:
    with story.runtime.begin() as uow:
        order_destroy(uow, story.runtime, ADMIN)


def _pass_destroying(story: Story, seconds: float) -> None:
    until = story.time + timedelta(seconds=seconds)
    while story.time < until:
        story.pass_time(5)
        story.sweep()


def test_destroy_ends_every_machine_known_or_not(story: Story) -> None:
    trained, queued, noticed = story.submit(nodes=2), story.submit(), story.submit()
    story.train(trained)
    story.train(noticed)
    (free,) = story.members(noticed)
    story.tell(free, FactKind.NOTICE, 1, seconds_left=110.0)
    story.cloud.start(FAR)
    story.cloud.start(ZONE_A, tags={"lowtide:launch": str(uuid5(UUID(int=0), "lost"))})
    _destroy(story)
    _pass_destroying(story, 90)
    assert story.cloud.running() == []
    for job_id in (trained, queued, noticed):
        assert story.job(job_id).state == "cancelled"
        assert story.living(job_id) == []
    assert _orders(story) == SweepOrders()
    assert _told(story)[0] == "destroy_ordered"
    assert _told(story)[-1] == "destroyed"
    later = story.submit()
    story.train(later)


def test_destroy_is_not_done_while_a_region_cannot_be_listed(story: Story) -> None:
    story.cloud.failures = [ProviderError(RefusalKind.UNAVAILABLE, "down")] * 1_000
    _destroy(story)
    _pass_destroying(story, 60)
    assert _orders(story).destroy_ordered_at is not None
    story.sleep(3_600)
    story.cloud.failures = story.cloud.failures[:1]
    story.sweep()
    assert _orders(story).destroy_ordered_at is None
    assert _told(story)[-1] in ("destroy_expired", "destroyed")


# --- many machines ---


def test_a_sweep_asks_for_known_machines_at_once_however_many_there_are(story: Story) -> None:
    def statements_of_a_sweep() -> int:
        asked: list[str] = []

        def note(_conn: object, _cursor: object, text: str, *_: object) -> None:
            asked.append(text)

        event.listen(story.engine, "before_cursor_execute", note)
        try:
            story.sweep()
        finally:
            event.remove(story.engine, "before_cursor_execute", note)
        return len(asked)

    story.train(story.submit(nodes=2))
    few = statements_of_a_sweep()
    story.train(story.submit(nodes=8))
    assert len(story.cloud.running()) == 10
    story.sleep(60)
    assert statements_of_a_sweep() == few


# --- orders that meet ---


@pytest.mark.parametrize("order", ["a sweep", "the end of everything"])
def test_what_is_ordered_while_a_sweep_finds_lost_rows_takes_nothing_back(
    story: Story, order: str
) -> None:
    """The sweep's order comes between the other one's look at the orders and its own writing."""
    found: list[str] = []

    def lose_rows(_conn: object, _cursor: object, text: str, *_: object) -> None:
        if text.startswith("UPDATE deployment") and not found:
            found.append(text)
            with story.runtime.begin() as uow:
                uow.sweeps.set_orders(adopt_since_at=uow.now, adopt_reason="rows are missing")

    event.listen(story.engine, "before_cursor_execute", lose_rows)
    with story.runtime.begin() as uow:
        if order == "a sweep":
            ask_for_sweep(uow)
        else:
            order_destroy(uow, story.runtime, ADMIN)
    event.remove(story.engine, "before_cursor_execute", lose_rows)
    now = _orders(story)
    assert found
    assert now.adopt_since_at is not None
    assert (now.asked_at is not None, now.destroy_ordered_at is not None) == (
        order == "a sweep",
        order != "a sweep",
    )
