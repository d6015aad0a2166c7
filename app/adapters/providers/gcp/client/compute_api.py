"""Calls to Compute Engine: clients on one endpoint, a timeout and a retry rule for each call.

Every client that the adapter uses is made here, on the same endpoint; the client's own `result()`
is never used, as it polls through another client on Google's address. Reads are repeated for a
bounded time, changes never: who changes has a token to ask again with. Not here: what is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import requests
from google.api_core import exceptions as api_errors
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry, if_exception_type
from google.auth import exceptions as auth_errors
from google.cloud import compute_v1
from google.protobuf.json_format import ParseError

from app.adapters.call_pace import PACE_SECONDS_MAX
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.client.google_credentials import (
    find_credentials,
    first_line,
    unsigned,
)
from app.adapters.providers.gcp.client.refusals import GceError, of_http
from app.ports.cloud_provider import ProviderError, RefusalKind

_PAGES_MAX: Final = 500
_MARKS: Final = ("kind", "id", "self_link")
_AGAIN: Final = if_exception_type(
    api_errors.TooManyRequests,
    api_errors.InternalServerError,
    api_errors.BadGateway,
    api_errors.ServiceUnavailable,
    api_errors.GatewayTimeout,
    requests.exceptions.ConnectionError,
)


class ApiRefusal(ProviderError):
    """The API answered with an error; `refusal` says what it means."""

    def __init__(self, refusal: GceError, http_status: int) -> None:
        super().__init__(refusal.kind, f"{refusal.code}: {refusal.message}", refusal.scope)
        self.refusal = refusal
        self.http_status = http_status


class ApiLost(ProviderError):
    """No answer came: what was asked for may have been done."""

    def __init__(self, message: str) -> None:
        super().__init__(RefusalKind.UNAVAILABLE, message)


class ApiUnreadable(ApiLost):
    """A successful HTTP answer that is not the API's: truncated, or a proxy's page."""


class Deadline:
    """The end of one call of the port, its retries and pages included."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def left(self, at_most: float) -> float:
        """Seconds that a step may take. Raises ProviderError when there are none."""
        left = min(at_most, self._ends - time.monotonic())
        if left <= 0:
            raise ProviderError(RefusalKind.UNAVAILABLE, "Google Cloud took too long to answer")
        return left

    def has(self, seconds: float) -> bool:
        """Whether so much is left."""
        return self._ends - time.monotonic() >= seconds


class ComputeApi:
    """Compute Engine for one project; safe to share between threads."""

    def __init__(self, settings: GcpSettings, credentials: Any = None) -> None:
        self.settings = settings
        self._credentials = credentials
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def call_seconds(self) -> float:
        """Upper bound of one call of the port."""
        calls = 3 * self.settings.request_seconds + self.settings.operation_wait_seconds
        return calls + PACE_SECONDS_MAX

    def deadline(self) -> Deadline:
        """For one call of the port that begins now."""
        return Deadline(self.call_seconds)

    def client(self, name: str) -> Any:
        """The client of a service, such as `InstancesClient`. Raises ProviderError."""
        with self._lock:
            if name not in self._clients:
                options = None
                if self.settings.endpoint is not None:
                    options = ClientOptions(api_endpoint=self.settings.endpoint)
                kind = getattr(compute_v1, name)
                self._clients[name] = kind(credentials=self._signer(), client_options=options)
            return self._clients[name]

    def credentials(self) -> Any:
        """What signs our requests. Raises ProviderError `denied` saying what is missing."""
        with self._lock:
            return self._signer()

    def read(self, client: str, method: str, deadline: Deadline, **fields: Any) -> Any:
        """Ask, and ask again for a bounded time. Raises ApiRefusal or ApiLost."""
        seconds = deadline.left(self.settings.request_seconds)
        retry = Retry(predicate=_AGAIN, initial=0.2, maximum=2.0, multiplier=2.0, timeout=seconds)
        ask = getattr(self.client(client), method)
        with translated(f"{method} of {client}"):
            return _known(ask(self._request(fields), retry=retry, timeout=seconds))

    def pages(self, client: str, deadline: Deadline, **fields: Any) -> Iterator[Any]:
        """Every page of an aggregated list. Raises ApiRefusal or ApiLost, also between pages."""
        pager = self.read(client, "aggregated_list", deadline, **fields)
        with translated(f"aggregated_list of {client}"):
            for number, page in enumerate(pager.pages):
                yield _known(page)
                deadline.left(self.settings.request_seconds)
                if number >= _PAGES_MAX:
                    raise ProviderError(RefusalKind.UNAVAILABLE, "a list does not end")

    def change(self, client: str, method: str, deadline: Deadline, **fields: Any) -> Any:
        """Ask once. Raises ApiRefusal, or ApiLost when nobody knows whether it was done."""
        seconds = deadline.left(self.settings.request_seconds)
        ask = getattr(self.client(client), method)
        with translated(f"{method} of {client}"):
            return _known(ask(self._request(fields), retry=None, timeout=seconds))

    def wait(self, deadline: Deadline, scope: str, operation: str) -> Any:
        """The operation once it is done, or as it is after a bounded wait.

        scope: `zones/us-central1-a` or `regions/us-central1`.
        """
        ends = time.monotonic() + self.settings.operation_wait_seconds
        pause = 0.05
        while True:
            found = self.operation(deadline, scope, operation)
            done = found.status == compute_v1.Operation.Status.DONE
            if done or time.monotonic() + pause > ends:
                return found
            time.sleep(pause)
            pause = min(2.0, pause * 2)

    def operation(self, deadline: Deadline, scope: str, operation: str) -> Any:
        """The operation as it is now."""
        kind, place = scope.split("/")
        noun = kind[:-1]
        client = f"{noun.capitalize()}OperationsClient"
        return self.read(client, "get", deadline, **{noun: place, "operation": operation})

    def _request(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"project": self.settings.project, **fields}

    def _signer(self) -> Any:
        if self._credentials is None:
            self._credentials = find_credentials(self.settings)
        return self._credentials


@contextmanager
def translated(what: str) -> Iterator[None]:
    """The client's exceptions as ProviderError with a sentence."""
    try:
        yield
    except api_errors.RetryError as error:
        cause = error.cause
        if isinstance(cause, api_errors.GoogleAPICallError):
            raise _refused(cause) from error
        raise ApiLost(f"Google Cloud did not answer ({what}): {cause}") from error
    except api_errors.GoogleAPICallError as error:
        raise _refused(error) from error
    except auth_errors.TransportError as error:
        raise ApiLost(f"Google's sign-in did not answer ({what}): {first_line(error)}") from error
    except auth_errors.GoogleAuthError as error:
        raise unsigned(error) from error
    except requests.exceptions.RequestException as error:
        raise ApiLost(f"Google Cloud did not answer ({what}): {first_line(error)}") from error
    except (ParseError, UnicodeDecodeError, _NotTheirs) as error:
        raise ApiUnreadable(
            f"Google Cloud's answer cannot be read ({what}): {first_line(error)}; is there a "
            "proxy between that answers in its place?"
        ) from error


class _NotTheirs(Exception):
    """A JSON document without the marks that every answer of the API has."""


def _known(answer: Any) -> Any:
    """The answer, a page or an operation, where it is the API's. Raises _NotTheirs.

    Every resource and list says its kind (Compute Engine API reference); an empty document of
    a proxy would be a list without machines, or an operation without a name.
    """
    if isinstance(answer, compute_v1.Operation):
        marks = [answer.name]
    else:
        marks = [getattr(answer, mark) for mark in _MARKS if hasattr(answer, mark)]
    if marks and not any(marks):
        raise _NotTheirs("it is an empty document")
    return answer


def _refused(error: Any) -> ProviderError:
    return ApiRefusal(of_http(error), int(error.code or 500))
