"""Worker and api of different releases: a machine gets the agent that it was rented for, and the
api understands one that is newer.

Not here: the wheel's own form (tests/unit/adapters/test_agent_package.py), or installing it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.adapters.agent_package import agent_package
from app.api.agents.package_routes import router
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.instances.publish_agent import agent_key, find_agent
from tests.support.api.agent_api import ServedApi
from tests.support.stories.orchestration_story import Story
from trainer.protocol.agent_report import FactKind

OTHER = b"PK the agent of another release"
OTHER_SHA256 = hashlib.sha256(OTHER).hexdigest()
OTHER_NAME = "lowtide_agent-9.9.9-py3-none-any.whl"


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    made = Story(engine, tmp_path / "store")
    files = {agent_key(OTHER_NAME, OTHER): OTHER}
    made.runtime = replace(made.runtime, machine_files=files)
    made.controllers = (made.controllers[0], LaunchInstances(made.runtime), *made.controllers[2:])
    return made


@pytest.fixture
def wheels(api: ServedApi, story: Story) -> ServedApi:
    api.app.include_router(router)
    return api


def test_a_launch_stores_its_agent_and_an_api_of_another_release_hands_it_out(
    story: Story, wheels: ServedApi
) -> None:
    api, url = wheels, f"{wheels.url}/agent/v1/wheel"
    asked = api.client.get(url, params={"sha256": OTHER_SHA256})
    assert asked.headers["Lowtide-Sha256"] == agent_package().sha256, "no such agent is stored yet"
    story.submit()
    story.run()
    assert story.cloud.calls.count("launch") == 1
    answer = api.client.get(url, params={"sha256": OTHER_SHA256})
    assert answer.content == OTHER
    assert answer.headers["Lowtide-Sha256"] == OTHER_SHA256
    assert answer.headers["Lowtide-Filename"] == OTHER_NAME
    own = api.client.get(url, params={"sha256": agent_package().sha256})
    assert own.content == agent_package().content == api.client.get(url).content


def test_what_does_not_fit_its_digest_is_not_handed_out(story: Story) -> None:
    store = story.runtime.object_store
    store.put_new(f"agents/{OTHER_SHA256}/{OTHER_NAME}", b"something else")
    assert find_agent(store, OTHER_SHA256) is None
    assert find_agent(store, "../secrets") is None


def test_a_store_that_is_away_stops_no_launch(story: Story, tmp_path: Path) -> None:
    (tmp_path / "store" / "agents").write_text("a file where the folder should be")
    job_id = story.submit()
    story.run()
    assert [row.state for row in story.instances(job_id)] == ["launched"]


def test_a_fact_that_only_a_newer_agent_knows_is_acknowledged(api: ServedApi) -> None:
    """Refused, it would be sent again with every report, and none would renew the lease."""
    [agent] = api.agents()
    facts = [
        {**agent.fact(FactKind.LEAVING, too="hot"), "kind": "thermal_throttle"},
        agent.fact(FactKind.PREPARED, master_port=20_000),
    ]
    answer = agent.report(fence=1, facts=facts)
    assert (answer.status_code, answer.json().get("ack_fact_no")) == (200, 2), answer.text
    assert answer.json()["directive"]["kind"] == "train"
