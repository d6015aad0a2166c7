"""Rings on a real Valkey: Celery reads them, many become one, an absent Valkey costs nothing."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from subprocess import PIPE

import pytest
import redis
from celery import Celery

from app.adapters.celery_wakeups import (
    RUN_TASK,
    CeleryWakeups,
    Notifiable,
    RingLost,
    RingSender,
    broker_settings,
)
from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
from app.adapters.redis_ping import redis_problem
from app.adapters.system_entropy import SystemEntropy
from tests.support.servers.embedded import open_folder, wait_until

PERIOD_SECONDS = 5.0
_numbers = count()


@pytest.fixture
def queue(valkey_url: str) -> Iterator[str]:
    """A queue of this test's own on the shared server."""
    name = f"rings-{next(_numbers)}"
    yield name
    with redis.Redis.from_url(valkey_url) as client:
        client.delete(name)


def wakeups_for(url: str, queue: str) -> CeleryWakeups:
    """A doorbell with two controllers on one queue."""
    controllers = {name: Notifiable(queue, PERIOD_SECONDS) for name in ("claim_jobs", "sweep")}
    return CeleryWakeups(url, controllers, SystemEntropy())


def messages_in(url: str, queue: str) -> list[dict[str, object]]:
    """What lies in the queue, oldest first, undecoded."""
    with redis.Redis.from_url(url) as client:
        return [json.loads(item) for item in reversed(client.lrange(queue, 0, -1))]


def test_celery_reads_a_ring_as_a_task_call(valkey_url: str, queue: str):
    before = datetime.now(UTC)
    wakeups = wakeups_for(valkey_url, queue)
    wakeups.notify(["claim_jobs"])
    wakeups.close()

    receiver = Celery(set_as_current=False)
    receiver.conf.update(broker_settings(valkey_url))
    with receiver.connection() as connection, connection.SimpleQueue(queue) as waiting:
        message = waiting.get(timeout=60)
        assert message.payload[0] == ["claim_jobs"]
        assert message.headers["task"] == RUN_TASK
        assert message.headers["retries"] == 0
        expires_at = datetime.fromisoformat(message.headers["expires"])
        period = timedelta(seconds=PERIOD_SECONDS)
        assert before + period <= expires_at <= datetime.now(UTC) + period
        message.ack()
    assert messages_in(valkey_url, queue) == []
    assert (wakeups.sent_count, wakeups.dropped_count) == (1, 0)


def test_rings_that_come_together_are_one_message_each(valkey_url: str, queue: str):
    wakeups = wakeups_for(valkey_url, queue)
    for _ in range(500):
        wakeups.notify(["claim_jobs", "sweep", "claim_jobs"])
    wakeups.close()
    sent = messages_in(valkey_url, queue)
    assert wakeups.sent_count == len(sent)
    # Both at once to begin with, and whatever came after in the pauses.
    assert 2 <= len(sent) <= 200


def test_the_last_ring_is_sent_however_it_fell(valkey_url: str, queue: str):
    wakeups = wakeups_for(valkey_url, queue)

    def has_sent(count: int) -> bool:
        return wakeups.sent_count == count

    for wanted in range(1, 6):
        wakeups.notify(["sweep"])
        wait_until(partial(has_sent, wanted), "the ring was sent")
    wakeups.close()


def test_a_controller_that_is_not_known_is_not_rung(valkey_url: str, queue: str):
    wakeups = wakeups_for(valkey_url, queue)
    wakeups.notify(["no_such_controller"])
    wakeups.close()
    assert messages_in(valkey_url, queue) == []


def test_many_threads_may_ring(valkey_url: str, queue: str):
    wakeups = wakeups_for(valkey_url, queue)

    def ring() -> None:
        for _ in range(100):
            wakeups.notify(["sweep"])

    threads = [threading.Thread(target=ring) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wakeups.close()
    assert wakeups.sent_count == len(messages_in(valkey_url, queue)) >= 1


def test_rings_are_dropped_while_valkey_is_away_and_sent_when_it_is_back():
    with open_folder() as folder:
        server = EmbeddedValkey(folder / "state")
        url = server.start()
        wakeups = wakeups_for(url, "quick")
        try:
            wakeups.notify(["claim_jobs"])
            wait_until(lambda: wakeups.sent_count == 1, "sent while it is there")
            server.stop()
            began = time.monotonic()
            wakeups.notify(["claim_jobs"])
            assert time.monotonic() - began < 5, "a ring waited for the network"
            wait_until(lambda: wakeups.dropped_count == 1, "dropped while it is away")
            assert server.start() == url
            wakeups.notify(["claim_jobs"])
            wait_until(lambda: wakeups.sent_count == 2, "sent when it is back")
        finally:
            wakeups.close()
            server.stop()


def test_a_server_that_hangs_costs_a_second_for_each_ring():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        sender = RingSender(url, SystemEntropy())
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(RingLost, match="Timeout"):
                sender.send(RUN_TASK, ("sweep",), "quick", PERIOD_SECONDS)
            assert time.monotonic() - began < 3
        sender.close()


def test_a_wrong_password_is_told_without_the_password(valkey_url: str, queue: str):
    wrong = valkey_url.replace("redis://:", "redis://:not-")
    problem = redis_problem(wrong, 1.0)
    assert problem is not None
    assert "invalid username-password pair" in problem
    assert "not-" not in problem
    sender = RingSender(wrong, SystemEntropy())
    with pytest.raises(RingLost, match="invalid username-password pair") as lost:
        sender.send(RUN_TASK, ("sweep",), queue, PERIOD_SECONDS)
    assert "not-" not in str(lost.value)
    sender.close()


def test_ping_and_rings_use_the_database_that_the_address_names(valkey_url: str, queue: str):
    other = f"{valkey_url.removesuffix('/0')}/3"
    assert redis_problem(other, 1.0) is None
    wakeups = wakeups_for(other, queue)
    wakeups.notify(["sweep"])
    wakeups.close()
    assert messages_in(valkey_url, queue) == []
    assert len(messages_in(other, queue)) == 1
    with redis.Redis.from_url(other) as client:
        client.delete(queue)


def test_rings_and_ping_go_over_a_unix_socket_with_a_password(
    valkey_server: EmbeddedValkey, queue: str
):
    with open_folder() as folder:
        path = folder / "v.sock"
        binary = str(valkey_server.server_binaries.valkey)
        words = ["--port", "0", "--unixsocket", str(path), "--requirepass", "p@ss", "--save", ""]
        with subprocess.Popen([binary, *words, "--dir", str(folder)], stdout=PIPE) as server:
            try:
                url = f"unix://:p%40ss@{path}?db=2"
                wait_until(lambda: redis_problem(url, 1.0) is None, "it answers")
                wakeups = wakeups_for(url, queue)
                wakeups.notify(["sweep"])
                wakeups.close()
                assert (wakeups.sent_count, len(messages_in(url, queue))) == (1, 1)
            finally:
                server.terminate()


def test_celery_gets_a_socket_in_its_own_words(tmp_path: Path):
    settings = broker_settings("unix://:pw@/run/v.sock?db=2")
    assert settings["broker_url"] == "redis+socket://:pw@/run/v.sock?virtual_host=2"
    assert settings["result_backend"] is None
