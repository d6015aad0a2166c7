"""The credentials that the control plane gives this machine for its job's object stores.

They live in this process's memory alone. obstore asks for them before every request, so that a
renewal counts at once, in the middle of an upload too; where they run out, a request waits for the
next ones. Not here: the stores (`storage_root`), when reports go out (`report_loop`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from trainer.agent.machine.boot_clock import boot_seconds
from trainer.protocol.storage_access import StorageGrant, StorageHeld

WAIT_SECONDS = 60.0
"""How long a request waits for credentials: several tries of a report."""
RING_SECONDS = 5.0
SPARE_SECONDS = 10.0
"""What must be left for a request to begin; a store looks at its beginning alone."""
LOW_SECONDS = 1_200.0
"""With less than this left something is wrong: renewals come long before."""
SAY_SECONDS = 300.0

# In the past: obstore keeps a credential until this instant, and asks for it again after it.
_ASK_AGAIN = datetime(2000, 1, 1, tzinfo=UTC)


class NoCredentials(Exception):
    """None have come, or those that came have run out or were refused."""


class StorageAccess:
    """Thread-safe. services: those that the control plane gives credentials for."""

    def __init__(
        self, services: Iterable[str] = (), now: Callable[[], float] = boot_seconds
    ) -> None:
        """now: seconds of a clock that no correction of the time of day moves."""
        self.services = tuple(services)
        self._now = now
        self._held: dict[str, tuple[StorageGrant, float]] = {}
        self._refused: set[str] = set()
        self._notify: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._said_at: float | None = None

    def notify_by(self, notify: Callable[[], None]) -> None:
        """What makes a report go out soon."""
        self._notify = notify

    def take(self, grants: Iterable[StorageGrant], sent_at: float) -> None:
        """What an answer brought; its seconds are counted from the sending of the report."""
        with self._changed:
            for grant in grants:
                self._held[grant.service] = (grant, sent_at + grant.seconds)
            self._changed.notify_all()

    def held(self) -> tuple[StorageHeld, ...] | None:
        """For a report; None where no credentials are given."""
        if not self.services:
            return None
        with self._changed:
            return tuple(self._told(service) for service in self.services)

    def complaint(self) -> str | None:
        """A sentence, every five minutes, while a renewal is long overdue."""
        with self._changed:
            low = [self._left(one) for one in self.services if one in self._held]
            now = self._now()
            if min(low, default=LOW_SECONDS) >= LOW_SECONDS:
                self._said_at = None
                return None
            if self._said_at is not None and now < self._said_at + SAY_SECONDS:
                return None
            self._said_at = now
            minutes = max(0.0, min(low)) / 60
            return (
                "the credentials for the object store are not renewed: they last another "
                f"{minutes:.0f} minutes; what is saved after that may not reach the store"
            )

    def provider_for(self, service: str) -> Callable[[], dict[str, Any]] | None:
        """What obstore calls before each request; None where the machine has rights of its own."""
        if service not in self.services:
            return None
        return lambda: {**self._await_values(service), "expires_at": _ASK_AGAIN}

    def refuse(self, service: str) -> bool:
        """The store did not accept what is held: others are asked for. False where none are given.

        A credential that has been replaced meanwhile is not held against the new one.
        """
        if service not in self.services:
            return False
        with self._changed:
            if service in self._held:
                self._refused.add(self._held[service][0].grant)
        self._notify()
        return True

    def _await_values(self, service: str) -> dict[str, str]:
        deadline = self._now() + WAIT_SECONDS
        while True:
            with self._changed:
                found = self._held.get(service)
                if found is not None and self._usable(found):
                    return found[0].values
                left = deadline - self._now()
                if left <= 0:
                    raise NoCredentials("no credentials for the object store have come")
            self._notify()
            with self._changed:
                if self._held.get(service) is found:
                    self._changed.wait(min(left, RING_SECONDS))

    def _usable(self, found: tuple[StorageGrant, float]) -> bool:
        grant, until = found
        return grant.grant not in self._refused and self._now() < until - SPARE_SECONDS

    def _told(self, service: str) -> StorageHeld:
        found = self._held.get(service)
        if found is None:
            return StorageHeld(service)
        name = found[0].grant
        return StorageHeld(service, name, max(0.0, self._left(service)), name in self._refused)

    def _left(self, service: str) -> float:
        return self._held[service][1] - self._now()
