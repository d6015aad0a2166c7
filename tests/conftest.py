"""Fixtures for every kind of test: real servers started once, a database of its own for each test.

Not here: fixtures of one part (in that part's tests) and the servers themselves (tests/support).
"""

from __future__ import annotations

import gc
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from hypothesis import settings
from sqlalchemy import Engine

from app.adapters.embedded.servers.valkey_server import EmbeddedValkey
from tests.support.servers.embedded import open_folder
from tests.support.servers.postgres import LentDatabase, PostgresForTests, fast_folder

pytest_plugins = [
    "tests.support.plugins.second_runs",
    "tests.support.plugins.cpu_seconds",
    "tests.support.plugins.tiers",
    "tests.support.plugins.late_modules",
    "tests.support.plugins.scheduling",
]

# The same examples in every run: a change, not the dice, turns a test red. To look further:
# pytest tests/property --hypothesis-profile=default
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("full", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("repeatable")


# What is imported and collected stays to the end: looking for garbage in it takes seconds.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on only what tests make is looked at."""
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """With `--full` every property gets more examples; a profile that is named is kept."""
    if config.getoption("--full") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("full")


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_this_shell() -> None:
    """Tests mean the same whatever the shell that runs them has set."""
    for name in [name for name in os.environ if name.startswith("LOWTIDE_")]:
        del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Clients in tests speak no TLS with the world, and reading all its authorities takes 40 ms."""
    first, end = Path(certifi.where()).read_text("utf-8").partition(ssl.PEM_FOOTER)[:2]
    authority = tmp_path_factory.mktemp("authorities") / "one.pem"
    authority.write_text(first + end, encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(authority)


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> None:
    """A program started in the background inherits that Ctrl-C is ignored, and hands it on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresForTests]:
    """A real PostgreSQL of this run's own, with a migrated template."""
    with fast_folder() as folder:
        server = PostgresForTests(folder / "postgres-state")
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture
def database(postgres: PostgresForTests) -> Iterator[LentDatabase]:
    """A migrated database without rows, for this test alone."""
    with postgres.lend() as lent:
        yield lent


@pytest.fixture
def database_url(database: LentDatabase) -> str:
    """The URL of `database`."""
    return database.url


@pytest.fixture
def empty_database_url(postgres: PostgresForTests) -> Iterator[str]:
    """The URL of a database without any table, for this test alone."""
    url = postgres.create_empty()
    yield url
    postgres.drop(url)


@pytest.fixture
def engine(database: LentDatabase) -> Engine:
    """An engine on `database_url` with the limits that the programs use.

    Its connections live on; what a test listens to on it ends with the test.
    """
    return database.engine.execution_options()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[EmbeddedValkey]:
    """A real Valkey of this run's own."""
    with open_folder() as folder:
        server = EmbeddedValkey(folder / "valkey-state")
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def valkey_url(valkey_server: EmbeddedValkey) -> str:
    """The redis:// URL of the run's Valkey; tests share it, so use keys of your own."""
    return valkey_server.url
