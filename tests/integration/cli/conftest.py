"""The command line against the real api, with one job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.api.people_api import settings_for
from tests.support.cli.cli_world import World, small_world


@pytest.fixture
def world(engine: Engine, database_url: str, valkey_url: str, tmp_path: Path) -> Iterator[World]:
    settings = settings_for(database_url, valkey_url, tmp_path / "state")
    with small_world(settings, engine, tmp_path) as made:
        yield made
