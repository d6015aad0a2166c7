"""The api that agents call, by real requests to a real server on a real database."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import Engine, select, text

from app.domain.lifecycle.instance import EndedBy
from app.orchestration.directives import agent_report_cache
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Runtime
from app.orchestration.transitions.lose_instances import record_end
from app.storage.instances.contact_statements import AnsweredReport
from app.storage.schema import tables
from tests.support.api.agent_api import (
    BY_PERSON,
    ServedApi,
    SpeakingAgent,
    cancel,
    make_gang,
    served,
    wait_until,
)
from tests.support.api.refusals import assert_refused
from tests.support.servers.database_backup import dump, restore
from tests.support.servers.table_rows import (
    change_rows,
    execute,
    fetch,
    fetch_value,
    row_of,
    rows_of,
)
from tests.support.stories.presence import present
from trainer.protocol.agent_report import FactKind

PACE = {"first_step": 1, "last_step": 5, "stepping_seconds": 8.0, "start_up_seconds": 90.0}


def _agents(api: ServedApi, nodes: int) -> list[SpeakingAgent]:
    """A gang whose agents have registered and reported once, so that the board knows them."""
    agents = api.agents(nodes)
    for agent in agents:
        assert agent.report().status_code == 200
    return agents


def _training(api: ServedApi, nodes: int) -> list[SpeakingAgent]:
    agents = _agents(api, nodes)
    for agent in agents:
        assert agent.directive()["kind"] == "prepare"
        agent.prepare()
    for agent in agents:
        agent.start_trainer()
    return agents


def _drains(agent: SpeakingAgent) -> bool:
    return bool(agent.directive(fence=1, phase="train")["kind"] == "drain")


def _events(agent: SpeakingAgent, kind: str) -> int:
    own = {"job_id": agent.gang.job_id, "kind": kind}
    return len(rows_of(agent.api.engine, tables.events, **own))


def _version(agent: SpeakingAgent) -> int:
    return int(row_of(agent.api.engine, tables.jobs, id=agent.gang.job_id).version)


# --- registration -----------------------------------------------------------------------------


def test_the_same_nonce_gets_the_same_credential_and_another_raises_an_alarm(api: ServedApi):
    agent = SpeakingAgent(api, api.gang())
    first = agent.register().json()
    assert agent.register().json()["credential"] == first["credential"]
    assert first["run_config"]["run"] == "python train.py"
    assert first["directive"]["kind"] == "prepare"
    thief = SpeakingAgent(api, agent.gang, nonce="another")
    assert thief.register().status_code == 409
    assert _events(agent, "credential_refused") == 1
    stored = fetch_value(api.engine, select(tables.instances.c.credential_hash))
    assert stored == hashlib.sha256(first["credential"].encode()).hexdigest()


def test_registrations_that_cannot_be(api: ServedApi):
    agent = SpeakingAgent(api, api.gang())
    assert agent.register(launch_token="wrong").status_code == 401
    change_rows(api.engine, tables.instances, provider_instance_id=None)
    early = agent.register(provider_instance_id="i-of-a-launch-still-under-way")
    assert (early.status_code, early.headers["retry-after"]) == (425, "1")
    assert agent.register(protocol=7).status_code == 426
    wrong = agent.register(port_from="many")
    assert_refused(wrong, 422, "port_from")
    assert agent.register(port_from=0).status_code == 422
    assert wrong.headers["content-type"] == "application/problem+json"


def test_a_token_past_its_time_registers_nobody_new(api: ServedApi):
    agent = SpeakingAgent(api, api.gang())
    past = datetime.now(UTC) - timedelta(seconds=1)
    change_rows(api.engine, tables.launches, token_expires_at=past)
    assert agent.register().status_code == 401


# --- reports ----------------------------------------------------------------------------------


def test_steady_reports_take_no_transaction_and_are_written_soon(api: ServedApi):
    (agent,) = _agents(api, 1)
    version = _version(agent)
    began_at = datetime.now(UTC)
    for _ in range(20):
        assert agent.report().status_code == 200
    assert _version(agent) == version
    assert agent_report_cache.FLUSH_SECONDS <= 0.5, "soon"
    wait_until(lambda: agent.contact.seq == agent.seq)
    answered_at = agent.contact.answered_at
    assert began_at - timedelta(seconds=2) <= answered_at <= datetime.now(UTC)


def test_a_late_report_takes_no_answer_back(
    engine: Engine, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    # Written only at the end: between two looks, that is.
    monkeypatch.setattr(agent_report_cache, "FLUSH_SECONDS", 600.0)
    monkeypatch.setattr(agent_report_cache, "PROMISE_SECONDS_MAX", 600.0)
    with served(engine, runtime) as api:
        (agent,) = _agents(api, 1)
        for _ in range(2):
            assert agent.report().status_code == 200
        newest = agent.seq
        assert agent.report(seq=newest - 1).status_code == 200
    assert agent.contact.seq == newest


def test_progress_reaches_the_contact_and_stays_within_its_page(api: ServedApi):
    (agent,) = _training(api, 1)
    for step in (5, 6):
        progress = {"step": step, "total_steps": 100, "metrics": {"loss": 1.5}}
        assert agent.report(fence=1, phase="train", progress=progress).status_code == 200
    wait_until(lambda: agent.contact.step == 6)
    found = agent.contact
    assert (found.total_steps, found.metrics, found.phase) == (100, {"loss": 1.5}, "train")
    assert found.step_at is not None
    with api.runtime.begin() as uow:
        heard = AnsweredReport(agent.instance_id, "session-1", 10**6, 0.0, "train", 7, 100, {})
        assert uow.contacts.store([heard], uow.now) == 1
        counts = text(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables "
            "WHERE relname = 'contacts'"
        )
        updated, within_page = uow.session.execute(counts).one()
        # The counts may hold what this connection did before.
        assert updated == within_page >= 1


def test_what_an_agent_measured_is_written_with_its_contact(api: ServedApi):
    (agent,) = _training(api, 1)
    progress = {"step": 5, "total_steps": 100, "pace": PACE}
    assert agent.report(fence=1, phase="train", progress=progress).status_code == 200
    later = {**progress, "step": 6, "pace": {**PACE, "last_step": 6, "stepping_seconds": 9.5}}
    assert agent.report(fence=1, phase="train", progress=later).status_code == 200
    wait_until(lambda: agent.contact.last_step == 6)
    found = agent.contact
    assert (found.first_step, found.stepping_seconds, found.start_up_seconds) == (1, 9.5, 90.0)
    silent = {"step": 7, "total_steps": 100}
    assert agent.report(fence=1, phase="train", progress=silent).status_code == 200
    wait_until(lambda: agent.contact.step == 7)
    assert agent.contact.last_step == 6


def test_contacts_are_never_moved_back(api: ServedApi):
    (agent,) = _agents(api, 1)
    before = agent.contact
    with api.runtime.begin() as uow:
        older = AnsweredReport(agent.instance_id, "session-1", before.seq - 1, 0.0, "train")
        other = AnsweredReport(agent.instance_id, "session-0", before.seq + 9, 0.0, "train")
        assert uow.contacts.store([older], uow.now) == 0
        assert uow.contacts.store([other], uow.now) == 0
        late = AnsweredReport(agent.instance_id, "session-1", before.seq + 1, 3_600.0, "idle")
        assert uow.contacts.store([late], uow.now) == 1
    after = agent.contact
    assert (after.answered_at, after.seq) == (before.answered_at, before.seq + 1)


def test_a_replayed_report_and_resent_facts_have_no_effect(api: ServedApi):
    (agent,) = _training(api, 1)
    saved = agent.fact(FactKind.CHECKPOINT, step=3, digest="d" * 64, size_bytes=10, final=False)
    document = agent.document(fence=1, phase="train", facts=[saved])
    answers = [agent.send(document).json() for _ in range(3)]
    assert {answer["ack_fact_no"] for answer in answers} == {agent.facts_told}
    assert _events(agent, "checkpoint_committed") == 1
    again = agent.report(fence=1, phase="train", facts=[saved, agent.fact(FactKind.REBALANCE)])
    assert again.json()["ack_fact_no"] == agent.facts_told
    assert _events(agent, "checkpoint_committed") == 1
    assert _events(agent, "rebalance_recommended") == 1
    steady = agent.report(fence=1, phase="train").json()
    assert steady["ack_fact_no"] == agent.facts_told


def test_a_restarted_agent_counts_its_facts_anew(api: ServedApi):
    (agent,) = _training(api, 1)
    late = agent.document(fence=1, facts=[agent.fact(FactKind.REBALANCE)])
    agent.session_id, agent.seq, agent.facts_told = "session-2", 0, 0
    assert agent.register().status_code == 200
    told = agent.report(fence=1, facts=[agent.fact(FactKind.REBALANCE)])
    assert told.json()["ack_fact_no"] == 1
    assert agent.report(fence=1).json()["ack_fact_no"] == 1
    assert agent.contact.session_id == "session-2"
    # What its former self had sent comes late: answered, and without effect.
    assert agent.send(late).json()["ack_fact_no"] == 0
    assert agent.contact.session_id == "session-2"
    assert _events(agent, "rebalance_recommended") == 1


def test_a_gang_meets_and_a_notice_reaches_the_other_rank_at_once(
    engine: Engine, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
):
    # At once: the look that comes every half second would be too late.
    monkeypatch.setattr(agent_report_cache, "FLUSH_SECONDS", 600.0)
    monkeypatch.setattr(agent_report_cache, "PROMISE_SECONDS_MAX", 600.0)
    with served(engine, runtime) as api:
        _a_notice_reaches_the_other_rank(api)


def _a_notice_reaches_the_other_rank(api: ServedApi) -> None:
    first, second = _training(api, 2)
    assert second.directive(fence=1, phase="train")["kind"] == "train"
    notice = first.fact(FactKind.NOTICE, seconds_left=30.0, source="test", notice_id="n")
    answer = first.report(fence=1, phase="train", facts=[notice]).json()["directive"]
    assert (answer["kind"], answer["drain_cause"]) == ("drain", "interruption")
    wait_until(lambda: _drains(second))


def test_a_cancel_by_another_process_is_seen_within_a_second_and_its_time_runs(api: ServedApi):
    first, second = _training(api, 2)
    for agent in (first, second):
        assert agent.directive(fence=1, phase="train")["kind"] == "train"
    cancel(api.runtime, first.gang.job_id)
    for agent in (first, second):
        wait_until(lambda: _drains(agent))  # noqa: B023
    assert agent_report_cache.FLUSH_SECONDS <= 1.0, "each of its looks finds what has changed"
    earlier = first.directive(fence=1, phase="train")["drain_seconds"]
    time.sleep(0.3)
    later = first.directive(fence=1, phase="train")["drain_seconds"]
    assert earlier - later > 0.25
    assert 30 < later < 90


def test_an_end_that_lost_rows_were_told_is_found_by_an_api_that_runs_on(api: ServedApi):
    """Memory answers reports without news, and knows nothing of what the rows have forgotten."""
    (agent,) = _training(api, 1)
    taken = dump(api.engine)
    agent.report(facts=[agent.fact(FactKind.TRAINER_ENDED, outcome="failed", exit_code=1)])
    assert agent.directive()["kind"] != "train"
    restore(api.engine, taken)
    execute(api.engine, "UPDATE deployment SET listening_at = now() - interval '1 minute'")
    attempts = select(tables.attempts.c.end_reason).order_by(tables.attempts.c.fence)

    def ended() -> bool:
        agent.report()
        return bool(fetch(api.engine, attempts)[0].end_reason == "fenced_off")

    wait_until(ended)


def test_a_command_reaches_the_memory_that_answers(api: ServedApi):
    (agent,) = _training(api, 1)
    agent.report(fence=1, phase="train")
    cancel(api.runtime, agent.gang.job_id)
    wait_until(lambda: _drains(agent))


def test_a_revoked_credential_is_refused_within_a_second(api: ServedApi):
    (agent,) = _training(api, 1)
    assert agent.report(fence=1).status_code == 200
    job_id = agent.gang.job_id
    with (
        api.runtime.begin() as uow,
        open_job(uow, api.runtime.entropy, job_id, BY_PERSON) as aggregate,
    ):
        assert aggregate is not None
        machine = aggregate.instances[agent.instance_id]
        ended = EndedBy.CLOUD_FAILURE
        record_end(
            aggregate, machine, ended_at=aggregate.now, ended_source="test", ended_by=ended,
            limits=api.runtime.limits,
        )  # fmt: skip
    wait_until(lambda: agent.report(fence=1).status_code == 401)
    assert agent_report_cache.FLUSH_SECONDS <= 1.0, "each of its looks finds what was revoked"
    assert len(api.board.cache) == 0


def test_who_may_report_what(api: ServedApi):
    agent, other = _agents(api, 2)
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
    api: ServedApi, other: dict[str, Any]
):
    (agent,) = _agents(api, 1)
    refused = agent.report(**other)
    assert refused.status_code == 422
    assert refused.json()["detail"]


def test_bodies_that_are_no_reports(api: ServedApi):
    (agent,) = _agents(api, 1)

    def send(body: bytes) -> httpx.Response:
        return api.client.post(f"{api.url}/agent/v1/reports", content=body, headers=agent.headers)

    assert send(b"{").status_code == 422
    assert send(b"[]").status_code == 422
    assert send(b" " * ((4 << 20) + 1)).status_code == 413


def test_a_nul_in_what_a_trainer_said_costs_no_fact(api: ServedApi):
    (agent,) = _training(api, 1)
    fault = agent.fact(FactKind.GPU_FAULT, message="Xid 79\0 fell off the bus")
    told = agent.report(fence=1, phase="train", facts=[fault])
    assert (told.status_code, told.json()["ack_fact_no"]) == (200, agent.facts_told)


# --- promises ---------------------------------------------------------------------------------


def test_no_lease_is_renewed_while_answers_cannot_be_written(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent_report_cache, "PROMISE_SECONDS_MAX", 3.0)
    (agent,) = _agents(api, 1)
    with api.engine.connect() as connection:
        connection.execute(text("LOCK TABLE contacts IN ACCESS EXCLUSIVE MODE"))
        assert agent.report().status_code == 200
        wait_until(lambda: agent.report().status_code == 503)
        assert agent.report().headers["retry-after"] == "1"
    wait_until(lambda: agent.report().status_code == 200)
    wait_until(lambda: agent.contact.seq == agent.seq)


def test_what_was_answered_is_written_when_the_process_ends(engine: Engine, runtime: Runtime):
    with served(engine, runtime) as api:
        (agent,) = _agents(api, 1)
        agent.report()
        agent.report()
    assert agent.contact.seq == agent.seq


def test_two_api_processes_agree(api: ServedApi):
    (agent,) = _training(api, 1)
    with served(api.engine, api.runtime) as other:
        for _ in range(6):
            agent.api = other if agent.api is api else api
            assert agent.directive(fence=1, phase="train")["kind"] == "train"
        wait_until(lambda: agent.contact.seq == agent.seq)
        cancel(api.runtime, agent.gang.job_id)
        for asked in (api, other):
            agent.api = asked
            wait_until(lambda: _drains(agent))


def test_an_api_process_says_that_it_listens(engine: Engine, runtime: Runtime):
    make_gang(engine, runtime)

    def hearing() -> Any:
        return row_of(engine, tables.deployment)

    assert (hearing().listening_at, hearing().hearing_since_at) == (None, None)
    with served(engine, runtime):
        first = hearing()
        assert first.listening_at == first.hearing_since_at
        assert first.listening_at is not None
    with served(engine, runtime):
        second = hearing()
        assert second.listening_at > first.listening_at
        assert second.hearing_since_at == first.hearing_since_at
    gap = timedelta(seconds=runtime.limits.listening_gap_seconds + 1)
    change_rows(engine, tables.deployment, listening_at=second.listening_at - gap)
    with served(engine, runtime):
        assert hearing().hearing_since_at > second.hearing_since_at


# --- working folders --------------------------------------------------------------------------


@pytest.mark.parametrize("kept_before", [False, True])
def test_a_machine_gets_the_working_folder_of_its_own_job_only(api: ServedApi, kept_before: bool):
    packed = uuid4().bytes * (3 << 16)
    digest = f"sha256:{hashlib.sha256(packed).hexdigest()}"
    gang = api.gang(workdir=digest)
    with api.runtime.begin() as uow:
        project_id = present(uow.jobs.lock(gang.job_id)).project_id
    # A release before kept it for all projects alike; a job that it accepted still runs.
    place = "" if kept_before else f"{project_id}/"
    key = f"workdirs/{place}{digest.removeprefix('sha256:')}.tar.gz"
    api.runtime.object_store.put_new(key, packed)
    owner, other = SpeakingAgent(api, gang), SpeakingAgent(api, api.gang())
    assert owner.register().status_code == other.register().status_code == 200
    where = f"{api.url}/agent/v1/workdirs/{digest}"
    assert api.client.get(where, headers=owner.headers).content == packed
    assert api.client.get(where, headers=other.headers).status_code == 404
    assert api.client.get(where).status_code == 401
