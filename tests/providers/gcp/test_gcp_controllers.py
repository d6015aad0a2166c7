"""The production controllers on the provider and the fake: from a job to the last cent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from google.auth.credentials import AnonymousCredentials
from sqlalchemy import Engine, func, insert, select

from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.lifecycle.job import StopCause
from app.domain.spec.job_spec import parse_spec
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.frame.limits import Limits
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.stop_job import order_stop
from app.orchestration.queue.submit_job import submit_job
from app.storage.schema import money_tables, tables
from tests.providers.gcp.gcp_under_test import DEPLOYMENT, a_pool, gcp_settings, render
from tests.support.api.agent_api import BY_PERSON, make_runtime
from tests.support.gce.gce_fake import FakeGce
from tests.support.gce.gce_fake_bill import bill_microusd
from tests.support.gce.gce_fake_state import Vm
from tests.support.servers.table_rows import fetch

_STEP_SECONDS = 5.0
_STEPS_MAX = 200


class World:
    """A deployment on the fake, in the fake's time."""

    def __init__(self, engine: Engine, gce: FakeGce, folder: Path) -> None:
        self.engine, self.gce = engine, gce
        settings = gcp_settings(
            gce, regions=("us-central1",), price_refresh_seconds=300.0, external_ip=True
        )
        api = ComputeApi(settings, AnonymousCredentials())
        self.prices = GcpPriceSource(api, shipped_catalog("gcp"), self.now)
        self.provider = GcpProvider(
            settings,
            api,
            shipped_catalog("gcp"),
            deployment_id=lambda: DEPLOYMENT,
            render=render,
            price_of=self.prices.price_of,
        )
        self.provider._feed._now = self.now
        made = make_runtime(engine, folder, Limits(), self.now)
        self.runtime: Runtime = replace(
            made,
            clock=self,
            providers={"gcp": self.provider},
            price_sources={"gcp": self.prices},
        )
        self.controllers = all_controllers(self.runtime)
        self.project_id = self.runtime.entropy.new_id()
        with engine.begin() as connection:
            deployment = {"id": 1, "deployment_id": UUID(DEPLOYMENT), "secret": "s" * 32}
            connection.execute(insert(tables.deployment).values(deployment))
            project = {"id": self.project_id, "name": "alpha", "created_at": self.now()}
            connection.execute(insert(tables.projects).values(project))

    def now(self) -> datetime:
        """The fake's time."""
        return datetime.fromtimestamp(self.gce.engine.now(), UTC)

    def sleep(self, seconds: float) -> None:
        """Time goes by."""
        self.gce.engine.advance(seconds)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Controllers run and time passes until the condition holds."""
        for _ in range(_STEPS_MAX):
            for controller in self.controllers:
                run_controller(self.runtime, controller)
            if condition():
                return
            self.sleep(_STEP_SECONDS)
        pytest.fail(f"never came: {what}; instances: {self.instances()}")

    def submit(self, **spec: Any) -> UUID:
        """A job for A100 machines."""
        whole = {"run": "python train.py", "resources": {"gpu": "A100:1"}, **spec}
        with self.runtime.begin() as uow:
            return submit_job(
                uow, self.runtime, self.project_id, parse_spec(whole), BY_PERSON
            ).job_id

    def stop(self, job_id: UUID) -> None:
        """A person cancels it."""
        runtime = self.runtime
        with runtime.begin() as uow, open_job(uow, runtime.entropy, job_id, BY_PERSON) as found:
            assert found is not None
            order_stop(found, StopCause.USER, "Ordered by test.", runtime.limits)

    def instances(self) -> Sequence[Any]:
        """All rows, oldest first."""
        table = tables.instances
        return fetch(self.engine, select(table).order_by(table.c.requested_at))

    def in_state(self, *states: str) -> list[Any]:
        """Rows in one of these states."""
        return [row for row in self.instances() if row.state in states]

    def booked_microusd(self) -> int:
        """All compute in the ledger."""
        entries = money_tables.ledger_entries
        with self.engine.connect() as connection:
            return int(connection.scalar(select(func.sum(entries.c.amount_microusd))) or 0)


@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_job_is_rented_for_interrupted_replaced_and_billed_to_the_micro_dollar(
    engine: Engine, gce: FakeGce, tmp_path: Path, nodes: int
) -> None:
    world = World(engine, gce, tmp_path)
    job_id = world.submit(nodes=nodes)
    world.until(lambda: len(world.in_state("launched")) == nodes, "the first machines")
    first = world.in_state("launched")
    assert {row.pool.provider for row in first} == {"gcp"}
    assert {row.launched_source for row in first} == {"last_start"}
    world.sleep(90)
    taken = first[0].provider_instance_id
    gce.engine.preempt(taken)
    world.until(lambda: bool(world.in_state("interrupting")), "the notice, read from the zone")
    world.until(lambda: bool(world.in_state("terminated")), "the interruption")
    (lost,) = [row for row in world.instances() if row.provider_instance_id == taken]
    assert (lost.ended_by, lost.state) == ("cloud_interruption", "terminated")
    world.until(lambda: len(world.in_state("launched")) == nodes, "a replacement")
    world.stop(job_id)
    live = ("requested", "launching", "launched", "registered", "interrupting", "terminating")
    world.until(lambda: not world.in_state(*live), "the end of all machines")
    assert gce.engine.live == {}
    world.sleep(400)
    bill = bill_microusd(gce.engine.all, lambda vm: _price(world, vm))
    world.until(lambda: world.booked_microusd() == sum(bill.values()), f"{bill} in the ledger")
    assert sum(bill.values()) > 0
    assert len({vm.name for vm in gce.engine.all}) == len(world.instances())


def test_a_gang_without_its_placement_policy_says_so_in_the_job_s_history(
    engine: Engine, gce: FakeGce, tmp_path: Path
) -> None:
    gce.engine.world.compact_supported = False
    world = World(engine, gce, tmp_path)
    world.submit(nodes=2)
    world.until(lambda: len(world.in_state("launched")) == 2, "the machines")
    table = tables.events
    with engine.connect() as connection:
        told = connection.scalars(
            select(table.c.message).where(table.c.kind == "launch_accepted")
        ).all()
    assert len(told) == 2
    assert all("Google refused to place the gang close together" in one for one in told)


def _price(world: World, vm: Vm) -> int:
    price = world.prices.price_of(a_pool(vm.zone, kind=vm.machine_type))
    assert price is not None
    assert vm.started_at is not None
    assert world.now() - datetime.fromtimestamp(vm.started_at, UTC) < timedelta(hours=2)
    return price
