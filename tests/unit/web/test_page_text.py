"""Text on the pages: figures for people, logs without terminal codes, paths of this site."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from app.web import formats
from app.web.job.log_tail import readable
from app.web.session import HOME, local_path

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("microusd", "text"),
    [
        (None, "–"),
        (0, "$0.00"),
        (918_000, "$0.918"),
        (1_000_000, "$1.00"),
        (12_345_678, "$12.35"),
        (-459_000, "-$0.459"),
        (999, "<$0.001"),
        (1_000, "$0.001"),
    ],
)
def test_small_amounts_keep_their_tenths_of_a_cent(microusd: int | None, text: str):
    assert formats.usd(microusd) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "–"), (0, "0 %"), (0.999, "99 %"), (1, "100 %"), (Fraction(-1, 4), "-25 %")],
)
def test_a_saving_is_never_rounded_up_to_all(ratio: float | Fraction | None, text: str):
    assert formats.saved(ratio) == text


def test_a_share_that_is_not_zero_does_not_look_like_zero() -> None:
    assert formats.part_percent(0.01) == "<0.1 %"
    assert formats.part_percent(8.31) == "8.3 %"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.9, "1m"), (60, "1m"), (5400, "1h 30m"), (90_061, "1d 1h"),
     (-90, "-1m 30s")],
)  # fmt: skip
def test_durations_have_at_most_two_units(seconds: float, text: str):
    assert formats.brief(seconds) == text


def test_past_and_future_are_told_apart():
    assert formats.ago(NOW - timedelta(seconds=42), NOW) == "42s ago"
    assert formats.ago(NOW + timedelta(minutes=3), NOW) == "in 3m"
    assert formats.ago(NOW, NOW) == "now"
    assert formats.since(NOW - timedelta(seconds=42), NOW) == "42s ago"
    assert formats.since(NOW + timedelta(seconds=2), NOW) == "now", "read after the page's clock"
    assert formats.since(None, NOW) == "–"
    assert formats.ago(None, NOW) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_234_567.0, "1,234,567"), (0.12345, "0.1235"), (7, "7"), (999.96, "1,000"), (None, "–")],
)
def test_counts_have_few_digits(value: float | None, text: str):
    assert formats.count(value) == text


@pytest.mark.parametrize("path", ["/jobs", "/jobs/digits", "/jobs/a?state=live", "/jobs/%20"])
def test_paths_of_this_site_are_kept(path: str):
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [None, "", "jobs", "//evil", "/\\evil", "https://evil", "javascript:alert(1)", "/a\nb",
     "/sign-in?next=/sign-in", "/sign-out", "/" + "a" * 600, "/jobs/<b>"],
)  # fmt: skip
def test_anything_else_leads_home(path: str | None):
    assert local_path(path) == HOME


def test_terminal_codes_and_control_characters_are_dropped():
    text, is_cut = readable(b"\x1b[1;32mgreen\x1b[0m\x00\x07\tkept\n\x1b]0;title\x07end\n",
                            cut_at_start=False)  # fmt: skip
    assert text == "green\tkept\nend\n"
    assert not is_cut


def test_of_a_progress_bar_the_last_state_is_shown():
    text, _ = readable(b"10%\r50%\r99%\r\ndone\r\n", cut_at_start=False)
    assert text == "99%\ndone\n"


def test_the_first_line_of_a_cut_log_is_left_out_for_it_is_not_whole():
    assert readable(b"lf a line\nwhole\n", cut_at_start=True) == ("whole\n", True)
    assert readable(b"one endless line", cut_at_start=True) == ("one endless line", True)


def test_a_log_shows_only_its_last_lines_and_bad_bytes_do_not_stop_it():
    text, is_cut = readable(b"\xff\n" + b"x\n" * 1000, cut_at_start=False)
    assert is_cut
    assert text.count("\n") == 299
    assert readable(b"\xff\n", cut_at_start=False)[0] == "\ufffd\n"
