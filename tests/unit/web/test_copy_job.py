"""The name of a copy, and the line of the text in which a refused field stands."""

from __future__ import annotations

import pytest

from app.orchestration.queue.copy_job import next_names
from app.web.job.job_copies import line_of

SPEC = """name: tour-2
trainer:
  model: cnn
  epochs: 0
env:
  epochs: '3'
resources: {gpu: [V100:1]}
checkpoint:
  keep: 3
"""


@pytest.mark.parametrize(
    ("name", "first"),
    [("tour", "tour-2"), ("tour-2", "tour-3"), ("run-99", "run-100"), ("lr-0", "lr-0-2"),
     ("day-20260301", "day-20260301-2"), ("7", "7-2")],
)  # fmt: skip
def test_a_number_at_the_end_is_counted_on(name: str, first: str):
    assert next_names(name)[0] == first


def test_names_of_copies_are_names():
    longest = f"{'a' * 59}-999"
    assert all(len(name) <= 63 for name in next_names(longest))
    assert all(len(name) <= 63 for name in next_names("a" * 63))


@pytest.mark.parametrize(
    ("field", "line"),
    [("name", 1), ("trainer.epochs", 4), ("env.epochs", 6), ("resources.gpu", 7), ("checkpoint", 8),
     ("trainer.keep", 2), ("env.model", 5), ("", None), ("nowhere", None)],
)  # fmt: skip
def test_a_field_is_found_in_its_section_else_the_section(field: str, line: int | None):
    assert line_of(SPEC, field) == line
