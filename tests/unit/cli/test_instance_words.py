"""What `lowtide instances interrupt` takes as a time and answers."""

from __future__ import annotations

import pytest

from app.cli.client.failures import CommandFailed
from app.cli.fleet.instance_commands import _interrupted, _notice_seconds


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("10", 10), ("0.5", 0.5), ("10s", 10), ("1m", 60), ("1m 30s", 90), ("1h", 3_600), ("0", 0)],
)
def test_a_notice_is_a_duration_or_seconds(written: str, seconds: float) -> None:
    assert _notice_seconds(written) == seconds


@pytest.mark.parametrize("written", ["", "x", "-1", "nan", "inf", "3601", "2h", "10 minutes"])
def test_any_other_notice_is_refused_with_what_is_accepted(written: str) -> None:
    with pytest.raises(CommandFailed, match="write a time from 0s to 1h, as 10s or 1m, or a"):
        _notice_seconds(written)


def test_the_answer_is_a_sentence() -> None:
    row = {"name": "m2", "id": "0189", "job_name": "tour"}
    assert _interrupted(row, 10.0) == "m2 of tour has its notice; it is killed in 10s."
    assert _interrupted(row, None) == "m2 of tour is killed now, without notice."
