"""What a browser keeps while its person signs in at an issuer: a signed cookie of ten minutes.

It holds the state alone. What answers are checked with, the nonce and the verifier, follows from
the state and the deployment's secret, so nothing of it is stored, and a stranger who starts
sign-ins fills no table. Not here: what an answer is worth (`app.ports.people.identity_provider`).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any, Final

from itsdangerous import BadData
from starlette.requests import Request
from starlette.responses import Response

from app.domain.access.identity_rules import SIGN_IN_LIFE
from app.ports.people.identity_provider import SignInSecrets
from app.web.session import Sessions, is_https, local_path

COOKIE: Final = "lowtide_sign_in"
PATH: Final = "/sign-in/oidc"
_SECONDS: Final = int(SIGN_IN_LIFE.total_seconds())


@dataclass(frozen=True)
class WaitingSignIn:
    """A sign-in that has begun in this browser. issuer: its name. next_path: where to go on."""

    issuer: str
    state: str
    next_path: str

    def is_answered_by(self, issuer: str, state: str) -> bool:
        """Whether an answer belongs to it."""
        same = hmac.compare_digest(self.state.encode(), state.encode("utf-8", "replace"))
        return same and self.issuer == issuer

    def secrets(self, sessions: Sessions) -> SignInSecrets:
        """What ties the answer to it."""
        nonce, verifier = (
            sessions.derived(purpose, self.issuer, self.state)
            for purpose in ("issuer nonce", "issuer verifier")
        )
        return SignInSecrets(self.state, nonce, verifier)


def keep(request: Request, response: Response, sessions: Sessions, waiting: WaitingSignIn) -> None:
    """Let the browser keep it; one that began before is forgotten."""
    response.set_cookie(
        COOKIE,
        str(sessions.signer("sign-in").dumps(vars(waiting))),
        max_age=_SECONDS,
        path=PATH,
        secure=is_https(request),
        httponly=True,
        # The issuer's page leads back, so "strict" would leave it out.
        samesite="lax",
    )


def waiting_in(request: Request, sessions: Sessions) -> WaitingSignIn | None:
    """What the browser keeps; None for nothing, or what is old or not ours."""
    try:
        content: Any = sessions.signer("sign-in").loads(
            request.cookies.get(COOKIE, ""), max_age=_SECONDS
        )
        return WaitingSignIn(
            str(content["issuer"]), str(content["state"]), local_path(str(content["next_path"]))
        )
    except (BadData, KeyError, TypeError, ValueError):
        return None


def forget(request: Request, response: Response) -> None:
    """Remove it."""
    response.delete_cookie(
        COOKIE, path=PATH, secure=is_https(request), httponly=True, samesite="lax"
    )
