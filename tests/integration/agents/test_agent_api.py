"""The api that agents call, by real requests to a real server on a real database."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import Engine, select, text, update

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.directives import agent_report_cache
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.lose_instances import record_end
from app.storage.instances.contact_statements import AnsweredReport
from app.storage.schema import tables
from tests.support.api.agent_api import (
    BY_PERSON,
    ServedApi,
    SpeakingAgent,
    cancel,
    make_gang,
    make_runtime,
    served,
    wait_until,
)
from tests.support.servers.database_backup import dump, restore
from trainer.protocol.agent_report import FactKind

PACE = {"first_step": 1, "last_step": 5, "stepping_seconds": 8.0, "start_up_seconds": 90.0}


@pytest.fixture
def runtime(engine: Engine, tmp_path: Path) -> Runtime:
    return make_runtime(engine, tmp_path / "store")


@pytest.fixture
def api(runtime: Runtime) -> Iterator[ServedApi]:
    with served(runtime) as running:
        yield running


def _agents(api: ServedApi, engine: Engine, runtime: Runtime, nodes: int) -> list[SpeakingAgent]:
    """A gang whose agents have registered and reported once, so that the board knows them."""
    gang = make_gang(engine, runtime, nodes)
    agents = [SpeakingAgent(api, gang, rank) for rank in range(nodes)]
    for agent in agents:
        assert agent.register().status_code == 200
    for agent in agents:
        assert agent.report().status_code == 200
    return agents


def _training(api: ServedApi, engine: Engine, runtime: Runtime, nodes: int) -> list[SpeakingAgent]:
    agents = _agents(api, engine, runtime, nodes)
    for agent in agents:
        assert agent.directive()["kind"] == "prepare"
        prepared = agent.fact(FactKind.PREPARED, master_port=20_000 if agent.rank == 0 else None)
        assert agent.report(fence=1, facts=[prepared]).status_code == 200
    for agent in agents:
        facts = [agent.fact(FactKind.TRAINER_STARTED)]
        assert agent.report(fence=1, phase="train", facts=facts).status_code == 200
    return agents


def _drains(agent: SpeakingAgent) -> bool:
    return bool(agent.directive(fence=1, phase="train")["kind"] == "drain")


def _contact(engine: Engine, agent: SpeakingAgent) -> Any:
    with engine.connect() as connection:
        own = tables.contacts.c.instance_id == agent.instance_id
        return connection.execute(select(tables.contacts).where(own)).one()


def _events(engine: Engine, agent: SpeakingAgent, kind: str) -> int:
    with engine.connect() as connection:
        own = (tables.events.c.job_id == agent.gang.job_id, tables.events.c.kind == kind)
        return len(connection.execute(select(tables.events.c.seq).where(*own)).all())


def _version(engine: Engine, agent: SpeakingAgent) -> int:
    with engine.connect() as connection:
        own = tables.jobs.c.id == agent.gang.job_id
        return int(connection.execute(select(tables.jobs.c.version).where(own)).scalar_one())


# --- registration -----------------------------------------------------------------------------


def test_the_same_nonce_gets_the_same_credential_and_another_raises_an_alarm(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    agent = SpeakingAgent(api, make_gang(engine, runtime))
    first = agent.register().json()
    assert agent.register().json()["credential"] == first["credential"]
    assert first["run_config"]["run"] == "python train.py"
    assert first["directive"]["kind"] == "prepare"
    thief = SpeakingAgent(api, agent.gang, nonce="another")
    assert thief.register().status_code == 409
    assert _events(engine, agent, "credential_refused") == 1
    with engine.connect() as connection:
        stored = connection.execute(select(tables.instances.c.credential_hash)).scalar_one()
    assert stored == hashlib.sha256(first["credential"].encode()).hexdigest()


def test_registrations_that_cannot_be(api: ServedApi, engine: Engine, runtime: Runtime):
    agent = SpeakingAgent(api, make_gang(engine, runtime))
    assert agent.register(launch_token="wrong").status_code == 401
    with engine.begin() as connection:
        connection.execute(update(tables.instances).values(provider_instance_id=None))
    early = agent.register(provider_instance_id="i-of-a-launch-still-under-way")
    assert (early.status_code, early.headers["retry-after"]) == (425, "1")
    assert agent.register(protocol=7).status_code == 426
    wrong = agent.register(port_from="many")
    assert wrong.status_code == 422
    assert "port_from" in wrong.json()["detail"]
    assert agent.register(port_from=0).status_code == 422
    assert wrong.headers["content-type"] == "application/problem+json"


def test_a_token_past_its_time_registers_nobody_new(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    agent = SpeakingAgent(api, make_gang(engine, runtime))
    with engine.begin() as connection:
        past = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(update(tables.launches).values(token_expires_at=past))
    assert agent.register().status_code == 401


# --- reports ----------------------------------------------------------------------------------


def test_steady_reports_take_no_transaction_and_are_written_soon(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    (agent,) = _agents(api, engine, runtime, 1)
    version = _version(engine, agent)
    began_at = datetime.now(UTC)
    for _ in range(20):
        assert agent.report().status_code == 200
    assert _version(engine, agent) == version
    assert agent_report_cache.FLUSH_SECONDS <= 0.5, "soon"
    wait_until(lambda: _contact(engine, agent).seq == agent.seq)
    answered_at = _contact(engine, agent).answered_at
    assert began_at - timedelta(seconds=2) <= answered_at <= datetime.now(UTC)


def test_progress_reaches_the_contact_and_stays_within_its_page(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    (agent,) = _training(api, engine, runtime, 1)
    for step in (5, 6):
        progress = {"step": step, "total_steps": 100, "metrics": {"loss": 1.5}}
        assert agent.report(fence=1, phase="train", progress=progress).status_code == 200
    wait_until(lambda: _contact(engine, agent).step == 6)
    found = _contact(engine, agent)
    assert (found.total_steps, found.metrics, found.phase) == (100, {"loss": 1.5}, "train")
    assert found.step_at is not None
    with runtime.begin() as uow:
        heard = AnsweredReport(agent.instance_id, "session-1", 10**6, 0.0, "train", 7, 100, {})
        assert uow.contacts.store([heard], uow.now) == 1
        counts = text(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables "
            "WHERE relname = 'contacts'"
        )
        updated, within_page = uow.session.execute(counts).one()
        # The counts may hold what this connection did before.
        assert updated == within_page >= 1


def test_what_an_agent_measured_is_written_with_its_contact(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    (agent,) = _training(api, engine, runtime, 1)
    progress = {"step": 5, "total_steps": 100, "pace": PACE}
    assert agent.report(fence=1, phase="train", progress=progress).status_code == 200
    later = {**progress, "step": 6, "pace": {**PACE, "last_step": 6, "stepping_seconds": 9.5}}
    assert agent.report(fence=1, phase="train", progress=later).status_code == 200
    wait_until(lambda: _contact(engine, agent).last_step == 6)
    found = _contact(engine, agent)
    assert (found.first_step, found.stepping_seconds, found.start_up_seconds) == (1, 9.5, 90.0)
    silent = {"step": 7, "total_steps": 100}
    assert agent.report(fence=1, phase="train", progress=silent).status_code == 200
    wait_until(lambda: _contact(engine, agent).step == 7)
    assert _contact(engine, agent).last_step == 6


def test_contacts_are_never_moved_back(api: ServedApi, engine: Engine, runtime: Runtime):
    (agent,) = _agents(api, engine, runtime, 1)
    before = _contact(engine, agent)
    with runtime.begin() as uow:
        older = AnsweredReport(agent.instance_id, "session-1", before.seq - 1, 0.0, "train")
        other = AnsweredReport(agent.instance_id, "session-0", before.seq + 9, 0.0, "train")
        assert uow.contacts.store([older], uow.now) == 0
        assert uow.contacts.store([other], uow.now) == 0
        late = AnsweredReport(agent.instance_id, "session-1", before.seq + 1, 3_600.0, "idle")
        assert uow.contacts.store([late], uow.now) == 1
    after = _contact(engine, agent)
    assert (after.answered_at, after.seq) == (before.answered_at, before.seq + 1)


def test_a_replayed_report_and_resent_facts_have_no_effect(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    (agent,) = _training(api, engine, runtime, 1)
    saved = agent.fact(FactKind.CHECKPOINT, step=3, digest="d" * 64, size_bytes=10, final=False)
    document = agent.document(fence=1, phase="train", facts=[saved])
    answers = [agent.send(document).json() for _ in range(3)]
    assert {answer["ack_fact_no"] for answer in answers} == {agent.facts_told}
    assert _events(engine, agent, "checkpoint_committed") == 1
    again = agent.report(fence=1, phase="train", facts=[saved, agent.fact(FactKind.REBALANCE)])
    assert again.json()["ack_fact_no"] == agent.facts_told
    assert _events(engine, agent, "checkpoint_committed") == 1
    assert _events(engine, agent, "rebalance_recommended") == 1
    steady = agent.report(fence=1, phase="train").json()
    assert steady["ack_fact_no"] == agent.facts_told


def test_a_restarted_agent_counts_its_facts_anew(api: ServedApi, engine: Engine, runtime: Runtime):
    (agent,) = _training(api, engine, runtime, 1)
    late = agent.document(fence=1, facts=[agent.fact(FactKind.REBALANCE)])
    agent.session_id, agent.seq, agent.facts_told = "session-2", 0, 0
    assert agent.register().status_code == 200
    told = agent.report(fence=1, facts=[agent.fact(FactKind.REBALANCE)])
    assert told.json()["ack_fact_no"] == 1
    assert agent.report(fence=1).json()["ack_fact_no"] == 1
    assert _contact(engine, agent).session_id == "session-2"
    # What its former self had sent comes late: answered, and without effect.
    assert agent.send(late).json()["ack_fact_no"] == 0
    assert _contact(engine, agent).session_id == "session-2"
    assert _events(engine, agent, "rebalance_recommended") == 1


def test_a_gang_meets_and_a_notice_reaches_the_other_rank_at_once(
    engine: Engine, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    # At once: the look that comes every half second would be too late.
    monkeypatch.setattr(agent_report_cache, "FLUSH_SECONDS", 600.0)
    monkeypatch.setattr(agent_report_cache, "PROMISE_SECONDS_MAX", 600.0)
    with served(runtime) as api:
        _a_notice_reaches_the_other_rank(api, engine, runtime)


def _a_notice_reaches_the_other_rank(api: ServedApi, engine: Engine, runtime: Runtime) -> None:
    first, second = _training(api, engine, runtime, 2)
    assert second.directive(fence=1, phase="train")["kind"] == "train"
    notice = first.fact(FactKind.NOTICE, seconds_left=30.0, source="test", notice_id="n")
    answer = first.report(fence=1, phase="train", facts=[notice]).json()["directive"]
    assert (answer["kind"], answer["drain_cause"]) == ("drain", "interruption")
    wait_until(lambda: _drains(second))


def test_a_cancel_by_another_process_is_seen_within_a_second_and_its_time_runs(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    first, second = _training(api, engine, runtime, 2)
    for agent in (first, second):
        assert agent.directive(fence=1, phase="train")["kind"] == "train"
    cancel(runtime, first.gang.job_id)
    for agent in (first, second):
        wait_until(lambda: _drains(agent))  # noqa: B023
    assert agent_report_cache.FLUSH_SECONDS <= 1.0, "each of its looks finds what has changed"
    earlier = first.directive(fence=1, phase="train")["drain_seconds"]
    time.sleep(0.3)
    later = first.directive(fence=1, phase="train")["drain_seconds"]
    assert earlier - later > 0.25
    assert 30 < later < 90


def test_an_end_that_lost_rows_were_told_is_found_by_an_api_that_runs_on(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    """Memory answers reports without news, and knows nothing of what the rows have forgotten."""
    (agent,) = _training(api, engine, runtime, 1)
    taken = dump(engine)
    agent.report(facts=[agent.fact(FactKind.TRAINER_ENDED, outcome="failed", exit_code=1)])
    assert agent.directive()["kind"] != "train"
    restore(engine, taken)
    with engine.begin() as connection:
        connection.execute(text("UPDATE deployment SET listening_at = now() - interval '1 minute'"))
    attempts = select(tables.attempts.c.end_reason).order_by(tables.attempts.c.fence)

    def ended() -> bool:
        agent.report()
        with engine.connect() as connection:
            return connection.scalars(attempts).first() == "fenced_off"

    wait_until(ended)


def test_a_command_reaches_the_memory_that_answers(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    (agent,) = _training(api, engine, runtime, 1)
    agent.report(fence=1, phase="train")
    cancel(runtime, agent.gang.job_id)
    wait_until(lambda: _drains(agent))


def test_a_revoked_credential_is_refused_within_a_second(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    (agent,) = _training(api, engine, runtime, 1)
    assert agent.report(fence=1).status_code == 200
    job_id = agent.gang.job_id
    with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, BY_PERSON) as aggregate:
        assert aggregate is not None
        machine = aggregate.instances[agent.instance_id]
        ended = EndedBy.CLOUD_FAILURE
        record_end(
            aggregate, machine, ended_at=aggregate.now, ended_source="test", ended_by=ended,
            limits=runtime.limits,
        )  # fmt: skip
    wait_until(lambda: agent.report(fence=1).status_code == 401)
    assert agent_report_cache.FLUSH_SECONDS <= 1.0, "each of its looks finds what was revoked"
    assert len(api.board.cache) == 0


def test_who_may_report_what(api: ServedApi, engine: Engine, runtime: Runtime):
    agent, other = _agents(api, engine, runtime, 2)
    assert agent.report(fence=9).status_code == 403
    assert agent.report(facts=[agent.fact(FactKind.LEAVING, fence=9)]).status_code == 403
    assert agent.report(instance_id=str(other.instance_id)).status_code == 401
    stranger = SpeakingAgent(api, agent.gang, credential="c" * 64)
    refused = stranger.report()
    assert refused.status_code == 401
    assert "Bearer" in refused.headers["www-authenticate"]
    nobody = api.client.post(f"{api.url}/agent/v1/reports", json=agent.document())
    assert nobody.status_code == 401
    assert agent.report(protocol=2).status_code == 426
    assert agent.report(protocol=0).status_code == 200


@pytest.mark.parametrize(
    "other",
    [
        {"seq": 2**40},
        {"seq": -1},
        {"seq": True},
        {"uptime_ms": 2**70},
        {"phase": "dreaming"},
        {"progress": {"step": 2**70}},
        {"progress": {"step": 1, "metrics": {"loss": "low"}}},
        {"progress": {"step": 1, "pace": {**PACE, "last_step": 2**70}}},
        {"progress": {"step": 1, "pace": {**PACE, "last_step": 0}}},
        {"progress": {"step": 1, "pace": {**PACE, "stepping_seconds": -1.0}}},
        {"progress": {"step": 1, "pace": {**PACE, "start_up_seconds": 1e300}}},
        {"facts": [{"fact_no": 1, "kind": "phase", "uptime_ms": 1}] * 201},
        {"facts": [{"fact_no": 2**40, "kind": "phase", "uptime_ms": 1}]},
        {"facts": "none"},
        {"instance_id": 5},
        {"session_id": "s" * 300},
    ],
    ids=lambda other: str(other)[:40],
)
def test_reports_that_cannot_be_read_are_refused_with_a_sentence(
    api: ServedApi, engine: Engine, runtime: Runtime, other: dict[str, Any]
):
    (agent,) = _agents(api, engine, runtime, 1)
    refused = agent.report(**other)
    assert refused.status_code == 422
    assert refused.json()["detail"]


def test_bodies_that_are_no_reports(api: ServedApi, engine: Engine, runtime: Runtime):
    (agent,) = _agents(api, engine, runtime, 1)

    def send(body: bytes) -> httpx.Response:
        return api.client.post(f"{api.url}/agent/v1/reports", content=body, headers=agent.headers)

    assert send(b"{").status_code == 422
    assert send(b"[]").status_code == 422
    assert send(b" " * ((4 << 20) + 1)).status_code == 413


def test_a_nul_in_what_a_trainer_said_costs_no_fact(
    api: ServedApi, engine: Engine, runtime: Runtime
):
    (agent,) = _training(api, engine, runtime, 1)
    fault = agent.fact(FactKind.GPU_FAULT, message="Xid 79\0 fell off the bus")
    told = agent.report(fence=1, phase="train", facts=[fault])
    assert (told.status_code, told.json()["ack_fact_no"]) == (200, agent.facts_told)


# --- promises ---------------------------------------------------------------------------------


def test_no_lease_is_renewed_while_answers_cannot_be_written(
    api: ServedApi, engine: Engine, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent_report_cache, "PROMISE_SECONDS_MAX", 3.0)
    (agent,) = _agents(api, engine, runtime, 1)
    with engine.connect() as connection:
        connection.execute(text("LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE"))
        assert agent.report().status_code == 200
        wait_until(lambda: agent.report().status_code == 503)
        assert agent.report().headers["retry-after"] == "1"
    wait_until(lambda: agent.report().status_code == 200)
    wait_until(lambda: _contact(engine, agent).seq == agent.seq)


def test_what_was_answered_is_written_when_the_process_ends(engine: Engine, runtime: Runtime):
    with served(runtime) as api:
        (agent,) = _agents(api, engine, runtime, 1)
        agent.report()
        agent.report()
    assert _contact(engine, agent).seq == agent.seq


def test_two_api_processes_agree(api: ServedApi, engine: Engine, runtime: Runtime):
    (agent,) = _training(api, engine, runtime, 1)
    with served(runtime) as other:
        for _ in range(6):
            agent.api = other if agent.api is api else api
            assert agent.directive(fence=1, phase="train")["kind"] == "train"
        wait_until(lambda: _contact(engine, agent).seq == agent.seq)
        cancel(runtime, agent.gang.job_id)
        for asked in (api, other):
            agent.api = asked
            wait_until(lambda: _drains(agent))


def test_an_api_process_says_that_it_listens(engine: Engine, runtime: Runtime):
    make_gang(engine, runtime)

    def hearing() -> Any:
        with engine.connect() as connection:
            deployment = tables.deployment.c
            return connection.execute(
                select(deployment.listening_at, deployment.hearing_since_at)
            ).one()

    assert hearing() == (None, None)
    with served(runtime):
        first = hearing()
        assert first.listening_at == first.hearing_since_at
        assert first.listening_at is not None
    with served(runtime):
        second = hearing()
        assert second.listening_at > first.listening_at
        assert second.hearing_since_at == first.hearing_since_at
    with engine.begin() as connection:
        gap = timedelta(seconds=runtime.limits.listening_gap_seconds + 1)
        long_ago = second.listening_at - gap
        connection.execute(update(tables.deployment).values(listening_at=long_ago))
    with served(runtime):
        assert hearing().hearing_since_at > second.hearing_since_at


# --- working folders --------------------------------------------------------------------------


@pytest.mark.parametrize("kept_before", [False, True])
def test_a_machine_gets_the_working_folder_of_its_own_job_only(
    api: ServedApi, engine: Engine, runtime: Runtime, kept_before: bool
):
    packed = uuid4().bytes * (3 << 16)
    digest = f"sha256:{hashlib.sha256(packed).hexdigest()}"
    gang = make_gang(engine, runtime, workdir=digest)
    with runtime.begin() as uow:
        project_id = uow.jobs.lock(gang.job_id).project_id
    # A release before kept it for all projects alike; a job that it accepted still runs.
    place = "" if kept_before else f"{project_id}/"
    key = f"workdirs/{place}{digest.removeprefix('sha256:')}.tar.gz"
    runtime.object_store.put_new(key, packed)
    owner, other = SpeakingAgent(api, gang), SpeakingAgent(api, make_gang(engine, runtime))
    assert owner.register().status_code == other.register().status_code == 200
    where = f"{api.url}/agent/v1/workdirs/{digest}"
    assert api.client.get(where, headers=owner.headers).content == packed
    assert api.client.get(where, headers=other.headers).status_code == 404
    assert api.client.get(where).status_code == 401
