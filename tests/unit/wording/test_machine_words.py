"""How a whole gang is called."""

from __future__ import annotations

import pytest

from app.domain.wording.machine_words import all_machines_are
from app.domain.wording.retry_words import retries_used_up


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "The machine is"), (2, "Both machines are"), (3, "All 3 machines are")],
)
def test_two_machines_are_both_and_not_all(number: int, words: str) -> None:
    assert all_machines_are(number) == words


@pytest.mark.parametrize(
    ("retries", "words"),
    [
        (1, "Its one retry is used."),
        (2, "Both retries are used."),
        (3, "All 3 retries are used."),
    ],
)
def test_two_retries_are_both_and_not_all(retries: int, words: str) -> None:
    assert retries_used_up(retries) == words
