"""Who looks at a page: a signed cookie that names a session, and tokens for forms.

The cookie holds the session's id, never a key, and every request asks the database whether that
session still is and its key still good: who signs out or loses the key is out everywhere at once.
A session ends after a day without a request, and a week after the sign-in.
Not here: the sign-in page (`sign_in`), or what the API's callers send.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

from app.domain.access.key_rules import is_key
from app.domain.access.principal import Origin, Principal
from app.domain.access.session_rules import SESSION_LIFE
from app.domain.deployment.credentials import derive, digest
from app.domain.lifecycle.events import Actor
from app.ports.clock import Clock
from app.ports.entropy import Entropy
from app.storage.access.web_sessions import NewSession, WebSessions
from app.storage.reports.page_read_models import PageReports

COOKIE: Final = "lowtide_session"
SESSION_SECONDS: Final = int(SESSION_LIFE.total_seconds())
HOME: Final = "/jobs"
_SAFE_PATH = re.compile(r"/(?![/\\])[A-Za-z0-9_.~!$&'()*+,;=:@%/?-]{0,500}", re.ASCII)


@dataclass(frozen=True)
class Visitor:
    """A browser: `owner` is None until it has signed in. `nonce` is what its form tokens bind.

    session: the id of the session that its cookie names, which may have ended.
    """

    nonce: str
    owner: Principal | None = None
    session: str | None = None

    @property
    def actor(self) -> Actor:
        """How a signed-in visitor is named in histories; ValueError for another."""
        if self.owner is None:
            raise ValueError("nobody has signed in")
        return self.owner.actor


class Sessions:
    """Makes and reads the cookie. One per process; the deployment's secret is read once."""

    def __init__(
        self, reports: PageReports, kept: WebSessions, clock: Clock, entropy: Entropy
    ) -> None:
        self._reports = reports
        self._kept = kept
        self._clock = clock
        self._entropy = entropy
        self._secret: str | None = None

    def visitor(self, request: Request) -> Visitor | None:
        """The visitor of a request, or None when it brings no good cookie."""
        content = self._read(request.cookies.get(COOKIE, ""))
        if content is None:
            return None
        nonce, session = content
        if session is None:
            return Visitor(nonce)
        return Visitor(nonce, self._kept.owner(digest(session), self._clock.now()), session)

    def begin(self, key: str, origin: Origin, browser: str | None) -> Visitor | None:
        """A new session of an API key under a new nonce. browser: what it calls itself, for the
        owner's list of sessions.

        None for a text that is no key, and for a key that is not good any more: a rotated key's
        former secret serves programs until they have the new one, and opens no page.
        """
        written = key.strip()
        if not is_key(written):
            return None
        session, row = self.new_session(origin, browser)
        owner = self._kept.begin(row, digest(written), origin, self._entropy.new_id())
        return None if owner is None else Visitor(self._entropy.new_token(), owner, session)

    def new_session(
        self, origin: Origin, browser: str | None, life: timedelta = SESSION_LIFE
    ) -> tuple[str, NewSession]:
        """The id of a new session, for its cookie alone, and its row; nothing is stored."""
        session, now = self._entropy.new_token(), self._clock.now()
        row = NewSession(digest(session), now, now + life, browser, origin.address)
        return session, row

    def entered(self, session: str) -> Visitor:
        """The visitor of a session that was stored just now, under a new nonce."""
        owner = self._kept.owner(digest(session), self._clock.now())
        return Visitor(self._entropy.new_token(), owner, session)

    def keep(self, request: Request, response: Response, visitor: Visitor) -> None:
        """Set the cookie."""
        response.set_cookie(
            COOKIE,
            self._serializer().dumps({"nonce": visitor.nonce, "session": visitor.session}),
            max_age=SESSION_SECONDS,
            path="/",
            secure=is_https(request),
            httponly=True,
            samesite="lax",
        )

    def end(self, visitor: Visitor | None, origin: Origin) -> None:
        """End the session for every process; nothing for a visitor whose session has ended."""
        if visitor is not None and visitor.session is not None and visitor.owner is not None:
            now, audit_id = self._clock.now(), self._entropy.new_id()
            owner = visitor.owner.from_origin(origin)
            self._kept.end(owner, digest(visitor.session), now, audit_id)

    def forget(self, request: Request, response: Response) -> None:
        """Remove the cookie."""
        response.delete_cookie(
            COOKIE, path="/", secure=is_https(request), httponly=True, samesite="lax"
        )

    def form_token(self, visitor: Visitor) -> str:
        """The token that this visitor's forms carry."""
        return self.derived("form", visitor.nonce)

    def derived(self, purpose: str, *parts: str) -> str:
        """A secret of the pages that follows from the parts, hex, 256 bits."""
        return derive(self._key(), purpose, *parts)

    def signer(self, purpose: str) -> URLSafeTimedSerializer:
        """What signs a cookie of the pages, and knows how old it is."""
        return URLSafeTimedSerializer(self._key(), salt=f"lowtide.{purpose}")

    def is_form_token(self, visitor: Visitor | None, token: str) -> bool:
        """Whether a form came from a page that this visitor was shown."""
        if visitor is None:
            return False
        expected = self.form_token(visitor)
        return hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode())

    def _read(self, cookie: str) -> tuple[str, str | None] | None:
        try:
            content: Any = self._serializer().loads(cookie, max_age=SESSION_SECONDS)
            session = content["session"]
            return str(content["nonce"]), None if session is None else str(session)
        except (BadData, KeyError, TypeError, ValueError):
            return None

    def _serializer(self) -> URLSafeTimedSerializer:
        return self.signer("session")

    def _key(self) -> str:
        if self._secret is None:
            self._secret = derive(self._reports.deployment_secret(), "pages")
        return self._secret


def is_https(request: Request) -> bool:
    """Whether the browser speaks https, to us or to a proxy before us.

    A forged header can only take the browser's own cookie away from itself.
    """
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip()
    return request.url.scheme == "https" or forwarded == "https"


def local_path(written: str | None) -> str:
    """Where to go after signing in: a path of this site, else the list of jobs."""
    if written and _SAFE_PATH.fullmatch(written) and not written.startswith("/sign-"):
        return written
    return HOME
