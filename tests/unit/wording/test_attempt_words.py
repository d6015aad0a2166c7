"""What people call attempts and their logs, where numbers were left out between them."""

import pytest

from app.domain.wording.attempt_words import (
    attempt_words,
    program_ended,
    program_starting,
    sentence_about,
    stream_ordinal,
    stream_words,
    work_finished,
)

ORDINALS = {1: 1, 1002: 2, 1003: 3}


def test_an_attempt_is_called_by_its_count() -> None:
    assert attempt_words(ORDINALS, 1002) == "attempt 2"
    assert sentence_about(ORDINALS, 1003, "ended.") == "Attempt 3 ended."


def test_an_attempt_without_a_row_is_not_taken_for_one_that_is_counted() -> None:
    assert attempt_words(ORDINALS, 2) == "the attempt with fence 2"
    assert sentence_about(ORDINALS, 2, "ended.") == "The attempt with fence 2 ended."


@pytest.mark.parametrize(
    ("stream", "words", "ordinal"),
    [
        ("attempt-1002/node-1.log", "attempt-0002/node-1.log", 2),
        ("attempt-0001/node-0.log", "attempt-0001/node-0.log", 1),
        ("attempt-0002/node-0.log", "fence-0002/node-0.log", None),
        ("attempt-1002/other.log", "attempt-1002/other.log", None),
        ("attempt-9999999999/node-0.log", "attempt-9999999999/node-0.log", None),
    ],
)
def test_a_stream_is_called_by_the_count_of_its_attempt(
    stream: str, words: str, ordinal: int | None
) -> None:
    assert stream_ordinal(stream, ORDINALS) == ordinal
    assert stream_words(stream, ordinal) == words


def test_a_command_is_not_called_training() -> None:
    assert program_starting("run", 1, "") == "The command is starting on 1 machine."
    assert program_starting("trainer", 2, ", from step 20") == (
        "The trainer is starting on 2 machines, from step 20."
    )
    assert program_ended("run", 0, 1, "failed") == "The command on the machine ended: failed."
    assert work_finished("run", 1) == "The command has finished."
    assert work_finished("run", 2) == "The command has finished on every machine."
    assert work_finished("trainer", 1) == "Training is complete."
    assert work_finished("trainer", 2) == "Training is complete on every machine."
