"""Registers the agent, then sends its reports, in a thread of its own.

Lives here: when to send and when to try again. Not here: what a report holds or what its answer
changes (`supervisor`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.control_plane_client import (
    ControlPlaneClient,
    ControlPlaneUnreachable,
    CredentialRevoked,
    NotAMember,
    ProtocolRefused,
    RegistrationRejected,
    TooEarly,
)
from trainer.agent.rules.observations import (
    Observation,
    Refusal,
    Registered,
    ReportAnswered,
    ReportRefused,
)
from trainer.protocol.agent_report import AgentReport, Registration
from trainer.protocol.storage_access import StorageGrant

REGISTER_AGAIN_SECONDS = 1.0
RETRY_MOST_SECONDS = 15.0
REGISTRATION_SECONDS_MAX = 1_800.0


class RegistrationExpired(Exception):
    """The control plane did not answer the registration in time."""


def register(
    client: ControlPlaneClient,
    registration: Registration,
    seconds_max: float = REGISTRATION_SECONDS_MAX,
) -> Registered:
    """Register, trying again while the launch is not known or nobody answers, for `seconds_max`.

    Sets the client's credential. Raises RegistrationRejected, ProtocolRefused, RegistrationExpired.
    """
    deadline = boot_seconds() + seconds_max
    wait = REGISTER_AGAIN_SECONDS
    while boot_seconds() < deadline:
        try:
            return register_once(client, registration)
        except TooEarly:
            wait = REGISTER_AGAIN_SECONDS
        except ControlPlaneUnreachable:
            wait = min(wait * 1.5, RETRY_MOST_SECONDS)
        time.sleep(wait)
    raise RegistrationExpired("the control plane did not answer the registration")


def register_once(client: ControlPlaneClient, registration: Registration) -> Registered:
    """One try; sets the client's credential. Raises as the client's `register` does."""
    sent_at = boot_seconds()
    reply = client.register(registration)
    client.credential = reply.credential
    return Registered(sent_at, reply)


class ReportLoop:
    """Reports every `next_report_seconds` of the last answer, sooner when `ring` is called."""

    def __init__(
        self,
        client: ControlPlaneClient,
        build: Callable[[float], AgentReport],
        observe: Callable[[Observation], None],
        next_report_seconds: float,
        register_again: Callable[[], Registered] | None = None,
        take_storage: Callable[[tuple[StorageGrant, ...], float], None] = lambda *_: None,
    ) -> None:
        """register_again: one try, for a machine whose row is lost; raises as `register` of the
        client does. take_storage: given what an answer brings, and when its report was sent.
        """
        self._take_storage = take_storage
        self._client = client
        self._register_again = register_again
        self._instance_id: str | None = None
        self._build = build
        self._observe = observe
        self._period_seconds = next_report_seconds
        self._failures = 0
        self._rung = threading.Event()
        self._stopping = threading.Event()

    def notify(self) -> None:
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
        if self._instance_id not in (None, report.instance_id):
            # What the new registration says is not taken in yet.
            self._failures = 1
            return True
        try:
            reply = self._client.report(report)
        except ControlPlaneUnreachable:
            self._failures += 1
            return True
        except TooEarly:
            self._failures += 1
            self._try_to_register()
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
            self._take_storage(reply.storage, sent_at)
            # Nobody else sees the credentials.
            self._observe(ReportAnswered(sent_at, replace(reply, storage=())))
        self._failures = 0
        return True

    def _try_to_register(self) -> None:
        """Nobody has revoked anything, rows were lost: train on, and be known again.

        A launch token that is refused may be known again later, too: the lease is the limit.
        """
        if self._register_again is None:
            return
        try:
            registered = self._register_again()
        except (TooEarly, RegistrationRejected, ProtocolRefused, ControlPlaneUnreachable):
            return
        self._failures = 0
        self._instance_id = registered.reply.instance_id
        self._observe(registered)

    def _wait(self) -> None:
        if self._failures:
            pause = min(2.0 ** min(self._failures - 1, 5), RETRY_MOST_SECONDS)
            self._stopping.wait(min(pause, max(self._period_seconds, 0.2)))
            return
        self._rung.wait(self._period_seconds)
        self._rung.clear()
