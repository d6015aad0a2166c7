"""The line between one simulated agent and the control plane, and what it loses.

Not here: the agent (`simulated_agent`) or the API at the other end (`agent_network`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from app.domain.units.errors import DomainError
from app.simulation.engine.event_loop import EventLoop
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.simulated.agent_network import AgentNetwork
from app.simulation.simulated.api_process import Unreachable
from trainer.protocol.agent_report import AgentReport, Registration
from trainer.protocol.directive import RegistrationReply, ReportReply

_DELIVERED_KEPT = 300


class AgentLine:
    """Requests go in, answers come out, unless a fault was set for the next of them.

    delivered, registrations: what has reached the control plane, for those who repeat it.
    """

    def __init__(
        self, network: AgentNetwork, loop: EventLoop, dice: Dice, say: Callable[[str], None]
    ) -> None:
        self.cut_off = False
        self.credential = ""
        self.delivered: deque[AgentReport] = deque(maxlen=_DELIVERED_KEPT)
        self.registrations: list[Registration] = []
        self._network = network
        self._loop = loop
        self._dice = dice
        self._say = say
        self._lost_requests = self._lost_replies = self._held_back = self._doubled = 0

    def lose_requests(self) -> None:
        """The next request does not arrive."""
        self._lost_requests += 1

    def lose_replies(self) -> None:
        """The next request arrives, and its answer does not."""
        self._lost_replies += 1

    def hold_back(self) -> None:
        """The next report arrives minutes later, after newer ones."""
        self._held_back += 1

    def double(self) -> None:
        """The next report arrives twice."""
        self._doubled += 1

    @property
    def clear(self) -> bool:
        """The next request arrives, once, and so does its answer."""
        troubles = (self._lost_requests, self._lost_replies, self._held_back, self._doubled)
        return not self.cut_off and not any(troubles)

    def mend(self) -> None:
        """The control plane can be reached again."""
        self.cut_off = False

    def register(self, registration: Registration) -> RegistrationReply:
        """Register; raises Unreachable and what the control plane raises."""
        self._send()
        reply = self._network.register(registration)
        self.registrations.append(registration)
        self._receive()
        self.credential = reply.credential
        return reply

    def report(self, report: AgentReport) -> ReportReply:
        """Report; raises Unreachable and what the control plane raises."""
        self._send()
        credential = self.credential
        if self._held_back:
            self._held_back -= 1
            self._loop.after(
                self._dice.uniform(5.0, 200.0), lambda: self._arrives_late(credential, report)
            )
            raise Unreachable
        reply = self._network.report(credential, report)
        self.delivered.append(report)
        if self._doubled:
            self._doubled -= 1
            self._arrives_late(credential, report)
        self._receive()
        return reply

    def _send(self) -> None:
        if self._lost_requests:
            self._lost_requests -= 1
            raise Unreachable
        if self.cut_off:
            raise Unreachable

    def _receive(self) -> None:
        if self._lost_replies:
            self._lost_replies -= 1
            raise Unreachable

    def _arrives_late(self, credential: str, report: AgentReport) -> None:
        """A copy, or a report that its sender has given up; nobody waits for the answer."""
        self._say(f"report {report.seq} arrives again or late")
        try:
            self._network.report(credential, report, is_copy=True)
        except (Unreachable, DomainError):
            return
