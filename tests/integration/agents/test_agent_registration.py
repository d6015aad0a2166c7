"""Whose word counts at a registration: tokens that outlive slow boots, thieves, former selves.

Not here: the usual exchange and what reports do (`test_agent_api`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.domain.deployment.credentials import launch_token
from app.orchestration.agents.register_agent import TokenRefused, register_agent
from app.orchestration.frame.runtime import Limits
from app.storage.schema import tables
from tests.support.api.agent_api import ServedApi, SpeakingAgent
from tests.support.servers.table_rows import change_row, rows_of
from tests.support.stories.orchestration_story import SECRET, Story
from trainer.protocol.agent_report import PROTOCOL_VERSION, FactKind, Registration


def _alarms(engine: Engine) -> list[Any]:
    return rows_of(engine, tables.events, kind="credential_refused")


# --- the token's time --------------------------------------------------------------------------


def _started(engine: Engine, folder: Path) -> tuple[Story, Any]:
    """A machine that was launched with a token of one minute."""
    story = Story(engine, folder / "store", Limits(launch_token_seconds=60.0))
    job_id = story.submit()
    story.run()
    (machine,) = story.living(job_id)
    return story, machine


def test_a_token_lives_as_long_as_its_machine_is_waited_for(engine: Engine, tmp_path: Path) -> None:
    """A launch may be answered late, and a machine may boot slowly; the token is not the judge."""
    story, machine = _started(engine, tmp_path)
    story.sleep(580)
    story.register(machine.id)
    assert story.instance(machine.id).state == "registered"


def test_a_token_ends_with_the_time_to_register(engine: Engine, tmp_path: Path) -> None:
    story, machine = _started(engine, tmp_path)
    story.sleep(601)
    registration = Registration(
        PROTOCOL_VERSION, launch_token(SECRET, str(machine.launch_id)), "nonce",
        machine.provider_instance_id, "boot", "session", 1_000, "10.0.0.1", 20_000, 20_100,
    )  # fmt: skip
    with pytest.raises(TokenRefused), story.runtime.begin() as uow:
        register_agent(uow, story.runtime, registration)


# --- nonces ------------------------------------------------------------------------------------


def test_each_machine_of_a_launch_has_its_own_credential_and_one_more_gets_none(
    api: ServedApi,
) -> None:
    gang = api.gang(2)
    agents = [SpeakingAgent(api, gang, rank, nonce=f"nonce-{rank}") for rank in range(2)]
    assert [agent.register().status_code for agent in agents] == [200, 200]
    assert len({agent.credential for agent in agents}) == 2
    thief = SpeakingAgent(api, gang, nonce="a third")
    for _ in range(3):
        refused = thief.register(provider_instance_id="i-of-nobody")
        assert refused.status_code == 409, refused.text
    [alarm] = _alarms(api.engine)
    assert "never launched" in alarm.message
    assert alarm.noun == "launch"


def test_a_machine_whose_launch_is_still_answered_for_may_come_early(api: ServedApi) -> None:
    gang = api.gang(2)
    late = {"provider_instance_id": None, "state": "launching"}
    change_row(api.engine, tables.instances, gang.instance_ids[1], **late)
    early = SpeakingAgent(api, gang).register(provider_instance_id="i-not-yet-recorded")
    assert early.status_code == 425
    assert _alarms(api.engine) == []


# --- sessions ----------------------------------------------------------------------------------


def test_a_former_self_that_speaks_late_does_not_take_the_machine_back(api: ServedApi) -> None:
    gang = api.gang()
    former = SpeakingAgent(api, gang)
    assert former.register(uptime_ms=5_000).status_code == 200
    agent = SpeakingAgent(api, gang, session_id="session-2")
    assert agent.register(uptime_ms=9_000).status_code == 200
    assert former.register(uptime_ms=5_000).status_code == 409
    assert former.register(uptime_ms=5_500, session_id="never-heard").status_code == 409
    assert _alarms(api.engine) == [], "an old word of our own agent is no theft"
    assert agent.contact.session_id == "session-2"
    told = agent.report(facts=[agent.fact(FactKind.REBALANCE, None)])
    assert told.json()["ack_fact_no"] == 1
    assert agent.register(uptime_ms=9_000).status_code == 200, "its own lost reply, asked again"
    assert agent.contact.fact_no == 1


def test_after_a_reboot_uptime_begins_anew_and_the_last_boot_is_over(api: ServedApi) -> None:
    gang = api.gang()
    assert SpeakingAgent(api, gang).register(uptime_ms=900_000).status_code == 200
    rebooted = SpeakingAgent(api, gang, session_id="session-2")
    assert rebooted.register(uptime_ms=20_000, boot_id="boot-2").status_code == 200
    late = SpeakingAgent(api, gang, session_id="session-3")
    assert late.register(uptime_ms=901_000, boot_id="boot").status_code == 409
    assert rebooted.contact.session_id == "session-2"
