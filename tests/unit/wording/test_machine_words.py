"""How machines, a whole gang and clouds are called."""

from __future__ import annotations

import pytest

from app.domain.wording.machine_words import all_machines_are, cloud_words, machines_at_hand
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


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ("local", "the local cloud"),
        ("aws", "AWS"),
        ("gcp", "Google Cloud"),
        ("another", "another"),
    ],
)
def test_a_cloud_has_its_name(provider: str, words: str) -> None:
    assert cloud_words(provider) == words


@pytest.mark.parametrize(
    ("ready", "coming", "words"),
    [
        (0, 0, "requesting machines"),
        (0, 1, "1 machine on the way"),
        (1, 0, "1 machine ready"),
        (2, 0, "2 machines ready"),
        (1, 2, "1 machine ready, 2 on the way"),
    ],
)
def test_a_replacement_is_not_called_kept(ready: int, coming: int, words: str) -> None:
    assert machines_at_hand(ready, coming) == words
