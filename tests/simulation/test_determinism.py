"""A seed replays to the last event, whatever Python hashes and wherever rows lie on disk.

Where they lie is no matter of the world alone: an open transaction in any other database of the
server has PostgreSQL keep old versions of rows, and put new ones elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from app.simulation.runs.run_seed import run_seed
from tests.simulation.conftest import NewDatabase
from tests.support.servers.finished_commands import run_command

ROOT = Path(__file__).parents[2]
SEED = 7


def digest_in_a_process(url: str, hours: float, hash_seed: str, *more: str) -> str:
    command = [sys.executable, "-m", "app.simulation", "--seed", str(SEED), "--hours", str(hours)]
    run = run_command(
        [*command, "--database", url, "--digest", *more],
        timeout=400,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


@contextmanager
def open_transaction(url: str) -> Iterator[None]:
    """Somebody's transaction that has written, in a database of their own."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_current_xact_id()"))
            yield
    finally:
        engine.dispose()


@pytest.mark.parametrize("hours", [0.25, pytest.param(2.0, marks=pytest.mark.full)])
def test_equal_digests_with_other_hashes_and_another_row_order(
    new_database: NewDatabase, hours: float
) -> None:
    by_index = digest_in_a_process(new_database(), hours, "1")
    with open_transaction(new_database()):
        by_place = digest_in_a_process(new_database(), hours, "2", "--shuffled")
    assert len(by_index) == 64
    assert by_index == by_place


@pytest.mark.full
def test_another_seed_is_another_world(new_database: NewDatabase) -> None:
    first, second = (run_seed(new_database(), seed, 0.5).digest for seed in (SEED, SEED + 1))
    assert first != second
