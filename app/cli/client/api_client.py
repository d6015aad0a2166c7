"""One connection to the api for one command: JSON in, JSON out, every failure a sentence.

Lives here: time limits, the key, retries of what is safe to repeat, and how a refusal of the api
becomes a CommandFailed. Not here: where the address comes from (`server_address`), or what a route
is for (the commands).
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from app.cli.client.failures import (
    ADVICE,
    BAD_INPUT,
    UNREACHABLE,
    CommandFailed,
    Effect,
    unanswered,
)
from app.cli.client.local_run import LocalRun, RunPhase, look_at_run, still_starting
from app.cli.client.server_address import API_ROOT, AddressSource, Server, is_loopback
from app.cli.client.url_scheme import answered_without_tls, other_scheme, speaks_tls

if TYPE_CHECKING:
    import httpx

_TRIES: Final = 3
_WAIT_BETWEEN_TRIES_SECONDS: Final = 0.5
_PAGES_MAX: Final = 1_000
_PAGE_ITEMS_MAX: Final = 200
_CHECK_SECONDS: Final = 400.0
_STATE_DIR: Final = "If it was started with --state-dir, set LOWTIDE_STATE_DIR to the same folder"
_BUSY: Final = 503
"""The api's answer when it has done nothing and may be asked again."""
_OF_A_PROXY: Final = frozenset({500, 502, 503, 504})
"""What a proxy before the api may answer in its place, without the api's reason."""
Query = Mapping[str, Any]
"""Text, numbers, booleans or lists of text; None leaves the parameter out."""


class ApiClient:
    """Used as a context manager. Paths are below /api/v1. Every method raises CommandFailed:
    exit code 3 when the api cannot be reached or fails itself, 2 when it refuses what was asked.
    """

    def __init__(self, server: Server, *, timeout_seconds: float = 20.0) -> None:
        import httpx

        headers = {"Accept": "application/json", "User-Agent": "lowtide-cli"}
        if server.key is not None:
            if not (server.key.isascii() and server.key.isprintable()):
                raise CommandFailed("the key holds characters that no key has; copy it again")
            headers["Authorization"] = f"Bearer {server.key}"
        self._server = server
        try:
            _ = urlsplit(server.url).port  # httpx takes one that is out of range
            self._http = httpx.Client(
                base_url=server.url,
                headers=headers,
                timeout=httpx.Timeout(timeout_seconds, connect=5.0),
                follow_redirects=False,
                verify=_authorities(server.url),
                # A proxy of the environment is for the world outside, not for this machine.
                trust_env=not is_loopback(server.url),
            )
        except (httpx.InvalidURL, ValueError) as error:
            whose = f"; correct {server.chosen_by}" if server.chosen_by else ""
            raise CommandFailed(f"{server.url!r} is not an address: {error}{whose}") from error
        except OSError as error:
            raise CommandFailed(f"SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {error}") from error

    @property
    def url(self) -> str:
        """The api's address, for people."""
        return self._server.url

    def enter_project(self, name: str) -> None:
        """Let every further request be in this project; the api says whether the key opens it."""
        if not (name.isascii() and name.isprintable()):
            raise CommandFailed(f"there is no project {name!r}: names are of a-z, 0-9 and '-'")
        self._http.headers["Lowtide-Project"] = name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(self, path: str, query: Query | None = None) -> Any:
        """The JSON answer; tried up to three times."""
        return self._json(self._ask("GET", path, Effect.NONE, params=_given(query)))

    def get_raw(self, path: str, query: Query | None = None) -> httpx.Response:
        """The answer as it is, for CSV and logs."""
        return self._ask("GET", path, Effect.NONE, params=_given(query))

    def texts(self, path: str, query: Query | None = None) -> Iterator[str]:
        """The pieces of a long text, as they come; asked for once."""
        import httpx

        try:
            with self._http.stream("GET", f"{API_ROOT}{path}", params=_given(query)) as answer:
                if not answer.is_success:
                    answer.read()
                yield from self._checked(answer).iter_text()
        except httpx.ConnectError as error:
            raise self._unreachable(error) from error
        except httpx.TransportError as error:
            told = unanswered(self.url, error, self._http.timeout, 1, Effect.NONE)
            raise CommandFailed(told, UNREACHABLE) from error

    def pages(
        self, path: str, query: Query | None = None, *, limit: int, turn: str = "cursor"
    ) -> list[Any]:
        """The first `limit` items of a list, part by part; `turn` is the parameter that takes a
        part's `next`.
        """
        items: list[Any] = []
        asked = dict(query or {})
        for _ in range(_PAGES_MAX):
            asked["limit"] = min(limit - len(items), _PAGE_ITEMS_MAX)
            page = self.get(path, asked)
            if not isinstance(page, dict) or not {"items", "next"} <= page.keys():
                raise self._no_lowtide("answered with something other than a list from Lowtide")
            items += page["items"]
            if page["next"] is None or len(items) >= limit:
                break
            asked[turn] = page["next"]
        return items

    def post(
        self,
        path: str,
        body: object = None,
        *,
        idempotency_key: str | None = None,
        only_asks: bool = False,
    ) -> Any:
        """The JSON answer. only_asks: the api changes nothing.

        Repeated after no answer or a broken connection only then, or under an idempotency key.
        """
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        changes = Effect.UNKNOWN if idempotency_key is None else Effect.ONCE
        effect = Effect.NONE if only_asks else changes
        return self._json(self._ask("POST", path, effect, json=body, headers=headers))

    def put(self, path: str, body: object) -> Any:
        """The JSON answer; not repeated, as a person may have changed it in between."""
        return self._json(self._ask("PUT", path, Effect.UNKNOWN, json=body))

    def exists(self, path: str) -> bool:
        """Whether HEAD finds something there."""
        try:
            self._ask("HEAD", path, Effect.NONE)
        except CommandFailed as failure:
            if failure.status == 404:
                return False
            raise
        return True

    def upload(self, path: str, content: Iterator[bytes], size_bytes: int) -> None:
        """PUT a file of so many bytes; the time limit is for each piece, and a longer one for the
        answer: the api checks the file first, perhaps after others.
        """
        headers = {"Content-Length": str(size_bytes), "Content-Type": "application/gzip"}
        usual = self._http.timeout
        limits = (usual.connect, _CHECK_SECONDS, usual.write, usual.pool)
        effect = Effect.SAME_AGAIN  # the content is read once, so that a person does it
        self._ask("PUT", path, effect, content=content, headers=headers, timeout=limits)

    def _ask(self, method: str, path: str, effect: Effect, **request: Any) -> httpx.Response:
        import httpx

        tries = _TRIES if effect.may_repeat else 1
        for left in reversed(range(tries)):
            try:
                response = self._http.request(method, f"{API_ROOT}{path}", **request)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
                # Nothing listens: trying again at once would only delay the sentence.
                raise self._unreachable(error) from error
            except httpx.TransportError as error:
                if left == 0:
                    limits = httpx.Timeout(request.get("timeout", self._http.timeout))
                    told = unanswered(self.url, error, limits, tries, effect)
                    found = self._of_local_run()
                    if found is None and (right := self._https_address(error)):
                        found = self._wrong_scheme(right)
                    raise found or CommandFailed(told, UNREACHABLE) from error
            else:
                if left == 0 or response.status_code != _BUSY:
                    return self._checked(response)
            time.sleep(_WAIT_BETWEEN_TRIES_SECONDS)
        raise AssertionError("unreachable: the last try returns or raises")

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if response.is_success:
            return response
        status = response.status_code
        problem = _problem_of(response)
        asked = str(problem.get("instance") or API_ROOT)
        if status not in _OF_A_PROXY and not (problem and asked.startswith(API_ROOT)):
            # Another program, ours at another path than is written, or with another scheme.
            if right := self._https_address(response):
                raise self._wrong_scheme(right)
            raise self._no_lowtide(f"answered {status}", status)
        if status == 401:
            raise CommandFailed(self._about_the_key(), status=status)
        if status >= 500:
            reason = problem.get("detail") or (
                "it gave no reason, as Lowtide does: a proxy before it may have answered, or "
                "another program; try again, or read its log. If no Lowtide should be there, "
                f"{self._server.chosen_by.remedy}"
            )
            raise CommandFailed(
                f"{self.url} failed ({status}): {reason}", UNREACHABLE, status=status
            )
        problems = [
            {str(name): str(value) for name, value in error.items()}
            for error in problem.get("errors") or ()
            if isinstance(error, dict)
        ]
        # The detail of several problems is their sentences in one line; below, each has its own.
        several = len(problems) > 1
        sentence = problem.get("title" if several else "detail") or f"it was refused ({status})"
        if not several and problems and (advice := ADVICE.get(problems[0].get("advice", ""))):
            # The detail advises in the words of the api.
            sentence = f"{problems[0]['message']}; {advice}"
        raise CommandFailed(
            f"{sentence}:" if several else str(sentence),
            BAD_INPUT,
            problems=problems if several else (),
            status=status,
            field=problems[0].get("field", "") if len(problems) == 1 else "",
        )

    def _about_the_key(self) -> str:
        server = self._server
        another = ""
        if server.chosen_by is AddressSource.VARIABLE:
            remedy = server.chosen_by.remedy
            another = f". LOWTIDE_SERVER_URL names this address; if another is meant, {remedy}"
        if server.key is None:
            here = "run this in the folder of `lowtide up`, " if is_loopback(self.url) else ""
            elsewhere = f". {_STATE_DIR}" if here else ""
            return (
                f"{self.url} asks for a key and there is none: {here}"
                f"run `lowtide login {self.url}`, or set LOWTIDE_API_KEY{elsewhere}{another}"
            )
        where, remedy = "", f"run `lowtide login {self.url}` with another one"
        if server.key_in_variable:
            # It comes before the key of `lowtide login`.
            where = " in LOWTIDE_API_KEY"
            remedy = f"correct the variable, or unset it and run `lowtide login {self.url}`"
        return (
            f"{self.url} does not know the key{where}, or it has expired or was revoked: "
            f"{remedy}{another}"
        )

    def _https_address(self, refused: httpx.Response | httpx.TransportError) -> str | None:
        """Where https is spoken in place of this http address, if that is why it fails."""
        import httpx

        if not self.url.startswith("http://"):
            return None
        if isinstance(refused, httpx.Response):
            led = refused.next_request
            if led is not None and led.url.scheme == "https":
                ours = led.url.host == self._http.base_url.host
                return f"https://{led.url.netloc.decode('ascii')}" if ours else None
            if refused.status_code != HTTPStatus.BAD_REQUEST:
                return None
        elif isinstance(refused, httpx.TimeoutException):
            return None
        return other_scheme(self.url) if speaks_tls(self.url) else None

    def _wrong_scheme(self, right: str) -> CommandFailed:
        spoken, written = urlsplit(right).scheme, urlsplit(self.url).scheme
        sets = f" ({source} sets this address)" if (source := self._server.chosen_by) else ""
        return CommandFailed(
            f"the server at {self.url} speaks {spoken}, not {written}: try {right}{sets}",
            UNREACHABLE,
        )

    def _unreachable(self, error: Exception) -> CommandFailed:
        if answered_without_tls(error):
            return self._wrong_scheme(other_scheme(self.url))
        if (of_run := self._of_local_run()) is not None:
            return of_run
        local = is_loopback(self.url)
        # "[Errno 111] Connection refused": the number tells a person nothing.
        reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
        return CommandFailed(
            f"the api at {self.url} cannot be reached ({reason}). {self._about_the_address(local)}",
            UNREACHABLE,
        )

    def _of_local_run(self) -> CommandFailed | None:
        """What a `lowtide up` of this machine is doing, where that is why it does not answer."""
        run = self._local_run() if is_loopback(self.url) else None
        if run is None:
            return None
        if run.phase is RunPhase.STARTING:
            return still_starting(run)
        return CommandFailed(
            f"the api at {self.url} cannot be reached: {run.sentence}. To do: {run.remedy}.",
            UNREACHABLE,
        )

    def _about_the_address(self, local: bool) -> str:
        chosen_by = self._server.chosen_by
        another = f"If another address is meant, {chosen_by.remedy}."
        if chosen_by is not AddressSource.NOTHING:
            # It comes before the address of a `lowtide up`, so no state folder would change it.
            return f"{chosen_by} sets this address, even while `lowtide up` runs here. {another}"
        if local:
            return f"Does `lowtide up` run from this folder? {_STATE_DIR}. {another}"
        return another

    def _local_run(self) -> LocalRun | None:
        """A `lowtide up` that this address means, and that has something to say for it."""
        for folder in self._server.folders:
            try:
                run = look_at_run(folder)
            except OSError:  # another user's folder
                continue
            # Before it is ready, nothing says which address it will have.
            if run.needs_a_remedy and run.address in (None, self.url):
                return run
        return None

    def _no_lowtide(self, what: str, status: int | None = None) -> CommandFailed:
        parts = urlsplit(self.url)
        how = f"write it without a path, as {parts.scheme}://{parts.netloc}" if parts.path else ""
        return CommandFailed(
            f"{self.url} {what}: it is not the address of a Lowtide api; "
            f"{how or self._server.chosen_by.remedy}",
            UNREACHABLE,
            status=status,
        )

    def _json(self, response: httpx.Response) -> Any:
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise self._no_lowtide("did not answer with JSON") from error


def _authorities(url: str) -> ssl.SSLContext:
    """Whom to trust: the public ones, or those of SSL_CERT_FILE and SSL_CERT_DIR, also for an api
    of this machine; nobody where no TLS is spoken, as reading them takes 40 ms. Raises OSError.
    """
    import httpx

    if url.startswith("http://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.create_ssl_context()


def _given(query: Query | None) -> dict[str, Any]:
    return {name: value for name, value in (query or {}).items() if value is not None}


def _problem_of(response: httpx.Response) -> dict[str, Any]:
    """What the api says is wrong; empty where it is not our api that answers."""
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return {}
    try:
        problem = response.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
