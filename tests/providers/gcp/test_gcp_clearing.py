"""The production controllers clear what the fake keeps besides machines, and say what it saves.

Not here: the provider's own two calls (`test_gcp_leftovers`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from app.domain.deployment.leftover_rules import LEFTOVERS_GRACE_SECONDS
from app.domain.lifecycle.events import Actor, ActorKind
from app.orchestration.deployment.confirm_sweep import confirm_sweep
from app.orchestration.deployment.destroy_deployment import order_destroy
from app.orchestration.frame.controller_frame import run_controller
from app.storage.instances.sweep_repository import DeploymentEvent, SweptRegion
from tests.providers.gcp.gcp_under_test import DEPLOYMENT, a_pool, an_order
from tests.providers.gcp.test_gcp_controllers import World
from tests.support.gce.gce_fake import FakeGce, LineFault

OURS = {"lowtide_deployment": DEPLOYMENT}
ADMIN = Actor(ActorKind.PERSON, "admin")


@pytest.fixture
def world(engine: Engine, gce: FakeGce, tmp_path: Path) -> World:
    return World(engine, gce, tmp_path)


def run_for(world: World, seconds: float, step: float = 60.0) -> None:
    """Time goes by; all controllers run at each step."""
    passed = 0.0
    while passed < seconds:
        for controller in world.controllers:
            run_controller(world.runtime, controller)
        world.sleep(step)
        passed += step


def told(world: World, kind: str) -> list[DeploymentEvent]:
    with world.runtime.begin() as uow:
        return [one for one in uow.sweeps.recent_events(100) if one.kind == kind]


def the_region(world: World) -> SweptRegion:
    with world.runtime.begin() as uow:
        (found,) = uow.sweeps.regions()
    return found


def names(gce: FakeGce) -> set[str]:
    return {name for _, name in gce.engine.disks}


def test_a_disk_goes_after_the_grace_and_the_money_is_told(world: World, gce: FakeGce) -> None:
    gce.engine.add_disk("us-central1-a", "left", OURS)
    run_for(world, LEFTOVERS_GRACE_SECONDS - 300, step=300)
    assert names(gce) == {"left"}
    (seen,) = the_region(world).remains
    assert seen.idle_since_at is not None
    run_for(world, 1_200, step=300)
    assert names(gce) == set()
    assert the_region(world).remains == ()
    (event,) = told(world, "remains_removed")
    assert "disk us-central1-a/left in us-central1 was unused" in event.message
    assert "which saves $0.66 a day" in event.message
    assert event.data["saved_microusd_per_day"] == 657_534


def test_a_disk_that_was_used_in_between_starts_anew(world: World, gce: FakeGce) -> None:
    disk = gce.engine.add_disk("us-central1-a", "busy", OURS)
    run_for(world, LEFTOVERS_GRACE_SECONDS - 900, step=300)
    disk["users"].append("somebody")
    run_for(world, 900, step=300)
    disk["users"].clear()
    run_for(world, 1_500, step=300)
    assert names(gce) == {"busy"}


def test_where_rows_are_missing_nothing_goes_until_a_person_confirms(
    world: World, gce: FakeGce
) -> None:
    gce.engine.add_disk("us-central1-a", "left", OURS)
    # A machine of a launch that this database does not know: it was restored from a backup.
    tags = {"lowtide:deployment": DEPLOYMENT, "lowtide:launch": str(uuid4())}
    world.provider.launch(an_order(a_pool(), tags=tags))
    run_for(world, 2 * LEFTOVERS_GRACE_SECONDS, step=300)
    assert names(gce) >= {"left"}
    assert told(world, "remains_removed") == []
    with world.runtime.begin() as uow:
        assert uow.sweeps.orders().adopting
        confirm_sweep(uow, world.runtime, ADMIN)
    run_for(world, 900, step=60)
    assert names(gce) == set()


def test_a_restored_row_of_an_idle_disk_removes_nothing_before_the_first_list(
    world: World, gce: FakeGce
) -> None:
    """Yesterday's row says idle for a day: what was lost since is known only after a list."""
    gce.engine.add_disk("us-central1-a", "left", OURS)
    run_for(world, 1_500, step=300)
    world.sleep(86_400)
    clearing = next(one for one in world.controllers if one.name == "clear_remains")
    run_controller(world.runtime, clearing)
    assert names(gce) == {"left"}


def test_destroy_ends_machines_first_then_all_the_rest(world: World, gce: FakeGce) -> None:
    world.submit(nodes=2)
    world.until(lambda: len(world.in_state("launched")) == 2, "the machines")
    gce.engine.add_disk("us-central1-a", "left", OURS)
    gce.engine.add_disk("us-central1-a", "of-others", {"lowtide_deployment": "another"})
    assert gce.engine.policies
    with world.runtime.begin() as uow:
        order_destroy(uow, world.runtime, ADMIN)
    refused = LineFault("DELETE .*/disks/left", times=3, status=403, reason="forbidden")
    gce.faults.append(refused)
    world.until(lambda: refused.times < 3, "the first try to remove the disk")
    assert gce.engine.live == {}
    (left,) = [one for one in the_region(world).remains if one.kind == "disk"]
    assert "forbidden" in left.note
    assert told(world, "destroyed") == []
    world.until(lambda: bool(told(world, "destroyed")), "the end of everything")
    assert names(gce) == {"of-others"}
    assert gce.engine.policies == {}


def test_a_region_that_cannot_be_asked_is_left_not_empty(world: World, gce: FakeGce) -> None:
    fault: Any = LineFault("GET .*/aggregated/disks", times=1_000, status=403, reason="forbidden")
    gce.faults.append(fault)
    with world.runtime.begin() as uow:
        order_destroy(uow, world.runtime, ADMIN)
    run_for(world, 60, step=5)
    (left,) = the_region(world).remains
    assert "did not answer" in left.note
    assert told(world, "destroyed") == []
