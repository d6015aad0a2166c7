"""How often somebody may try to sign in: by the address that the request comes from, and account.

Not here: the limits and what an address is (`app.domain.access.session_rules`), or the counts
(`app.storage.access.sign_in_attempts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from starlette.requests import Request

from app.domain.access.principal import Origin
from app.domain.access.session_rules import (
    PER_ACCOUNT,
    PER_ADDRESS,
    AttemptKind,
    address_subject,
)
from app.domain.units.errors import TooManyAttempts
from app.ports.clock import Clock
from app.storage.access.sign_in_attempts import SignInAttempts

_BROWSER_MAX: Final = 200


@dataclass(frozen=True)
class SignInAttempt:
    """One attempt, counted as a failure until it is known to be none."""

    counts: SignInAttempts
    subjects: tuple[str, ...]

    def succeeded(self) -> None:
        """It was no failure."""
        self.counts.succeeded(*self.subjects)


class SignInGuard:
    """One per process; the counts are those of all of them."""

    def __init__(self, counts: SignInAttempts, clock: Clock) -> None:
        self._counts = counts
        self._clock = clock

    def begin(self, kind: AttemptKind, origin: Origin, account: str = "") -> SignInAttempt:
        """Count an attempt before it is made. account: whom it tries to be; "" if that is not told.

        Raises TooManyAttempts where the address or the account has failed too often.
        """
        now = self._clock.now()
        subjects = [address_subject(kind, origin.address)]
        limits = [PER_ADDRESS]
        if account:
            subjects.append(f"account:{account}")
            limits.append(PER_ACCOUNT)
        for subject, limit in zip(subjects, limits, strict=True):
            wait = self._counts.begin(subject, limit, now)
            if wait is not None:
                what = "with this key" if subject.startswith("account:") else "from your address"
                seconds = ceil(wait.total_seconds())
                minutes = ceil(seconds / 60)
                raise TooManyAttempts(
                    f"Too many attempts to sign in {what} have failed; wait {minutes}m and try "
                    "again.",
                    seconds,
                )
        return SignInAttempt(self._counts, tuple(subjects))


def browser_of(request: Request) -> str | None:
    """What a browser calls itself, for the list of sessions."""
    told = request.headers.get("user-agent", "")
    return "".join(one for one in told if one.isprintable())[:_BROWSER_MAX] or None
