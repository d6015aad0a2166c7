"""The outbox and its sender: at least once, under one id, with bounds; and what a death in between
leaves behind.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from app.adapters.thread_effects import ThreadEffects
from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.job import JobEvent
from app.domain.notifications.channel_targets import ChannelKind
from app.domain.notifications.delivery_rules import (
    CHANNEL_REMOVED,
    HOURLY_MAX,
    REST,
    DeliveryState,
)
from app.domain.notifications.triggers import Trigger
from app.domain.units.errors import CommandRefused, Forbidden, NotFound
from app.orchestration.frame.controller_frame import run_controller, select_phase
from app.orchestration.frame.tell_channels import tell_of_deployment
from app.orchestration.instances.release_instances import ReleaseInstances
from app.orchestration.notifications.manage_channels import (
    add_rule,
    remove_channel,
    resend,
    send_test,
)
from app.orchestration.notifications.send_notifications import SendNotifications
from app.orchestration.notifications.watch_waits import WatchWaits
from app.orchestration.secrets.check_stored_values import rewrap_secrets, verify_secrets
from app.storage.schema import tables
from tests.support.servers.table_rows import change_row, change_rows
from tests.support.stories.notification_story import NotificationStory
from workers.controller_runtimes import ControllerRuntimes

CHANNELS = tables.notification_channels
DELIVERIES = tables.notification_deliveries
STARTED, FAILED = JobEvent.ATTEMPT_STARTED, JobEvent.GIVEN_UP


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Iterator[NotificationStory]:
    made = NotificationStory(engine, tmp_path)
    yield made
    made.server.close()


def test_a_channel_is_told_once_by_its_rules_and_the_job_in_the_transaction_of_what_happens(
    story: NotificationStory,
):
    for name in ("own", "team", "other"):
        story.channel(name)
    story.rule("own", Trigger.STARTED)
    story.rule("team", Trigger.STARTED)
    story.rule("other", Trigger.SUCCEEDED)
    with story.runtime.begin() as uow:
        story.within(uow, STARTED, "The trainer is starting.")
        uow.discard()
    assert story.deliveries() == []
    story.happen(STARTED, "The trainer is starting.")
    assert story.send() == 2
    assert sorted(story.server.paths()) == ["/own", "/team"]
    assert set(story.states()) == {DeliveryState.DELIVERED}
    story.happen(JobEvent.ATTEMPT_ENDED_RETRYABLE, "x", reason=EndReason.RESIZED)
    assert story.send() == 0, "nobody asked for it"


def test_a_signed_webhook_gets_the_same_body_under_one_id_until_it_answers(
    story: NotificationStory,
):
    key = story.channel("own", ChannelKind.WEBHOOK)
    assert key is not None
    story.server.statuses["/own"] = 503
    story.happen(FAILED, "No progress.", reason="no_progress")
    story.send()
    story.send(59)
    assert len(story.server.taken) == 1
    del story.server.statuses["/own"]
    story.send(1)
    first, second = story.server.taken
    assert first.body == second.body
    assert first.headers["Lowtide-Id"] == second.headers["Lowtide-Id"] == first.document["id"]
    stamps = [int(one.headers["Lowtide-Timestamp"]) for one in (first, second)]
    assert stamps[1] - stamps[0] == 60
    signed = f"{stamps[1]}.{second.document['id']}.".encode() + second.body
    expected = hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()
    assert second.headers["Lowtide-Signature"] == f"v1={expected}"
    assert second.document["text"] == "No progress."
    assert second.document["url"] == f"https://lowtide.test/jobs/{story.job_id}"
    [row] = story.deliveries()
    assert (row.state, row.tries, row.last_answer) == (DeliveryState.DELIVERED, 2, "200")


def test_after_eight_tries_in_a_day_it_has_failed_and_a_person_sends_it_again(
    story: NotificationStory,
):
    story.channel("own")
    story.server.statuses["/own"] = 410
    story.happen(FAILED, "No progress.")
    tried = []
    begun = story.now
    for _ in range(20):
        story.send()
        [row] = story.deliveries()
        tried.append((story.now - begun).total_seconds() / 60)
        if row.next_try_at is None:
            break
        with pytest.raises(CommandRefused), story.runtime.begin() as uow:
            resend(uow, story.runtime, story.admin, row.id)
        story.now = row.next_try_at
    assert tried == [0, 1, 6, 30, 120, 360, 780, 1440]
    assert (row.state, row.tries) == (DeliveryState.FAILED, 8)
    assert row.last_answer == "127.0.0.1 answers 410."
    ids = {one.document["text"] for one in story.server.taken}
    assert len(ids) == 1
    del story.server.statuses["/own"]
    with story.runtime.begin() as uow:
        resend(uow, story.runtime, story.admin, row.id)
    story.send(REST.total_seconds())
    [again] = story.deliveries()
    assert (again.id, again.state, again.tries) == (row.id, DeliveryState.DELIVERED, 1)


def test_sixty_of_a_rule_in_an_hour_and_then_a_digest(story: NotificationStory):
    story.channel("own")
    for number in range(HOURLY_MAX + 5):
        story.happen(FAILED if number % 2 else STARTED, f"Number {number}.")
    story.send()
    assert len(story.server.paths()) == HOURLY_MAX
    assert story.states().count(DeliveryState.HELD) == 5
    story.happen(FAILED, "One more.")
    story.send(3_599)
    assert story.server.paths() == []
    story.send(1)
    [digest] = story.server.taken
    assert "*6 more notifications within an hour*" in digest.document["text"]
    assert "started (3), failed (3). Jobs: digits." in digest.document["text"]
    assert story.states().count(DeliveryState.DIGESTED) == 6
    story.server.taken.clear()
    story.happen(FAILED, "After it.")
    story.send()
    assert story.server.paths() == ["/own"], "the hour of the first sixty is over"


def test_a_channel_that_fails_rests_and_others_go_on(story: NotificationStory):
    for name in ("own", "team"):
        story.channel(name)
    story.rule("team", Trigger.FAILED)
    story.server.statuses["/own"] = 500
    story.happen(FAILED, "First.")
    story.happen(FAILED, "Second.")
    story.send()
    assert sorted(story.server.paths()) == ["/own", "/team", "/team"]
    story.send(REST.total_seconds() - 1)
    assert story.server.paths() == []
    story.send(1)
    assert story.server.paths() == ["/own"], "the second message, whose first try it is"


def test_thousands_that_wait_behind_a_channel_are_not_read_to_find_who_is_due(
    story: NotificationStory,
):
    for name in ("own", "team"):
        story.channel(name)
    story.rule("team", Trigger.FAILED)
    story.happen(FAILED, "No progress.")
    with story.runtime.begin() as uow:
        uow.deliveries.admit(uow.now)
    [own, _] = story.deliveries()
    columns = "project_id, channel_id, source_id, kind, message, state, created_at, tries"
    copy = text(
        f"INSERT INTO notification_deliveries ({columns}, id, occasion, next_try_at) "
        f"SELECT {columns}, md5(number::text)::uuid, occasion || number, next_try_at "
        "FROM notification_deliveries, generate_series(1, 3000) AS number WHERE id = :own"
    )
    read = text(
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables "
        "WHERE relname = 'notification_deliveries'"
    )
    with story.engine.begin() as connection:
        connection.execute(copy, {"own": own.id})
        connection.execute(text("ANALYZE notification_deliveries"))
    with story.runtime.begin() as uow:
        before = uow.session.execute(read).scalar_one()
        found = uow.deliveries.lease_due(story.now, story.now + timedelta(seconds=45), 4)
        after = uow.session.execute(read).scalar_one()
    assert len({one.channel_id for one in found}) == len(found) == 2, "one of each channel"
    # The counts may hold what this connection did before.
    assert after - before < 100


def test_what_a_worker_took_and_did_not_write_down_is_sent_again_under_its_id(
    story: NotificationStory,
):
    story.channel("own", ChannelKind.WEBHOOK)
    story.happen(FAILED, "No progress.")
    controller = SendNotifications(story.runtime)
    [work] = select_phase(story.runtime, controller)
    controller.effect(work)
    story.send(44)
    assert len(story.server.taken) == 1, "another worker may still be sending it"
    story.send(1)
    first, second = story.server.taken
    assert first.body == second.body
    assert story.states() == [DeliveryState.DELIVERED]


def test_a_wait_that_is_too_long_is_told_once(story: NotificationStory):
    story.channel("team")
    story.rule("team", Trigger.WAITING, 3_600)
    watch = WatchWaits(story.runtime)
    since = story.now
    change_row(
        story.engine, tables.jobs, story.job_id, submitted_at=since, wait_reason="No V100 is free."
    )
    story.now += timedelta(hours=2)
    assert run_controller(story.runtime, watch) == 0, "it has machines"
    story.now = since + timedelta(minutes=59)
    with story.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE attempts SET state = 'failed', ended_at = created_at")
    change_row(story.engine, tables.attempts, _attempt(story), ended_at=since)
    change_row(story.engine, tables.jobs, story.job_id, state="queued")
    assert run_controller(story.runtime, watch) == 0
    story.now += timedelta(minutes=1)
    assert run_controller(story.runtime, watch) == 1
    assert run_controller(story.runtime, watch) == 0
    story.send()
    [taken] = story.server.taken
    assert "It has waited for machines for 1h. No V100 is free." in taken.document["text"]


def _attempt(story: NotificationStory) -> object:
    with story.engine.connect() as connection:
        return connection.exec_driver_sql("SELECT id FROM attempts").scalar_one()


def test_what_concerns_the_deployment_is_told_by_rules_of_admins(story: NotificationStory):
    story.channel("team")
    ada = Principal(None, "ada", story.project_id, "vision", Role.MAINTAINER)
    with pytest.raises(Forbidden), story.runtime.begin() as uow:
        add_rule(uow, story.runtime, ada, "team", Trigger.BOOKS_DIFFER, None)
    story.rule("team", Trigger.BOOKS_DIFFER)
    for _ in range(2):
        with story.runtime.begin() as uow:
            entropy, occasion = story.runtime.entropy, "books/2026-03-01"
            tell_of_deployment(uow, entropy, Trigger.BOOKS_DIFFER, "One line differs.", occasion)
    story.send()
    [taken] = story.server.taken
    assert "One line differs." in taken.document["text"]


def test_a_lost_key_fails_deliveries_and_loses_none_and_another_key_is_for_channels_too(
    story: NotificationStory,
):
    story.channel("own")
    encryption = story.runtime.encryption
    assert encryption is not None
    copy = story.key_file.rename(story.key_file.with_name("copy"))
    story.happen(FAILED, "No progress.")
    story.send()
    [row] = story.deliveries()
    assert "is not in the key file" in row.last_answer
    assert [one.name for one in verify_secrets(story.runtime.begin, encryption).unreadable] == [
        "channel own"
    ]
    copy.rename(story.key_file)
    story.channel("swapped")
    change_rows(
        story.engine, CHANNELS, CHANNELS.c.name == "swapped", version=CHANNELS.c.version + 1
    )
    encryption.make_key()
    found = rewrap_secrets(story.runtime.begin, encryption)
    assert (found.rewrapped, [one.name for one in found.unreadable]) == (1, ["channel swapped"])
    assert len(encryption.key_ids()) == 2, "that of the one that cannot be read stays"
    story.send(60)
    assert story.server.paths() == ["/own"]


def test_a_channel_that_leads_elsewhere_or_is_removed(story: NotificationStory):
    story.channel("own")
    story.server.statuses["/own"] = 500
    story.happen(FAILED, "No progress.")
    story.send()
    story.server.statuses.clear()
    story.channel("own")
    story.send(60)
    assert story.server.paths() == ["/own", "/own"]
    story.happen(FAILED, "Again.")
    with story.runtime.begin() as uow:
        remove_channel(uow, story.runtime, story.admin, "own")
    assert story.send() == 0
    done, ended = story.deliveries()
    assert (done.state, ended.state) == (DeliveryState.DELIVERED, DeliveryState.FAILED)
    assert ended.last_answer == "Its channel was removed."
    with pytest.raises(CommandRefused, match="was removed"), story.runtime.begin() as uow:
        resend(uow, story.runtime, story.admin, ended.id)
    with pytest.raises(NotFound), story.runtime.begin() as uow:
        send_test(uow, story.runtime, story.admin, "own")
    with pytest.raises(NotFound), story.runtime.begin() as uow:
        resend(uow, story.runtime, story.admin, uuid4())


def test_what_is_written_while_its_channel_is_removed_ends(story: NotificationStory):
    story.channel("own")
    with story.runtime.begin() as uow:
        story.within(uow, FAILED, "No progress.")
        with story.runtime.begin() as other:
            remove_channel(other, story.runtime, story.admin, "own")
    assert story.states() == [DeliveryState.NEW]
    story.send()
    [row] = story.deliveries()
    assert (row.state, row.last_answer) == (DeliveryState.FAILED, CHANNEL_REMOVED)
    assert story.server.paths() == []
    assert next_look(story) is None, "nobody looks at it any more"


def next_look(story: NotificationStory) -> timedelta | None:
    with story.runtime.begin() as uow:
        due = SendNotifications(story.runtime).next_due(uow)
    return None if due is None else due - story.now


def test_nobody_looks_for_work_while_a_channel_rests_or_is_called(story: NotificationStory):
    story.channel("own")
    story.server.statuses["/own"] = 500
    story.happen(FAILED, "First.")
    story.happen(FAILED, "Second.")
    assert next_look(story) == timedelta()
    select_phase(story.runtime, SendNotifications(story.runtime))
    assert next_look(story) == timedelta(seconds=45)
    story.send(45)
    assert next_look(story) == REST


def test_a_message_of_another_release_is_sent_as_far_as_it_can_be_read(story: NotificationStory):
    story.channel("own", ChannelKind.WEBHOOK)
    for _ in range(2):
        story.happen(FAILED, "No progress.")
    newer, broken = story.deliveries()
    change_row(story.engine, DELIVERIES, newer.id, message={**newer.message, "colour": "red"})
    change_row(story.engine, DELIVERIES, broken.id, message={"kind": "failed"})
    story.send()
    [taken] = story.server.taken
    assert "colour" not in taken.document
    sent, unread = story.deliveries()
    assert (sent.state, unread.state) == (DeliveryState.DELIVERED, DeliveryState.WAITING)
    assert (unread.tries, unread.last_answer) == (
        1, "This release cannot read it: another one has written it.",
    )  # fmt: skip


def test_a_host_that_hangs_takes_no_thread_from_the_calls_to_clouds(story: NotificationStory):
    """The other way round as well: each can be held for ever without the other."""
    story.channel("own")
    story.happen(FAILED, "No progress.")
    released, effects = threading.Event(), ThreadEffects(2)
    runtimes = ControllerRuntimes(replace(story.runtime, effects=effects))
    sender, cloud = SendNotifications(story.runtime), ReleaseInstances(story.runtime)

    def hang(_: int) -> None:
        released.wait(30)

    calls = threading.Thread(target=lambda: runtimes.of(cloud).effects.run_all(hang, [1, 2]))
    calls.start()
    try:
        sending = threading.Thread(target=lambda: run_controller(runtimes.of(sender), sender))
        sending.start()
        sending.join(10)
        assert story.states() == [DeliveryState.DELIVERED]
    finally:
        released.set()
        calls.join(30)


def test_what_has_ended_is_kept_for_thirty_days(story: NotificationStory):
    story.channel("own")
    story.happen(FAILED, "No progress.")
    story.send()
    story.send(29 * 86_400)
    assert len(story.deliveries()) == 1
    story.send(2 * 86_400)
    assert story.deliveries() == []
