"""Where a request comes from, and a count of the attempts that were refused.

Lives here: the ASGI layer. A request that may change something gets its origin before a route sees
it, and its answer says the request's id. Not here: who asks (`auth`, `app.web.session`), or how
counts are stored (`refusal_counts`).
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.serving.refusal_counts import RefusalCounts
from app.domain.access.key_rules import beginning_of
from app.domain.access.principal import Origin, Principal
from app.domain.deployment.setting_lists import Network
from app.ports.entropy import Entropy

REQUEST_ID_HEADER = b"x-request-id"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_AGENTS = "/agent/"
_GIVES_SECRETS = "/secrets"
"""How the one address of agents ends that the audit has rows of."""
_ISSUERS = "/sign-in/oidc/"
"""Who comes back from an issuer of OpenID Connect begins a session with a GET."""
_REFUSED = frozenset({401, 403, 429})
_UNKNOWN = "unknown"


class RequestOrigins:
    """The layer. What it needs is in the app's state once the app has started."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. Agents are no people: theirs are neither told apart nor counted, but
        where they ask for secrets.
        """
        if scope["type"] != "http" or _is_untold(scope["path"]):
            await self._app(scope, receive, send)
            return
        parts = scope["app"].state.parts
        state = scope.setdefault("state", {})
        origin: Origin | None = None
        if scope["method"] not in _READS or scope["path"].startswith((_ISSUERS, _AGENTS)):
            origin = state["origin"] = origin_of(scope, parts.trusted_proxies, parts.entropy)

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                if origin is not None:
                    named = (REQUEST_ID_HEADER, origin.request_id.encode())
                    message = {**message, "headers": [*message.get("headers", ()), named]}
                if message["status"] in _REFUSED or state.get("refused"):
                    _count(scope, parts.trusted_proxies, parts.refusals)
            await send(message)

        await self._app(scope, receive, answered)


def _is_untold(path: str) -> bool:
    return path.startswith(_AGENTS) and not path.endswith(_GIVES_SECRETS)


def origin_of(scope: Scope, trusted: Collection[Network], entropy: Entropy) -> Origin:
    """Where a request came from, under a new id."""
    return Origin(address_of(scope, trusted), entropy.new_id().hex)


def address_of(scope: Scope, trusted: Collection[Network]) -> str:
    """The client's address: the peer's, or what a trusted proxy says of its own peer."""
    client = scope.get("client")
    peer = _UNKNOWN if client is None else str(client[0])
    if not trusted or not _is_in(peer, trusted):
        return peer
    told = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    # The last one is the trusted proxy's own; whatever stands before it was sent by the client.
    last = told[-1].decode("latin-1").rpartition(",")[2].strip() if told else ""
    return last if _is_address(last) else peer


def _is_in(address: str, networks: Collection[Network]) -> bool:
    if not _is_address(address):
        return False
    found = ip_address(address)
    return any(found in network for network in networks)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _count(scope: Scope, trusted: Collection[Network], refusals: RefusalCounts) -> None:
    state = scope["state"]
    principal: Principal | None = state.get("principal")
    route = getattr(scope.get("route"), "path", _UNKNOWN)
    prefix = state.get("key_prefix") or _sent_prefix(scope)
    if not prefix and principal is not None and principal.person_id is not None:
        # In a session that belongs to no key.
        prefix = f"person:{principal.person_id}"
    refusals.count(
        address_of(scope, trusted),
        prefix,
        None if principal is None else principal.key_id,
        f"{scope['method']} {route}",
    )


def _sent_prefix(scope: Scope) -> str:
    sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    key = sent.decode("latin-1").partition(" ")[2].strip()
    return beginning_of(key)
