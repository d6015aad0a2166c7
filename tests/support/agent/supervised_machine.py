"""A machine whose supervisor is driven with observations and a clock of our own.

Not here: what is expected of it (tests/unit/agent/test_agent_supervisor*.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from trainer.agent.rules import actions as act
from trainer.agent.rules import observations as seen
from trainer.agent.rules import supervisor
from trainer.agent.rules.agent_state import AgentState, LocalCheckpoint, Stage, TrainerEnd
from trainer.protocol.agent_report import (
    AgentReport,
    FactKind,
    TrainerOutcome,
)
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import (
    Directive,
    DirectiveKind,
    RegistrationReply,
    ReportReply,
)
from trainer.protocol.run_config import RunConfig

Kind = TypeVar("Kind", bound=act.Action)

LEASE = 1_800.0
HOLD = Directive(DirectiveKind.HOLD, 1)


class Machine:
    """One supervisor under test: its state, its clock, everything it asked for."""

    def __init__(
        self,
        bundled: bool = True,
        now: float = 1_000.0,
        outputs: dict[str, str] | None = None,
        **initial: Any,
    ) -> None:
        self.now = now
        self.asked: list[act.Action] = []
        self.state: AgentState = supervisor.initial_state("boot", "session", now, **initial)
        self.version = 1
        config = RunConfig(
            job_id="job",
            job_name="job",
            num_nodes=1,
            gpus_per_node=1,
            checkpoint_uri="file:///x",
            checkpoint_keep=2,
            stall_timeout_seconds=600.0,
            trainer={} if bundled else None,
            run=None if bundled else "true",
            outputs=outputs or {},
        )
        reply = RegistrationReply("instance", "secret", LEASE, 5.0, config, HOLD)
        self.see(seen.Registered(now, reply))

    def see(self, *observations: seen.Observation) -> list[act.Action]:
        self.state, asked = supervisor.step(self.state, observations, self.now)
        self.asked += asked
        return list(asked)

    def after(self, seconds: float) -> list[act.Action]:
        self.now += seconds
        return self.see()

    def report(self) -> AgentReport:
        self.state, report = supervisor.next_report(self.state, self.now)
        return report

    def answered(self, directive: Directive, ack: int | None = None) -> list[act.Action]:
        report = self.report()
        if ack is None:
            ack = max((fact.fact_no for fact in report.facts), default=0)
        reply = ReportReply(ack, LEASE, 5.0, directive)
        return self.see(seen.ReportAnswered(self.now, reply))

    def told(self, kind: DirectiveKind, fence: int | None = 1, **more: Any) -> list[act.Action]:
        self.version += 1
        more.setdefault("node_rank", 0)
        return self.answered(Directive(kind, self.version, fence, "attempt", **more))

    def running(self, fence: int = 1, **more: Any) -> Machine:
        self.told(DirectiveKind.PREPARE, fence, **more)
        self.see(seen.Prepared(fence, None, 29_501))
        self.told(DirectiveKind.TRAIN, fence, master_port=29_501, **more)
        self.see(seen.TrainerStarted(fence))
        self.asked.clear()
        return self

    def kinds(self) -> list[FactKind]:
        return [fact.kind for fact in self.state.facts.pending]

    def kinds_that_matter(self) -> list[FactKind]:
        by_the_way = (FactKind.PHASE, FactKind.METRICS)
        return [kind for kind in self.kinds() if kind not in by_the_way]

    def fact(self, kind: FactKind) -> dict[str, Any]:
        return [fact.data for fact in self.state.facts.pending if fact.kind is kind][-1]

    def stage(self) -> Stage | None:
        """Not a property: type checkers take an attribute that was once compared as unchanged."""
        return self.state.work.stage if self.state.work else None


def of(kind: type[Kind], asked: Iterable[act.Action]) -> list[Kind]:
    return [action for action in asked if isinstance(action, kind)]


def ended(outcome: TrainerOutcome, **more: Any) -> TrainerEnd:
    return TrainerEnd(outcome, **more)


def saved(step: int, final: bool = False, key: str = "folder") -> LocalCheckpoint:
    return LocalCheckpoint(step, final, f"{key}-{step}")


def committed(fence: int, checkpoint: LocalCheckpoint, final: bool = False) -> seen.Observation:
    ref = CheckpointRef(fence, checkpoint.step, "d")
    return seen.CheckpointPublished(fence, checkpoint, ref, 7, final or checkpoint.final)
