"""The api that agents call, served for one test. Not here: agents on machines (../agent)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.orchestration.frame.runtime import Runtime
from tests.support.api.agent_api import ServedApi, make_runtime, served


@pytest.fixture
def runtime(engine: Engine, tmp_path: Path) -> Runtime:
    return make_runtime(engine, tmp_path / "store")


@pytest.fixture
def api(engine: Engine, runtime: Runtime) -> Iterator[ServedApi]:
    with served(engine, runtime) as running:
        yield running
