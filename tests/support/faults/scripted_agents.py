"""Agents of a schedule's machines: each starts from its machine's own script, and obeys.

Here: what they say to the control plane's verbs, in the schedule's time. Not here: the agent's own
program (tests/integration), or the clouds that start their machines (`scripted_cloud`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from app.domain.deployment.credentials import digest
from app.domain.units.errors import DomainError
from app.orchestration.agents.receive_agent_report import receive_agent_report
from app.orchestration.agents.register_agent import NotKnownYet, register_agent
from app.orchestration.frame.runtime import Runtime
from app.simulation.engine.seeded_entropy import Dice
from trainer.protocol.agent_report import (
    PROTOCOL_VERSION,
    AgentReport,
    Fact,
    FactKind,
    MachinePhase,
    Progress,
    Registration,
)
from trainer.protocol.directive import Directive, DirectiveKind

TOTAL_STEPS: Final = 1_000
_STEPS_A_TURN: Final = 125
_WORDS_MAX: Final = 4

Word = tuple[FactKind, dict[str, Any]]
"""A fact to be told: its kind and its data."""

_TOKEN: Final = re.compile(r"^LOWTIDE_LAUNCH_TOKEN=(\S+)$", re.MULTILINE)


@dataclass
class Agent:
    """One machine's. gone: it is refused for good, and says nothing more."""

    machine_id: str
    token: str
    instance_id: str = ""
    job_id: str = ""
    credential: str = ""
    seq: int = 0
    facts: int = 0
    fence: int | None = None
    step: int = 0
    doing: DirectiveKind = DirectiveKind.HOLD
    rank: int = 0
    ended: bool = False
    gone: bool = False


@dataclass
class Crowd:
    """All agents. saved: the newest checkpoint of each job, which is all that a store knows."""

    runtime: Runtime
    dice: Dice
    agents: dict[str, Agent] = field(default_factory=dict)
    saved: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: int = 0

    def turn(self, running: dict[str, str], *, faulty: bool) -> None:
        """Every machine that runs says what it has to say. faulty: some lose a GPU, or a report."""
        for machine_id, script in sorted(running.items()):
            agent = self.agents.get(machine_id)
            if agent is None:
                token = _TOKEN.search(script)
                assert token is not None, f"{machine_id} was rented without a token: {script}"
                agent = self.agents[machine_id] = Agent(machine_id, token[1])
            if agent.gone or (faulty and self.dice.chance(0.1)):
                continue
            try:
                self._turn_of(agent, faulty)
            except NotKnownYet:
                continue
            except DomainError:
                agent.gone = True

    def _turn_of(self, agent: Agent, faulty: bool) -> None:
        if not agent.credential:
            self._register(agent)
        directive = self._say(agent)
        stepped = False
        for _ in range(_WORDS_MAX):
            if not self._understand(agent, directive):
                return
            if agent.doing is directive.kind is DirectiveKind.TRAIN:
                if stepped:
                    return
                stepped = True
                agent.step = min(TOTAL_STEPS, agent.step + _STEPS_A_TURN)
            kind, data = self._next_word(agent, directive, faulty)
            directive = self._say(agent, kind, **data)

    def _register(self, agent: Agent) -> None:
        with self.runtime.begin() as uow:
            reply = register_agent(
                uow,
                self.runtime,
                Registration(
                    PROTOCOL_VERSION, agent.token, f"nonce-{agent.machine_id}", agent.machine_id,
                    "boot", "session", 1_000, "10.0.0.1", 20_000, 20_100,
                ),
            )  # fmt: skip
        agent.credential, agent.instance_id = reply.credential, reply.instance_id
        agent.job_id = reply.run_config.job_id

    def _say(self, agent: Agent, kind: FactKind | None = None, **data: Any) -> Directive:
        agent.seq += 1
        facts: tuple[Fact, ...] = ()
        if kind is not None:
            agent.facts += 1
            facts = (Fact(agent.facts, kind, 1_000, agent.fence, data),)
        trains = agent.doing is DirectiveKind.TRAIN
        report = AgentReport(
            PROTOCOL_VERSION, agent.instance_id, "boot", "session", agent.seq, 1_000,
            MachinePhase.TRAIN if trains else MachinePhase.IDLE, agent.fence,
            Progress(agent.step, TOTAL_STEPS) if trains else None, facts,
        )  # fmt: skip
        with self.runtime.begin() as uow:
            return receive_agent_report(
                uow, self.runtime, digest(agent.credential), report
            ).directive

    def _understand(self, agent: Agent, directive: Directive) -> bool:
        """Whether the order asks for anything that is still to be done."""
        if directive.kind in (DirectiveKind.HOLD, DirectiveKind.LEAVE) or directive.fence is None:
            return False
        if directive.fence != agent.fence:
            agent.fence, agent.ended, agent.doing = directive.fence, False, DirectiveKind.HOLD
        agent.rank = agent.rank if directive.node_rank is None else directive.node_rank
        done = agent.doing is directive.kind is DirectiveKind.PREPARE
        return not (agent.ended or done)

    def _next_word(self, agent: Agent, directive: Directive, faulty: bool) -> Word:
        """The fact that comes next on the way to what is ordered."""
        known = self.saved.get(agent.job_id)
        if directive.kind is DirectiveKind.PREPARE:
            agent.doing, agent.step = directive.kind, 0 if known is None else known["step"]
            final = bool(known and known["final"])
            return FactKind.PREPARED, {"parent": known, "master_port": 20_001, "final": final}
        if directive.kind is DirectiveKind.TRAIN:
            if agent.doing is not DirectiveKind.TRAIN:
                agent.doing = directive.kind
                return FactKind.TRAINER_STARTED, {}
            if faulty and self.dice.chance(0.01):
                self.faults += 1
                agent.ended = True
                return FactKind.GPU_FAULT, {"message": "Xid 79: the GPU has fallen off the bus"}
            if agent.step < TOTAL_STEPS or self._is_unsaved(agent):
                return self._save(agent)
            return self._end(agent, "finished", 0)
        if directive.kind is DirectiveKind.DRAIN:
            if agent.doing is DirectiveKind.TRAIN and self._is_unsaved(agent):
                return self._save(agent)
            return self._end(agent, "drained", 75)
        return self._end(agent, "killed", -9)

    def _is_unsaved(self, agent: Agent) -> bool:
        """Whether the first rank's agent has steps that the store has not."""
        known = self.saved.get(agent.job_id)
        newest = (0, 0) if known is None else (known["fence"], known["step"])
        return agent.rank == 0 and (agent.fence or 0, agent.step) > newest

    def _save(self, agent: Agent) -> Word:
        if not self._is_unsaved(agent):
            return FactKind.PHASE, {"phase": "train", "step": agent.step}
        final, digest_of = agent.step >= TOTAL_STEPS, f"{agent.fence}-{agent.step}"
        told = {"fence": agent.fence, "step": agent.step, "digest": digest_of, "final": final}
        self.saved[agent.job_id] = told
        return FactKind.CHECKPOINT, {key: told[key] for key in ("step", "digest", "final")}

    def _end(self, agent: Agent, outcome: str, exit_code: int) -> Word:
        agent.ended = True
        end = {"outcome": outcome, "exit_code": exit_code, "step": agent.step}
        return FactKind.TRAINER_ENDED, end
