"""Silence of agents, on real rows under a clock that the test owns."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.domain.deployment.credentials import digest
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState
from app.orchestration.agents.receive_agent_report import receive_agent_report
from app.orchestration.agents.register_agent import register_agent
from app.orchestration.agents.watch_contacts import WatchContacts
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.frame.runtime import Limits
from app.orchestration.transitions.expire_deadlines import ExpireDeadlines
from app.storage.schema import tables
from tests.support.api.agent_api import Gang, make_gang, make_runtime
from tests.support.servers.table_rows import change_rows, row_of, rows_of
from trainer.protocol.agent_report import (
    EXIT_DRAINED,
    PROTOCOL_VERSION,
    AgentReport,
    Fact,
    FactKind,
    MachinePhase,
    Progress,
    Registration,
)

LIMITS = Limits(report_interval_seconds=10, agent_lease_seconds=1_800, force_silence_seconds=600)
SILENT = 22.0
"""Two missed reports and the margin."""
LEASE_OVER = 1.01 * 1_800 + 60


class Story:
    """A deployment whose time stands until the test moves it."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.time = self.start = datetime.now(UTC) + timedelta(seconds=1)
        self.runtime = make_runtime(engine, folder, LIMITS, lambda: self.time)
        self.watch = WatchContacts(self.runtime)
        self.credentials: dict[UUID, str] = {}
        self.seqs: dict[UUID, int] = {}
        self.facts: dict[UUID, int] = {}

    def go_to(self, seconds: float, *, hearing: bool = True) -> None:
        """So many seconds after the start; agents could be heard all the time, unless told."""
        self.time = self.start + timedelta(seconds=seconds)
        if hearing:
            change_rows(self.engine, tables.deployment, listening_at=self.time)

    def hears_since(self, seconds: float) -> None:
        since = self.start + timedelta(seconds=seconds)
        change_rows(self.engine, tables.deployment, hearing_since_at=since)

    def gang(self, nodes: int, name: str = "digits") -> Gang:
        """A gang that trains."""
        gang = make_gang(self.engine, self.runtime, nodes, name=name)
        for rank, instance_id in enumerate(gang.instance_ids):
            with self.runtime.begin() as uow:
                reply = register_agent(
                    uow,
                    self.runtime,
                    Registration(
                        PROTOCOL_VERSION, gang.token, "nonce", Gang.machine(instance_id), "boot",
                        "session", 1_000, f"10.0.0.{rank}", 20_000, 20_100,
                    ),
                )  # fmt: skip
            self.credentials[instance_id] = reply.credential
        for kind in (FactKind.PREPARED, FactKind.TRAINER_STARTED):
            for instance_id in gang.instance_ids:
                self.report(instance_id, fact=kind, master_port=20_000)
        return gang

    def report(
        self,
        instance_id: UUID,
        at_step: int | None = None,
        fact: FactKind | None = None,
        fence: int | None = 1,
        **data: Any,
    ) -> None:
        """The agent of an instance is heard. fence: the attempt it works for, None when idle."""
        self.seqs[instance_id] = self.seqs.get(instance_id, 0) + 1
        facts: tuple[Fact, ...] = ()
        if fact is not None:
            self.facts[instance_id] = self.facts.get(instance_id, 0) + 1
            facts = (Fact(self.facts[instance_id], fact, 1_000, 1, data),)
        report = AgentReport(
            PROTOCOL_VERSION, str(instance_id), "boot", "session", self.seqs[instance_id], 1_000,
            MachinePhase.TRAIN, fence, None if at_step is None else Progress(at_step), facts,
        )  # fmt: skip
        with self.runtime.begin() as uow:
            receive_agent_report(uow, self.runtime, digest(self.credentials[instance_id]), report)

    def run(self) -> int:
        return run_controller(self.runtime, self.watch)

    def next_due(self) -> float | None:
        """Seconds after the start."""
        with self.runtime.begin() as uow:
            due = self.watch.next_due(uow)
        return None if due is None else (due - self.start).total_seconds()

    def instance(self, instance_id: UUID) -> Any:
        return row_of(self.engine, tables.instances, id=instance_id)

    def attempt_state(self, gang: Gang) -> str:
        return str(row_of(self.engine, tables.attempts, id=gang.attempt_id).state)

    def job_state(self, gang: Gang) -> str:
        return str(row_of(self.engine, tables.jobs, id=gang.job_id).state)

    def events(self, gang: Gang, kind: str) -> int:
        return len(rows_of(self.engine, tables.events, job_id=gang.job_id, kind=kind))


@pytest.fixture
def story(engine: Engine, tmp_path: Path) -> Story:
    return Story(engine, tmp_path / "store")


def _begin(story: Story, nodes: int = 1) -> Gang:
    gang = story.gang(nodes)
    story.go_to(0)
    story.hears_since(0)
    return gang


def test_two_missed_reports_are_silence_and_the_cloud_is_asked_at_once(story: Story):
    gang = _begin(story)
    (machine,) = gang.instance_ids
    assert story.next_due() == SILENT
    story.go_to(SILENT - 0.001)
    assert story.run() == 0
    story.go_to(SILENT)
    assert story.run() == 1
    found = story.instance(machine)
    assert found.unreachable_at == found.describe_at == story.time
    assert story.events(gang, "instance_unreachable") == 1
    assert "reconcile_instances" in story.runtime.wakeups.rung  # type: ignore[attr-defined]
    assert story.run() == 0
    assert found.state == InstanceState.REGISTERED
    assert story.attempt_state(gang) == AttemptState.RUNNING


def test_a_machine_that_is_heard_again_is_as_before(story: Story):
    gang = _begin(story)
    story.go_to(30)
    story.run()
    story.go_to(40)
    story.report(gang.instance_ids[0])
    assert story.next_due() == 40
    assert story.run() == 1
    assert story.instance(gang.instance_ids[0]).unreachable_at is None
    assert story.events(gang, "instance_heard_again") == 1
    assert story.next_due() == 40 + SILENT
    assert story.run() == 0


def test_silence_counts_only_while_agents_could_be_heard(story: Story):
    gang = _begin(story)
    story.go_to(5_000, hearing=False)
    assert (story.run(), story.next_due()) == (0, None)
    # The control plane is back: every machine gets the time of two reports, whatever its lease.
    story.go_to(5_000)
    story.hears_since(5_000)
    assert (story.run(), story.next_due()) == (0, 5_000 + SILENT)
    story.go_to(5_000 + SILENT)
    assert story.run() == 1
    assert story.instance(gang.instance_ids[0]).state == InstanceState.REGISTERED
    assert story.events(gang, "instance_unreachable") == 1


def test_a_lease_that_is_over_is_the_second_witness(story: Story):
    gang = _begin(story, 2)
    silent, other = gang.instance_ids
    story.go_to(SILENT)
    story.run()
    # The other rank makes steps, which prove that the silent one is at work: it is not forced.
    for seconds in range(60, int(LEASE_OVER), 60):
        story.go_to(seconds)
        story.report(other, at_step=seconds)
        story.run()
    story.go_to(LEASE_OVER - 0.001)
    story.report(other, at_step=10_000)
    assert story.run() == 0
    assert story.instance(silent).state == InstanceState.REGISTERED
    assert story.next_due() == LEASE_OVER
    story.go_to(LEASE_OVER)
    assert story.run() == 1
    found = story.instance(silent)
    assert (found.state, found.terminate_at) == (InstanceState.TERMINATING, story.time)
    # The other member's end is still open: the verdict waits for it.
    assert story.attempt_state(gang) == AttemptState.SETTLING
    story.report(other, fact=FactKind.TRAINER_ENDED, outcome="failed", exit_code=1)
    assert story.attempt_state(gang) == AttemptState.LOST
    assert story.job_state(gang) == JobState.RECOVERING


def test_long_silence_is_forced_and_waits_for_the_word_of_the_cloud(story: Story):
    gang = _begin(story)
    machine = gang.instance_ids[0]
    story.go_to(SILENT)
    story.run()
    assert story.next_due() == 600
    story.go_to(600)
    assert story.run() == 1
    found = story.instance(machine)
    assert (found.state, found.terminate_at) == (InstanceState.TERMINATING, story.time)
    assert story.attempt_state(gang) == AttemptState.RUNNING
    assert story.job_state(gang) == JobState.RUNNING
    assert (story.run(), story.next_due()) == (0, None)


def test_nobody_is_forced_while_nobody_is_heard(story: Story):
    gang = _begin(story, 2)
    story.go_to(SILENT)
    assert story.run() == 2
    story.go_to(700)
    assert story.run() == 0
    assert story.next_due() == LEASE_OVER
    story.report(gang.instance_ids[1])
    # One is heard again: so the fault is not ours, and the other one is forced.
    assert story.next_due() == 700
    assert story.run() == 2
    assert story.next_due() == 700 + SILENT
    states = [story.instance(one).state for one in gang.instance_ids]
    assert states == [InstanceState.TERMINATING, InstanceState.REGISTERED]


def test_every_proof_of_life_starts_the_wait_anew(story: Story):
    gang = _begin(story, 2)
    silent, other = gang.instance_ids
    story.go_to(15)
    story.report(other, at_step=1)  # may rest on what the silent one did before it fell silent
    story.go_to(SILENT)
    story.report(other)
    story.run()
    assert story.next_due() == SILENT + SILENT
    story.go_to(100)
    story.report(other, at_step=2)
    story.go_to(600)
    story.report(other)
    assert story.run() == 0
    saved: dict[str, Any] = {"step": 2, "digest": "d", "size_bytes": 1, "final": False}
    story.go_to(650)
    story.report(other, fact=FactKind.CHECKPOINT, **saved)
    story.go_to(1_249.9)
    story.report(other)
    assert story.run() == 0
    assert story.next_due() == 1_250
    story.go_to(1_250)
    assert story.run() == 1
    assert story.instance(silent).state == InstanceState.TERMINATING
    assert story.instance(other).state == InstanceState.REGISTERED


def _drained_beside_a_silent_one(story: Story, exit_code: int) -> tuple[Gang, UUID, UUID]:
    """One falls silent, the other makes steps for long, and then ends and idles."""
    gang = _begin(story, 2)
    silent, other = gang.instance_ids
    story.go_to(SILENT)
    story.report(other)
    story.run()
    for seconds in range(60, 1_600, 60):
        story.go_to(seconds)
        story.report(other, at_step=seconds)
        assert story.run() == 0
    story.go_to(1_610)
    end: dict[str, Any] = {"outcome": "drained", "exit_code": exit_code, "step": 1_600}
    story.report(other, fact=FactKind.TRAINER_ENDED, **end)
    story.report(other, fence=None)
    return gang, silent, other


def _not_given_up_before_its_lease_is_over(story: Story, other: UUID) -> None:
    story.go_to(LEASE_OVER - 0.001)
    story.report(other, fence=None)
    assert (story.run(), story.next_due()) == (0, LEASE_OVER)


def test_a_peer_that_has_drained_still_proves_life(story: Story):
    gang, silent, other = _drained_beside_a_silent_one(story, EXIT_DRAINED)
    assert story.attempt_state(gang) == AttemptState.SETTLING
    # It may be uploading what both have just saved: its lease decides.
    _not_given_up_before_its_lease_is_over(story, other)
    assert story.instance(silent).state == InstanceState.REGISTERED


def test_the_steps_of_a_peer_that_idles_still_prove_life(story: Story):
    _, silent, other = _drained_beside_a_silent_one(story, -15)
    _not_given_up_before_its_lease_is_over(story, other)
    assert story.instance(silent).state == InstanceState.REGISTERED


def test_a_machine_that_may_still_save_outlasts_its_attempt(story: Story):
    gang, silent, other = _drained_beside_a_silent_one(story, EXIT_DRAINED)
    story.go_to(1_610 + story.runtime.limits.settle_seconds)
    story.report(other, fence=None)
    run_controller(story.runtime, ExpireDeadlines(story.runtime))
    assert story.attempt_state(gang) == AttemptState.FAILED
    assert story.job_state(gang) == JobState.RECOVERING
    found = story.instance(silent)
    assert (found.state, found.suspect) == (InstanceState.REGISTERED, True)
    _not_given_up_before_its_lease_is_over(story, other)
    story.go_to(LEASE_OVER)
    story.report(other, fence=None)
    assert story.run() == 1
    assert story.instance(silent).state == InstanceState.TERMINATING
    assert story.instance(other).state == InstanceState.REGISTERED


def test_one_that_is_heard_after_its_attempt_is_given_back(story: Story):
    _, silent, other = _drained_beside_a_silent_one(story, EXIT_DRAINED)
    story.go_to(1_610 + story.runtime.limits.settle_seconds)
    story.report(other, fence=None)
    run_controller(story.runtime, ExpireDeadlines(story.runtime))
    story.report(silent, fence=None)
    assert story.run() == 1
    assert story.instance(silent).state == InstanceState.TERMINATING


def test_what_was_learnt_between_two_phases_counts(story: Story):
    gang = _begin(story)
    story.go_to(SILENT)
    with story.runtime.begin() as uow:
        (work,) = story.watch.select(uow, 10)
    story.report(gang.instance_ids[0])
    with story.runtime.begin() as uow:
        story.watch.apply(uow, work, None)
    assert story.instance(gang.instance_ids[0]).unreachable_at is None
    with story.runtime.begin() as uow:
        story.watch.apply(uow, replace(work, instance_id=UUID(int=7)), None)
    assert story.events(gang, "instance_unreachable") == 0
