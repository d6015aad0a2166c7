"""Ends that an agent has typed: what the attempt ends as, what it counts, and who goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from app.storage.schema import tables
from tests.support.api.agent_api import SpeakingAgent, make_gang, make_runtime, served
from trainer.protocol.agent_report import AGENT_FAILED, DISK_FULL, FactKind


def _rows(engine: Engine, table: Any, job_id: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(table).where(table.c.job_id == job_id)))


@pytest.mark.parametrize(
    ("kind", "data", "reason", "retries"),
    [
        ("ended", {"outcome": "failed", "type": DISK_FULL}, "disk_full", 1),
        ("ended", {"outcome": "killed", "type": AGENT_FAILED}, "agent_failed", 0),
        ("preparation", {"disk_full": True}, "disk_full", 1),
        ("preparation", {"disk_full": False}, "preparation_failed", 1),
        ("preparation", {}, "preparation_failed", 1),
    ],
)
def test_an_end_keeps_the_name_that_its_agent_gave_it(
    engine: Engine, tmp_path: Path, kind: str, data: dict[str, Any], reason: str, retries: int
) -> None:
    runtime = make_runtime(engine, tmp_path / "store")
    gang = make_gang(engine, runtime, retries=3)
    with served(runtime) as api:
        agent = SpeakingAgent(api, gang)
        assert agent.register().status_code == 200
        if kind == "preparation":
            told = {"stage": "setup", "message": "it failed", "store_unavailable": False, **data}
            last = agent.fact(FactKind.PREPARATION_FAILED, **told)
        else:
            prepared = agent.fact(FactKind.PREPARED, parent=None, master_port=29_501, final=False)
            agent.report(phase="idle", fence=1, facts=[prepared])
            agent.report(phase="train", fence=1, facts=[agent.fact(FactKind.TRAINER_STARTED)])
            error = {"message": "no room", "type": data["type"]}
            last = agent.fact(
                FactKind.TRAINER_ENDED, outcome=data["outcome"], exit_code=1, step=4, error=error
            )
        assert agent.report(phase="idle", fence=1, facts=[last]).status_code == 200
    [attempt] = _rows(engine, tables.attempts, gang.job_id)
    assert attempt.end_reason == reason
    with engine.connect() as connection:
        own = tables.jobs.c.id == gang.job_id
        used = connection.execute(select(tables.jobs.c.retries_used).where(own)).scalar_one()
    assert used == retries
    if reason in ("disk_full", "agent_failed"):
        [machine] = _rows(engine, tables.instances, gang.job_id)
        assert machine.suspect, "the next attempt gets another machine"
