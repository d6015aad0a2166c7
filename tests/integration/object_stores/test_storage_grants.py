"""Credentials for the object store come with answers to reports, for the job's folders alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.job_data_role import JobDataRole
from app.api.agents import grant_cache
from app.orchestration.frame.runtime import Limits, Runtime
from app.storage.schema import tables
from tests.support.api.agent_api import (
    Gang,
    ServedApi,
    SpeakingAgent,
    cancel,
    make_runtime,
    served,
    wait_until,
)
from tests.support.aws.aws_parts import shared_session
from tests.support.object_stores.scoped_s3 import DATA_ROLE, ScopedS3
from tests.support.servers.table_rows import execute, rows_of
from trainer.agent.checkpoints.storage_credentials import StorageAccess
from trainer.agent.checkpoints.storage_root import AccessDenied, StorageRoot, StoreDenied
from trainer.protocol.agent_report import FactKind
from trainer.protocol.storage_access import StorageGrant

ALL = 2_880.0
"""Of a lease of 1,800 s: what must be left at each answer."""


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScopedS3]:
    with closing(ScopedS3()) as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        yield fake


@pytest.fixture
def runtime(engine: Engine, tmp_path: Path, s3: ScopedS3) -> Runtime:
    found = make_runtime(engine, tmp_path, Limits(report_interval_seconds=0.5))
    uri = f"s3://{s3.bucket}/lowtide/checkpoints"
    return replace(found, storage_services=frozenset({"s3"}), checkpoint_root_uri=uri)


@pytest.fixture
def api(
    engine: Engine, runtime: Runtime, s3: ScopedS3, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServedApi]:
    monkeypatch.setattr(grant_cache, "FIRST_PAUSE_SECONDS", 0.2)
    settings = AwsSettings(regions=("us-east-1",), endpoint_url=s3.url)
    issuer = JobDataRole(DATA_ROLE, settings, AwsClients(settings, shared_session()))
    with served(engine, runtime, {"s3": issuer}) as found:
        yield found


def working(api: ServedApi, gang: Gang) -> SpeakingAgent:
    """A lone machine that prepares an attempt."""
    agent = SpeakingAgent(api, gang)
    reply = agent.register()
    assert reply.status_code == 200, reply.text
    assert reply.json()["storage"] == ["s3"]
    return agent


def held(grant: str = "", seconds_left: float = 0.0, refused: bool = False) -> list[dict[str, Any]]:
    told = {"grant": grant, "seconds_left": seconds_left, "refused": refused}
    return [{"service": "s3", **told}]


def granted(agent: SpeakingAgent, **told: Any) -> list[StorageGrant]:
    reply = agent.report(storage=held(**told), fence=1)
    assert reply.status_code == 200, reply.text
    return [StorageGrant(**one) for one in reply.json()["storage"]]


def await_grant(agent: SpeakingAgent, **told: Any) -> StorageGrant:
    found: list[StorageGrant] = []

    def asked() -> bool:
        found.extend(granted(agent, **told))
        return bool(found)

    wait_until(asked, 10)
    return found[0]


def opened(grant: StorageGrant, uri: str) -> StorageRoot:
    access = StorageAccess(["s3"])
    access.take([grant], time.monotonic() + 1e9)
    return StorageRoot(uri, access=access)


def events(engine: Engine, job_id: Any) -> list[tuple[str, str]]:
    return [(row.kind, row.message) for row in rows_of(engine, tables.events, job_id=job_id)]


def test_a_working_machine_gets_what_its_job_needs(api: ServedApi, s3: ScopedS3) -> None:
    gang = api.gang()
    agent = working(api, gang)
    grant = await_grant(agent)
    assert ALL < grant.seconds <= 3_600
    store = opened(grant, f"{api.runtime.checkpoint_root_uri}/{gang.job_id}")
    store.put_new("fences/0000000001.json", b"{}")
    assert store.list_keys("fences") == ["fences/0000000001.json"]
    with pytest.raises(StoreDenied):
        opened(grant, f"{api.runtime.checkpoint_root_uri}/other").put_new("x", b"")
    # It holds enough now; another machine of the job, or this one anew, gets the same.
    assert granted(agent, grant=grant.grant, seconds_left=grant.seconds) == []
    assert granted(agent)[0].values == grant.values
    assert len(s3.assumed) == 1
    assert s3.assumed[0]["RoleSessionName"] == f"lowtide-{gang.job_id}"


def test_an_agent_of_the_release_before_is_answered_as_ever(api: ServedApi, s3: ScopedS3) -> None:
    agent = working(api, api.gang())
    for reply in (agent.report(fence=1), agent.report(fence=1)):
        assert reply.json()["storage"] == []
    assert s3.assumed == []


def test_it_is_renewed_before_a_cut_off_machine_could_need_it(api: ServedApi, s3: ScopedS3) -> None:
    """Of an hour, an hour less (lease + drain + 15 minutes) is used before it is renewed: a machine
    that is cut off right after an answer still holds 2,880 s, and its lease is over in 1,800.
    """
    agent = working(api, api.gang())
    first = await_grant(agent)
    assert granted(agent, grant=first.grant, seconds_left=ALL + 1) == []
    # What is kept here is as old for the machine, unless it came from another process.
    assert granted(agent, grant=first.grant, seconds_left=ALL - 1) == []
    scope = first.grant.partition(".")[0]
    other = granted(agent, grant=f"{scope}.x", seconds_left=ALL - 1)
    assert [one.grant for one in other] == [first.grant]
    # One of another scope is replaced, however long it lasts: the job's places have changed.
    other = granted(agent, grant="of-other-places.x", seconds_left=3_590.0)
    assert [one.grant for one in other] == [first.grant]
    _age(api, 1_000.0)
    second = await_grant(agent, grant=first.grant, seconds_left=2_600.0)
    assert second.grant not in ("", first.grant)
    assert second.seconds > ALL


def _age(api: ServedApi, seconds: float) -> None:
    """What is kept was issued so much longer ago."""
    for kept in api.app.state.storage_grants._kept.values():
        kept.issued -= seconds


def test_what_is_kept_replaces_nothing_better(api: ServedApi, s3: ScopedS3) -> None:
    """Two api processes hold two credentials of a job, and the issuer is away."""
    agent = working(api, api.gang())
    first = await_grant(agent)
    _age(api, 1_000.0)
    s3.trouble = ("AccessDenied", 403)
    of_another = f"{first.grant.partition('.')[0]}.x"
    assert granted(agent, grant=of_another, seconds_left=2_700.0) == []
    [found] = granted(agent, grant=of_another, seconds_left=2_500.0)
    assert found.grant == first.grant
    assert 2_500 < found.seconds < 2_601


def test_a_machine_that_saves_to_leave_gets_them_too(api: ServedApi, s3: ScopedS3) -> None:
    """Its last save needs them."""
    agent = working(api, api.gang())
    prepared = agent.fact(FactKind.PREPARED, master_port=20_000)
    assert agent.report(fence=1, facts=[prepared]).status_code == 200
    started = agent.fact(FactKind.TRAINER_STARTED)
    assert agent.report(fence=1, phase="train", facts=[started]).status_code == 200
    cancel(api.runtime, agent.gang.job_id)
    wait_until(lambda: agent.directive(fence=1, phase="train")["kind"] == "drain", 10)
    assert s3.assumed == []
    assert await_grant(agent).values


def test_an_issuer_that_refuses_is_left_alone_for_a_while(
    api: ServedApi, s3: ScopedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every machine of every job reports twice a second."""
    monkeypatch.setattr(grant_cache, "FIRST_PAUSE_SECONDS", 60.0)
    agent = working(api, api.gang())
    s3.trouble = ("AccessDenied", 403)
    assert granted(agent) == []
    s3.trouble = None
    assert granted(agent) == granted(agent) == []
    assert s3.assumed == []


def test_no_machine_gets_any_that_works_for_no_live_attempt(api: ServedApi, s3: ScopedS3) -> None:
    gang = api.gang(nodes=2)
    lone = SpeakingAgent(api, gang)
    assert lone.register().status_code == 200  # its mate is not there: hold
    assert lone.report(storage=held()).json()["directive"]["kind"] == "hold"
    assert granted_none(lone)
    stranger = lone.report(storage=held(), fence=7)
    assert stranger.status_code == 403
    assert "storage" not in stranger.json()
    going = working(api, api.gang())
    execute(
        api.engine,
        "UPDATE instances SET state = 'terminating' WHERE id = :id",
        id=going.instance_id,
    )
    reply = going.report(storage=held(), facts=[going.fact(FactKind.PHASE, phase="idle")])
    assert reply.json()["directive"]["kind"] == "leave"
    assert reply.json()["storage"] == []
    # Nor is one on its way that an answer did not wait for.
    assert not api.app.state.storage_grants._kept
    assert s3.assumed == []


def granted_none(agent: SpeakingAgent) -> bool:
    return bool(agent.report(storage=held()).json()["storage"] == [])


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (("AccessDenied", 403), "cannot be assumed"),
        pytest.param(("Throttling", 400), "cannot be assumed", marks=pytest.mark.full),
        pytest.param(("PackedPolicyTooLarge", 400), "cannot be assumed", marks=pytest.mark.full),
        pytest.param(("InternalFailure", 500), "cannot be assumed", marks=pytest.mark.full),
        (("garbage", 200), "without credentials|no clear answer|cannot be"),
    ],
)
def test_an_issuer_that_fails_fails_no_report(
    api: ServedApi,
    s3: ScopedS3,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: tuple[str, int],
    words: str,
) -> None:
    monkeypatch.setattr(grant_cache, "TOLD_AFTER_SECONDS", 0.5)
    s3.trouble = trouble
    gang = api.gang()
    agent = working(api, gang)

    def told(kind: str) -> Callable[[], bool]:
        def look() -> bool:
            assert granted(agent) == [] or s3.trouble is None
            return any(one == kind for one, _ in events(api.engine, gang.job_id))

        return look

    wait_until(told("storage_access_fails"))
    [said] = [
        what for kind, what in events(api.engine, gang.job_id) if kind == "storage_access_fails"
    ]
    assert "keep their current ones" in said
    assert re.search(words, said), said
    s3.trouble = None
    assert await_grant(agent).values
    wait_until(told("storage_access_back"))


def test_an_issuer_that_hangs_holds_up_no_report(
    api: ServedApi, s3: ScopedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grant_cache, "ANSWER_SECONDS_MAX", 0.2)
    s3.trouble = ("hang", 2)
    agent = working(api, api.gang())
    assert granted(agent) == []
    late = await_grant(agent)  # what came late goes with a later answer
    # It was issued at some moment of the call: its hour is counted from the call's beginning.
    assert late.seconds <= 3_600 - 2


def test_a_credential_that_the_store_refuses_is_replaced(
    api: ServedApi, s3: ScopedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = working(api, api.gang())
    first = await_grant(agent)
    refused = {"grant": first.grant, "seconds_left": 3_000.0, "refused": True}
    assert granted(agent, **refused) == []  # it may only not be valid yet
    monkeypatch.setattr(grant_cache, "REFUSED_AGAIN_SECONDS", 0.0)
    second = await_grant(agent, **refused)
    assert second.values != first.values
    assert second.grant.partition(".")[0] == first.grant.partition(".")[0]


@pytest.mark.parametrize(
    "storage",
    [
        "s3",
        [1],
        [{"service": "s3"}, {"service": 7}],
        [{"service": "s3", "grant": "x" * 201, "seconds_left": 1.0, "refused": False}],
        [{"service": "s3", "grant": None, "seconds_left": "1", "refused": 0}],
    ],
)
def test_a_report_that_says_nonsense_of_it_is_refused_or_gets_nothing(
    api: ServedApi, s3: ScopedS3, storage: Any
) -> None:
    agent = working(api, api.gang())
    fact = agent.fact(FactKind.PHASE, phase="idle")
    assert agent.report(storage=storage, facts=[fact], fence=1).status_code == 422
    agent.facts_told -= 1
    assert agent.report(facts=[fact], fence=1).status_code == 200
    answer = agent.report(storage=storage, fence=1)
    assert answer.json().get("storage", []) == [] or answer.status_code == 422
    assert s3.assumed == []


def test_no_credential_is_kept_anywhere(
    api: ServedApi, s3: ScopedS3, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in a row of any table, nor in a log, nor in a store, nor where values are shown."""
    caplog.set_level("DEBUG")
    gang = api.gang()
    agent = working(api, gang)
    grant = await_grant(agent)
    kept = api.app.state.storage_grants
    store = opened(grant, f"{api.runtime.checkpoint_root_uri}/{gang.job_id}")
    store.put_new("fences/0000000001.json", b"{}")
    s3.expire()
    with pytest.raises(AccessDenied) as error:
        obstore_error(store)
    assert agent.append("attempt-0001/node-0.log", 0, b"a line").status_code == 200
    agent.report(fence=1, facts=[agent.fact(FactKind.PHASE, phase="restore")], storage=held())
    with api.engine.begin() as connection:
        names = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ).scalars()
        rows = [
            str(row)
            for name in names
            for row in connection.execute(text(f"SELECT to_jsonb(t)::text FROM {name} t")).scalars()
        ]
    assert any("PHASE" in row.upper() for row in rows)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"a line" in one for one in files)
    shown = [repr(grant), repr(kept), repr(kept._kept), str(error.value), caplog.text, *rows]
    shown += [one.decode("utf-8", "replace") for one in files]
    for name in ("secret_access_key", "token"):
        assert not [one for one in shown if grant.values[name] in one], name


def obstore_error(store: StorageRoot) -> None:
    with store._translated("fences"):
        store._obstore.get(store._store, "fences/0000000001.json").bytes()
