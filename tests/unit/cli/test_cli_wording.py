"""Words, tables and lines: for a screen and for a pipe."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from app.cli.client import wording
from app.cli.client.failures import CommandFailed
from app.cli.client.job_lookup import one_ending_in
from app.cli.client.terminal import Column, Terminal, cut, printable
from app.cli.jobs.logs import Reader
from app.domain.units.durations import format_duration
from app.web import formats

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
COLUMNS = (
    Column("NAME", lambda row: row[0]),
    Column("$/H", lambda row: row[1], True),
    Column("WHY", lambda row: row[2]),
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_pipe(**manners: bool) -> Terminal:
    return Terminal(out=io.StringIO(), errors=io.StringIO(), **manners)


def written(terminal: Terminal) -> str:
    assert isinstance(terminal.out, io.StringIO)
    return terminal.out.getvalue()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (wording.money(1_800_000_000), "$1,800.00"),
        (wording.money(459_000), "$0.459"),
        (wording.money(0), "$0.00"),
        (wording.money(999), "<$0.001"),
        (wording.money(-1), ">-$0.001"),
        (wording.money(-459_000), "-$0.459"),
        (wording.money(None), "-"),
        (wording.exact_money(0), "$0.000000"),
        (wording.hourly(918_000), "0.918"),
        (wording.hourly(0), "-"),
        (wording.percent(0.704), "70 %"),
        (wording.against_on_demand(918_000, 3_060_000), "-70 %"),
        (wording.against_on_demand(3_060_000, 3_060_000), "0 %"),
        (wording.against_on_demand(4_000_000, 3_200_000), "+25 %"),
        (wording.size(512), "512 B"),
        (wording.size(3_600_000), "3.4 MiB"),
        (wording.size(1_048_575), "1.0 MiB"),
        (wording.size(5 << 40), "5.0 TiB"),
        (format_duration(45), "45s"),
        (format_duration(5_461), "1h 31m"),
        (format_duration(187_261), "2d 4h"),
        (wording.ago("2026-03-01T11:54:57+00:00", NOW), "5m 3s ago"),
        (wording.ahead("2026-03-01T15:20:00Z", NOW), "in 3h 20m"),
        (wording.ahead("2026-03-01T11:48:00Z", NOW), "12m ago"),
        (wording.bar(0.5, 4), "██░░"),
        (wording.bar(None, 2), "░░"),
        (wording.pool("aws/us-west-2/us-west-2a/p3.2xlarge/on_demand"),
         "aws us-west-2a p3.2xlarge on-demand"),
        (wording.pool(None), "-"),
        (wording.plural(1, "machine"), "1 machine"),
        (wording.plural(1_200, "machine"), "1,200 machines"),
    ],
)  # fmt: skip
def test_values_in_words(said: str, expected: str):
    assert said == expected


def test_since_is_a_length_or_a_time():
    assert wording.since("36h", NOW) == NOW - timedelta(hours=36)
    assert wording.since("2026-02-01T00:00Z", NOW) == datetime(2026, 2, 1, tzinfo=UTC)
    assert wording.since("2026-02-01", NOW) == datetime(2026, 2, 1, tzinfo=UTC)
    with pytest.raises(CommandFailed, match="how long ago"):
        wording.since("yesterday", NOW)
    with pytest.raises(CommandFailed) as ahead:
        wording.since("2099-01-01", NOW)
    assert ahead.value.message.startswith("--since '2099-01-01' lies in the future: it is 2026-")


def test_a_table_lines_up():
    terminal = on_pipe()
    terminal.table(COLUMNS, [("a", "0.918", "cheapest"), ("longer", "12.000", "")])
    assert written(terminal).splitlines() == [
        "NAME       $/H  WHY",
        "a        0.918  cheapest",
        "longer  12.000",
    ]


def test_a_pipe_gets_no_colour_and_a_screen_does():
    def painted(out: io.StringIO, **manners: bool) -> str:
        terminal = Terminal(out=out, errors=io.StringIO(), **manners)
        terminal.table(COLUMNS, [("a", "1", "b")])
        terminal.line(terminal.state("failed"))
        return out.getvalue()

    assert "\x1b" not in painted(io.StringIO())
    assert "\x1b[31mfailed\x1b[0m" in painted(Screen())
    assert "\x1b" not in painted(Screen(), no_color=True)


def test_colour_does_not_shift_a_column():
    screen = Screen()
    columns = (
        Column("STATE", lambda row: row, style=lambda row: "red"),
        Column("X", lambda row: "x"),
    )
    Terminal(out=screen, errors=io.StringIO()).table(columns, ["ok", "failed"])
    plain = screen.getvalue()
    for code in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert plain.splitlines()[1:] == ["ok      x", "failed  x"]


def test_names_are_text_and_wide_characters_take_two_columns():
    screen = Screen()
    columns = (Column("NAME", lambda row: row), Column("X", lambda row: "x"))
    Terminal(out=screen, errors=io.StringIO(), no_color=True).table(
        columns, ["[red]a[/red]", "模型", ":smile:"]
    )
    assert screen.getvalue().splitlines()[1:] == [
        "[red]a[/red]  x",
        "模型          x",
        ":smile:       x",
    ]


def test_quiet_and_json_keep_to_what_scripts_read():
    quiet, as_json = on_pipe(quiet=True), on_pipe(as_json=True)
    for terminal in (quiet, as_json):
        terminal.line("for people")
        terminal.table(COLUMNS, [("a", "b", "c")])
        terminal.result("name")
    assert written(quiet) == "name\n"
    assert written(as_json) == ""


def test_text_from_elsewhere_cannot_move_the_cursor():
    assert printable("a\x1b[2Jb\nc\u202e") == "a�[2Jb c�"


def test_lines_of_a_log_come_whole_though_the_bytes_do_not():
    reader = Reader(1, 1, 0, "attempt-0001/node-0.log", "m1")
    accent = "é\n".encode()
    assert reader.lines(b"one\ntw" + accent[:1]) == ["one"]
    assert reader.lines(accent[1:] + b"three") == ["twé"]
    assert reader.lines(b"", last=True) == ["three"]
    assert reader.lines(b"", last=True) == []


def test_a_line_without_an_end_is_not_kept_for_ever():
    reader = Reader(1, 1, 0, "attempt-0001/node-0.log", "m1")
    assert len("".join(reader.lines(b"x" * 200_000))) == 200_000


def test_points_are_spread_over_all_of_them():
    assert wording.spread([1, 2, 3], 5) == [1, 2, 3]
    assert wording.spread(list(range(101)), 5) == [0, 25, 50, 75, 100]


def test_the_end_of_an_id_must_mean_one():
    assert one_ending_in(["0001-aa", "0002-bb"], "bb") == "0002-bb"
    assert one_ending_in(["0001-aa"], "bb") is None
    with pytest.raises(CommandFailed, match="several ids"):
        one_ending_in(["0001-aa", "0002-aa"], "aa")


def test_a_sentence_says_how_a_job_stands():
    states = ("running", "paused", "succeeded", "failed", "cancelled")
    said = [wording.standing(state) for state in states]
    assert said == ["is running", "is paused", "has succeeded", "has failed", "is cancelled"]


def test_a_server_that_tells_no_count_has_its_fence_shown():
    assert wording.attempt({"fence": 1002}) == 1002
    assert wording.attempt({"fence": 1002, "ordinal": 2}) == 2
    assert wording.attempt_cell({"fence": 7, "ordinal": None}) == wording.NOTHING


@pytest.mark.parametrize("size_bytes", [0, 999, 1_023, 1_024, 1_500, 3_600_000, 5 << 30, 7 << 40])
def test_a_page_and_a_command_count_bytes_alike(size_bytes: int):
    assert formats.size(size_bytes) == wording.size(size_bytes)


WHY = "Retry 1 of 3: attempt 1 ended with exit code 1: NameError: name 'lrate' is not defined."


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def _jobs(width: int | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A table with a sentence, on a screen of so many columns or in a pipe."""
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO() if width is None else _Screen()
    terminal = Terminal(out=out, no_color=True)
    columns = [
        Column("NAME", lambda row: str(row[0])),
        Column("COST", lambda row: "$1.00", True),
        Column("WHY", lambda row: str(row[1]), prose=True),
    ]
    terminal.table(columns, [("one", WHY), ("another", "")])
    return out.getvalue().splitlines()


def test_a_sentence_is_whole_where_there_is_room(monkeypatch: pytest.MonkeyPatch):
    for width in (120, None):
        heading, first, second = _jobs(width, monkeypatch)
        assert heading.endswith("WHY")
        assert first.endswith(f"  {WHY}")
        assert second == "another  $1.00"


def test_a_sentence_is_cut_where_the_screen_ends_at_a_word(monkeypatch: pytest.MonkeyPatch):
    _, first, _ = _jobs(70, monkeypatch)
    assert len(first) <= 70
    assert first.endswith("  Retry 1 of 3: attempt 1 ended with exit code 1:…")


def test_a_sentence_stands_below_its_row_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch):
    heading, first, why, second = _jobs(50, monkeypatch)
    assert (heading, first, second) == ("NAME      COST", "one      $1.00", "another  $1.00")
    assert len(why) <= 50
    assert why.startswith("    Retry 1 of 3: attempt 1 ended")
    assert why.endswith("…")


def test_a_word_that_is_longer_than_the_screen_is_cut():
    assert cut("a" * 30, 10) == "a" * 9 + "…"
