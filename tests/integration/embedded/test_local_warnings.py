"""Where local jobs run as Lowtide's own user, people are told: at the start, and at submission.

Not here: what such a job could read, and who runs where
(tests/providers/local/test_local_accounts.py).
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.api.serving.api_parts import _local_warning
from tests.integration.embedded.test_programs import up_without_servers
from tests.support.api.people_api import SPEC, people_api, settings_for
from tests.support.cli.cli_world import small_world
from tests.support.servers.postgres import fast_folder

KEY = "AWS_SECRET_ACCESS_KEY"


def test_a_submission_names_the_keys_that_a_local_job_could_read(
    database_url: str, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(KEY, "not-a-secret")
    both = frozenset({"local", "aws"})
    settings = settings_for(
        database_url,
        valkey_url,
        tmp_path,
        local_first_uid=0,
        providers=both,
        aws_regions=("us-east-1",),
        public_url="https://lowtide.example.com",
    )
    with people_api(settings) as api:
        [warning] = api.submitted()["warnings"]
        assert KEY in warning
        assert "docs/local.md" in warning
        assert "not-a-secret" not in warning
        assert len(api.submitted(infra=["aws", "local"])["warnings"]) == 1
        assert api.submitted(infra=["aws"])["warnings"] == []


def test_who_keeps_jobs_apart_is_not_warned(
    database_url: str, valkey_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(KEY, "not-a-secret")
    with ExitStack() as opened:
        folder = opened.enter_context(fast_folder())
        api = opened.enter_context(people_api(settings_for(database_url, valkey_url, folder)))
        assert api.submit(SPEC).json()["warnings"] == []


def test_a_warning_needs_keys_and_local_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def warned(**other: Any) -> bool:
        told = settings_for("postgresql://no", "redis://no", tmp_path, local_first_uid=0, **other)
        return bool(_local_warning(told))

    assert not warned()
    monkeypatch.setenv(KEY, "not-a-secret")
    assert warned()
    assert not warned(providers=frozenset({"aws"}))


def test_the_command_line_says_it(
    engine: Engine,
    database_url: str,
    valkey_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(KEY, "not-a-secret")
    settings = settings_for(database_url, valkey_url, tmp_path, local_first_uid=0)
    with small_world(settings, engine, tmp_path) as world:
        told = world.cli.ok("submit", world.spec(), "-y", "-d")
    assert "Warning: on a local machine this job runs as Lowtide's own user" in told.errors


def test_up_says_that_jobs_are_not_kept_apart_and_closes_its_store():
    with fast_folder() as folder:
        state = folder / "state"
        (state / "store").mkdir(parents=True)
        state.chmod(0o711)
        apart = up_without_servers(state, "0")
        assert "the database cannot be prepared" in apart.stderr
        assert "own user" not in apart.stdout
        assert (state / "store").stat().st_mode & 0o777 == 0o700
        shared = up_without_servers(state, "0", LOWTIDE_LOCAL_FIRST_UID="0")
        [line] = [line for line in shared.stdout.splitlines() if "own user" in line]
        assert "can read its keys and passwords" in line
        assert "LOWTIDE_LOCAL_FIRST_UID is 0" in line
