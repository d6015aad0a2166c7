"""A better word on a start that comes when the books are closed already; on real rows.

Not here: the word itself and its rank (`test_orchestration_late_words`).
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.events import Actor, ActorKind
from app.orchestration.frame.aggregate import open_job
from app.orchestration.instances.reconcile_instances import ReconcileInstances
from app.orchestration.instances.revise_start import revise_start
from app.orchestration.money.accrue_costs import AccrueCosts
from app.storage.schema import tables
from app.storage.schema.money_tables import ledger_entries
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.orchestration_story import PRICES, Story


def test_a_final_bill_is_made_again(engine: Engine, tmp_path: Path) -> None:
    story = Story(engine, tmp_path / "store")
    job_id, [only] = story.training()
    story.pass_time(120)
    story.stop(job_id)
    story.pass_time(200)
    booking = (AccrueCosts(story.runtime),)
    story.quote()
    run_until_idle(story.runtime, booking)
    machine = story.instance(only)
    assert machine.state == "terminated"
    closed = {"cost_final_at": machine.ended_at}
    story.set(tables.instances, only, launched_source="creation", **closed)
    story.set(tables.jobs, job_id, **closed)
    began_at = machine.launched_at + timedelta(seconds=8)
    actor = Actor(ActorKind.CONTROLLER, ReconcileInstances.name)
    with (
        story.runtime.begin() as uow,
        open_job(uow, story.runtime.entropy, job_id, actor) as aggregate,
    ):
        assert aggregate is not None
        instance = uow.instances.get(only)
        assert instance is not None
        revise_start(aggregate, instance, began_at, "last_start")
    run_until_idle(story.runtime, booking)
    revised = [one for one in story.rows(ledger_entries) if one.kind == "adjustment"]
    price = PRICES[machine.pool]
    lower = sum(one.amount_microusd for one in revised)
    assert lower == pytest.approx(-price * 8 / 3_600, abs=2)
