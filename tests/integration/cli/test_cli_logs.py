"""`lowtide logs` against the real api: whose lines, how many, and what they may not do."""

from __future__ import annotations

import json

from sqlalchemy import insert, update

from app.domain.lifecycle.attempt import AttemptState
from app.storage.jobs.log_repository import GAP_KEY
from app.storage.schema import tables
from tests.support.cli.cli_world import World
from tests.support.stories.money_story import START

STREAM = "attempt-{:04d}/node-{}.log"


def test_logs_of_the_newest_attempt_or_another(world: World):
    assert "Nothing was written yet" in world.cli.ok("logs", "digits").errors
    world.story.attempt(world.job, 2, state=AttemptState.FAILED, ended_at=START)
    world.log(STREAM.format(1, 0), b"old\n")
    world.log(STREAM.format(2, 0), "é one\n".encode())
    world.log(STREAM.format(2, 0), b"two", offset=7)
    with world.story.engine.begin() as connection:
        streams = tables.log_streams
        connection.execute(
            streams.update().where(streams.c.stream == STREAM.format(2, 0)).values(size_bytes=10)
        )
    assert world.cli.ok("logs", "digits").out == "é one\ntwo\n"
    assert world.cli.ok("logs", "digits", "--attempt", "1").out == "old\n"
    assert world.cli.ok("logs", "digits", "-n", "1").out == "two\n"
    assert world.cli.ok("logs", "digits", "--since", "10m").out == "é one\ntwo\n"
    first = world.cli.ok("logs", "digits", "--json").out.splitlines()[0]
    assert first == '{"attempt": 2, "rank": 0, "machine": "m1", "line": "é one"}'


def test_a_machine_that_the_gang_never_had_is_refused_with_those_that_it_has(world: World):
    world.log(STREAM.format(1, 0), b"zero\n")
    for options in (["--rank", "7"], ["--node", "7", "-f"], ["--rank", "7", "--attempt", "1"]):
        refused = world.cli.fails(2, "logs", "digits", *options).errors
        assert "has no node 7: it has only node 0 (a node is a machine)" in refused
    world.story.attempt(world.job, 2, node_count=2, state=AttemptState.FAILED, ended_at=START)
    world.log(STREAM.format(2, 1), b"one\n")
    assert world.cli.ok("logs", "digits", "--node", "1").out == "one\n"
    assert "it has the nodes 0 to 1" in world.cli.fails(2, "logs", "digits", "--rank", "2").errors
    # Which it has had, although it wrote nothing.
    silent = world.cli.ok("logs", "digits", "--rank", "0")
    assert "No log fits these options; there are: attempt-0001/node-0.log" in silent.errors
    alone = world.cli.fails(2, "logs", "digits", "--rank", "1", "--attempt", "1").errors
    assert "attempt 1 of this job has no node 1: it has only node 0" in alone
    help_page = " ".join(world.cli.ok("logs", "--help").out.split())
    assert "its node rank. All processes of a machine write into one log." in help_page


def test_logs_cannot_move_the_cursor_unless_asked_for(world: World):
    hostile = "\x1b]0;owned\x07\tred \x1b[31mfail\x1b[0m\x9b2J \u202eend\r\n 10 %\r100 %\n"
    world.log(STREAM.format(2, 0), hostile.encode())
    shown = world.cli.ok("logs", "digits").out
    assert shown == "\\x1b]0;owned\\x07\tred fail\\x9b2J \\u202eend\n100 %\n"
    assert world.cli.ok("logs", "digits", "--raw").out == hostile.replace("\r\n", "\n")  # as read
    written = world.cli.ok("logs", "digits", "--json").out
    assert written.replace("\n", "").isprintable()
    lines = [json.loads(line)["line"] for line in written.splitlines()]
    assert lines == hostile.split("\n")[:2]


def test_logs_with_a_missing_part_say_so_and_go_on_behind_it(world: World):
    stream, begin, end = STREAM.format(1, 0), b"begin\n", b"RuntimeError: the reason\n"
    world.log(stream, begin)
    gap = 1_000_000
    world.log(stream, end, offset=len(begin) + gap)
    own = {"job_id": world.job.id, "stream": stream}
    with world.story.engine.begin() as connection:
        chunk = {"byte_offset": len(begin), "size_bytes": gap, "object_key": GAP_KEY}
        connection.execute(insert(tables.log_chunks).values(**own, **chunk))
        size = len(begin) + gap + len(end)
        connection.execute(update(tables.log_streams).values(size_bytes=size))
    said = world.cli.ok("logs", "digits").out
    assert said.startswith("begin\n")
    assert "[lowtide] 1000000 bytes of log are missing here" in said
    assert said.endswith("RuntimeError: the reason\n")
    assert len(said) < 1_000
    assert world.cli.ok("logs", "digits", "-n", "5").out == end.decode()


def test_the_last_lines_are_the_last_ones_of_a_log_in_very_many_pieces(world: World):
    stream = STREAM.format(1, 0)
    for number in range(70):
        world.log(stream, b"line %02d\n" % number, offset=8 * number)
    with world.story.engine.begin() as connection:
        connection.execute(update(tables.log_streams).values(size_bytes=8 * 70))
    assert world.cli.ok("logs", "digits", "-n", "2").out == "line 68\nline 69\n"


def test_the_last_lines_of_a_gang_are_those_of_each_machine(world: World):
    world.succeed(node_count=2)
    for rank in (0, 1):
        world.log(STREAM.format(1, rank), b"first\nlast\n")
    shown = world.cli.ok("logs", "digits", "-n", "1").out
    assert shown == "m1, node 0 | last\nm1, node 1 | last\n"
    assert "last N lines of each machine" in " ".join(world.cli.ok("logs", "--help").out.split())


def test_logs_followed_end_with_the_job(world: World):
    world.succeed(node_count=2)
    world.log(STREAM.format(1, 0), b"zero\n")
    world.log(STREAM.format(1, 1), b"one\n")
    assert world.cli.ok("logs", "digits", "-f").out == "m1, node 0 | zero\nm1, node 1 | one\n"
