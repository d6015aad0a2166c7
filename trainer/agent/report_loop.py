"""Registers the agent, then sends its reports, in a thread of its own.

Lives here: when to send and when to try again. Not here: what a report holds or what its answer
changes (`supervisor`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from trainer.agent.boot_clock import boot_seconds
from trainer.agent.control_plane_client import (
    ControlPlaneClient,
    ControlPlaneUnreachable,
    CredentialRevoked,
    NotAMember,
    NotKnownYet,
    ProtocolRefused,
)
from trainer.agent.observations import (
    Observation,
    Refusal,
    Registered,
    ReportAnswered,
    ReportRefused,
)
from trainer.protocol.agent_report import AgentReport, Registration

REGISTER_AGAIN_SECONDS = 1.0
RETRY_MOST_SECONDS = 15.0
REGISTRATION_SECONDS_MAX = 1_800.0


class RegistrationExpired(Exception):
    """The control plane did not answer the registration for half an hour."""


def register(client: ControlPlaneClient, registration: Registration) -> Registered:
    """Register, trying again while the launch is not known or nobody answers.

    Sets the client's credential. Raises TokenRefused, ProtocolRefused, RegistrationExpired.
    """
    deadline = boot_seconds() + REGISTRATION_SECONDS_MAX
    wait = REGISTER_AGAIN_SECONDS
    while boot_seconds() < deadline:
        sent_at = boot_seconds()
        try:
            reply = client.register(registration)
        except NotKnownYet:
            wait = REGISTER_AGAIN_SECONDS
        except ControlPlaneUnreachable:
            wait = min(wait * 1.5, RETRY_MOST_SECONDS)
        else:
            client.credential = reply.credential
            return Registered(sent_at, reply)
        time.sleep(wait)
    raise RegistrationExpired("the control plane did not answer the registration")


class ReportLoop:
    """Reports every `next_report_seconds` of the last answer, sooner when `ring` is called."""

    def __init__(
        self,
        client: ControlPlaneClient,
        build: Callable[[float], AgentReport],
        observe: Callable[[Observation], None],
        next_report_seconds: float,
    ) -> None:
        self._client = client
        self._build = build
        self._observe = observe
        self._period_seconds = next_report_seconds
        self._failures = 0
        self._rung = threading.Event()
        self._stopping = threading.Event()

    def ring(self) -> None:
        """Report now; after failures not sooner than the next try is due."""
        self._rung.set()

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()
        self._rung.set()

    def run(self) -> None:
        """Until `stop`, or until the control plane refuses this agent for good."""
        while not self._stopping.is_set():
            if not self.send_one():
                break
            self._wait()
        self._client.close()

    def send_one(self) -> bool:
        """Send one report and observe its answer; False when there is no use in another."""
        sent_at = boot_seconds()
        report = self._build(sent_at)
        try:
            reply = self._client.report(report)
        except ControlPlaneUnreachable:
            self._failures += 1
            return True
        except CredentialRevoked:
            self._observe(ReportRefused(Refusal.REVOKED))
            return False
        except NotAMember:
            self._observe(ReportRefused(Refusal.NOT_A_MEMBER))
        except ProtocolRefused:
            self._observe(ReportRefused(Refusal.PROTOCOL))
            self._failures += 1
            return True
        else:
            self._period_seconds = max(0.05, reply.next_report_seconds)
            self._observe(ReportAnswered(sent_at, reply))
        self._failures = 0
        return True

    def _wait(self) -> None:
        if self._failures:
            pause = min(2.0 ** min(self._failures - 1, 5), RETRY_MOST_SECONDS)
            self._stopping.wait(min(pause, max(self._period_seconds, 0.2)))
            return
        self._rung.wait(self._period_seconds)
        self._rung.clear()
