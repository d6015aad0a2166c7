"""What an agent says that failed again and again: that it gives up, and the machine is free.

The attempt then ends with a word of its own, and no lease has to run out first. Not here: the
counting (`trainer.protocol.exit_codes`), the power-off (`main`).
"""

from __future__ import annotations

import time
from dataclasses import replace

from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.control_plane_client import (
    ControlPlaneClient,
    ControlPlaneUnreachable,
    CredentialRevoked,
    NotAMember,
    ProtocolRefused,
    TooEarly,
)
from trainer.agent.rules import attempt_ending, supervisor
from trainer.agent.rules.agent_state import AgentState, TrainerEnd
from trainer.agent.rules.observations import Registered
from trainer.agent.rules.step_context import StepContext
from trainer.protocol.agent_report import AGENT_FAILED, FactKind, TrainerError, TrainerOutcome
from trainer.protocol.directive import DirectiveKind

REGISTER_SECONDS_MAX = 60.0
REPORT_SECONDS_MAX = 30.0
_PAUSE_SECONDS = 1.0
_OF_AN_ATTEMPT = (DirectiveKind.PREPARE, DirectiveKind.TRAIN, DirectiveKind.DRAIN)


def give_up(
    client: ControlPlaneClient, state: AgentState, registered: Registered, why: str
) -> None:
    """End this machine's part of the attempt it is wanted for, tell that it leaves, and return.

    Returns after half a minute, too, when nobody answers.
    """
    state = parting_state(state, registered, why)
    deadline = time.monotonic() + REPORT_SECONDS_MAX
    while state.facts.pending and time.monotonic() < deadline:
        state, report = supervisor.next_report(state, boot_seconds())
        try:
            answer = client.report(report)
        except (CredentialRevoked, NotAMember, ProtocolRefused):
            return
        except (ControlPlaneUnreachable, TooEarly):
            time.sleep(_PAUSE_SECONDS)
            continue
        state = replace(state, facts=state.facts.acknowledge(answer.ack_fact_no))


def parting_state(state: AgentState, registered: Registered, why: str) -> AgentState:
    """The state with the facts of the parting in it."""
    reply = registered.reply
    turn = StepContext(replace(state, instance_id=reply.instance_id), boot_seconds())
    told = {fact.fence for fact in state.facts.pending if fact.kind is FactKind.TRAINER_ENDED}
    directive = reply.directive
    if directive.kind in _OF_AN_ATTEMPT and directive.fence not in told:
        end = TrainerEnd(TrainerOutcome.KILLED, error=TrainerError(why, type=AGENT_FAILED))
        turn.emit(FactKind.TRAINER_ENDED, directive.fence, attempt_ending.end_data(end, None))
    turn.leave(AGENT_FAILED)
    return turn.state
