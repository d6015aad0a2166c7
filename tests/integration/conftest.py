"""What most of these tests begin with: a served api, a story of controllers, a small deployment.

Not here: the servers below them (tests/conftest.py). A folder whose agents, apis or stories are of
another kind has fixtures of the same name of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.api.people_api import PeopleApi, people_api_with_sessions, settings_for
from tests.support.cli.cli_world import World, small_world
from tests.support.servers.postgres import PostgresForTests
from tests.support.stories.orchestration_story import Story


@pytest.fixture(scope="module")
def api(
    postgres: PostgresForTests, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PeopleApi]:
    """The whole api, served for a file of tests; people can sign in with a browser, too."""
    folder: Path = tmp_path_factory.mktemp("served")
    with people_api_with_sessions(settings_for(postgres.clone(), valkey_url, folder)) as served:
        yield served


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    """Controllers on real rows, with a cloud and agents that do what the test says."""
    return Story(engine, tmp_path / "store")


@pytest.fixture
def world(engine: Engine, database_url: str, valkey_url: str, tmp_path: Path) -> Iterator[World]:
    """A deployment with a running job, its api, and the command line with a key."""
    settings = settings_for(database_url, valkey_url, tmp_path / "state")
    with small_world(settings, engine, tmp_path) as made:
        yield made
