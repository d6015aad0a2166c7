"""Whose word counts at a registration: tokens that outlive slow boots, thieves, former selves.

Not here: the usual exchange and what reports do (`test_agent_api`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from app.domain.deployment.credentials import launch_token
from app.orchestration.agents.register_agent import TokenRefused, register_agent
from app.orchestration.frame.runtime import Limits, Runtime
from app.storage.schema import tables
from tests.support.api.agent_api import ServedApi, SpeakingAgent, make_gang, make_runtime, served
from tests.support.stories.orchestration_story import SECRET, Story
from trainer.protocol.agent_report import PROTOCOL_VERSION, FactKind, Registration


@pytest.fixture
def runtime(engine: Engine, tmp_path: Path) -> Runtime:
    return make_runtime(engine, tmp_path / "store")


@pytest.fixture
def api(runtime: Runtime) -> Iterator[ServedApi]:
    with served(runtime) as running:
        yield running


def _alarms(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        alarm = tables.events.c.kind == "credential_refused"
        return list(connection.execute(select(tables.events).where(alarm)))


def _contact(engine: Engine, agent: SpeakingAgent) -> Any:
    with engine.connect() as connection:
        own = tables.contacts.c.instance_id == agent.instance_id
        return connection.execute(select(tables.contacts).where(own)).one()


# --- the token's time --------------------------------------------------------------------------


def test_a_token_lives_as_long_as_its_machine_is_waited_for(engine: Engine, tmp_path: Path) -> None:
    """A launch may be answered late, and a machine may boot slowly; the token is not the judge."""
    story = Story(engine, tmp_path / "store", Limits(launch_token_seconds=60.0))
    job_id = story.submit()
    story.run()
    (machine,) = story.living(job_id)
    story.sleep(580)
    story.register(machine.id)
    assert story.instance(machine.id).state == "registered"


def test_a_token_ends_with_the_time_to_register(engine: Engine, tmp_path: Path) -> None:
    story = Story(engine, tmp_path / "store", Limits(launch_token_seconds=60.0))
    job_id = story.submit()
    story.run()
    (machine,) = story.living(job_id)
    story.sleep(601)
    registration = Registration(
        PROTOCOL_VERSION, launch_token(SECRET, str(machine.launch_id)), "nonce",
        machine.provider_instance_id, "boot", "session", 1_000, "10.0.0.1", 20_000, 20_100,
    )  # fmt: skip
    with pytest.raises(TokenRefused), story.runtime.begin() as uow:
        register_agent(uow, story.runtime, registration)


# --- nonces ------------------------------------------------------------------------------------


def test_each_machine_of_a_launch_has_its_own_credential_and_one_more_gets_none(
    api: ServedApi, engine: Engine, runtime: Runtime
) -> None:
    gang = make_gang(engine, runtime, 2)
    agents = [SpeakingAgent(api, gang, rank, nonce=f"nonce-{rank}") for rank in range(2)]
    assert [agent.register().status_code for agent in agents] == [200, 200]
    assert len({agent.credential for agent in agents}) == 2
    thief = SpeakingAgent(api, gang, nonce="a third")
    for _ in range(3):
        refused = thief.register(provider_instance_id="i-of-nobody")
        assert refused.status_code == 409, refused.text
    [alarm] = _alarms(engine)
    assert "never launched" in alarm.message
    assert alarm.noun == "launch"


def test_a_machine_whose_launch_is_still_answered_for_may_come_early(
    api: ServedApi, engine: Engine, runtime: Runtime
) -> None:
    gang = make_gang(engine, runtime, 2)
    with engine.begin() as connection:
        connection.execute(
            tables.instances.update()
            .where(tables.instances.c.id == gang.instance_ids[1])
            .values(provider_instance_id=None, state="launching")
        )
    early = SpeakingAgent(api, gang).register(provider_instance_id="i-not-yet-recorded")
    assert early.status_code == 425
    assert _alarms(engine) == []


# --- sessions ----------------------------------------------------------------------------------


def test_a_former_self_that_speaks_late_does_not_take_the_machine_back(
    api: ServedApi, engine: Engine, runtime: Runtime
) -> None:
    gang = make_gang(engine, runtime)
    former = SpeakingAgent(api, gang)
    assert former.register(uptime_ms=5_000).status_code == 200
    agent = SpeakingAgent(api, gang, session_id="session-2")
    assert agent.register(uptime_ms=9_000).status_code == 200
    assert former.register(uptime_ms=5_000).status_code == 409
    assert former.register(uptime_ms=5_500, session_id="never-heard").status_code == 409
    assert _alarms(engine) == [], "an old word of our own agent is no theft"
    assert _contact(engine, agent).session_id == "session-2"
    told = agent.report(facts=[agent.fact(FactKind.REBALANCE, None)])
    assert told.json()["ack_fact_no"] == 1
    assert agent.register(uptime_ms=9_000).status_code == 200, "its own lost reply, asked again"
    assert _contact(engine, agent).fact_no == 1


def test_after_a_reboot_uptime_begins_anew_and_the_last_boot_is_over(
    api: ServedApi, engine: Engine, runtime: Runtime
) -> None:
    gang = make_gang(engine, runtime)
    assert SpeakingAgent(api, gang).register(uptime_ms=900_000).status_code == 200
    rebooted = SpeakingAgent(api, gang, session_id="session-2")
    assert rebooted.register(uptime_ms=20_000, boot_id="boot-2").status_code == 200
    late = SpeakingAgent(api, gang, session_id="session-3")
    assert late.register(uptime_ms=901_000, boot_id="boot").status_code == 409
    assert _contact(engine, rebooted).session_id == "session-2"
