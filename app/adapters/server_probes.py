"""Asking a deployment's own servers how they are: database, Redis, and the public address.

Here: one bounded look at each, as a result. Not here: which of them are looked at
(`app.cli.server.doctor_command`), or what else is checked
(`app.orchestration.deployment.diagnose`).
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import httpx
import psycopg

from app.adapters.redis_ping import redis_problem
from app.domain.deployment.check_result import CheckResult, clock_check, warning
from app.domain.units.durations import format_duration
from app.storage.session.revision import mark_of, newest_revision, serves_this_release

_SECONDS: Final = 10.0
_ANSWER_BYTES_MAX: Final = 65_536
_MIGRATE: Final = "run `lowtide migrate` (or `lowtide up`, which does it)"
_DAYS_LEFT_MIN: Final = 14
_PUBLIC_CERTIFICATE: Final = "give the proxy a certificate of a public authority"
_CHAIN: Final = (
    "its issuer is not a public authority, or the proxy leaves the intermediate certificates out",
    "give the proxy a certificate of a public authority, with its full chain",
)
_UNTRUSTED: Final = {
    9: ("it is not valid yet", "set the clocks by NTP, or wait for its first day"),
    10: ("it has expired", "renew it"),
    18: ("it is signed by itself", _PUBLIC_CERTIFICATE),
    19: ("its root is a private authority", _PUBLIC_CERTIFICATE),
    20: _CHAIN,
    21: _CHAIN,
    62: ("it is for another host name", "get one for the host name of LOWTIDE_PUBLIC_URL"),
    64: ("it is for a name, not for this address", "use the name in LOWTIDE_PUBLIC_URL"),
}
"""X509_V_ERR codes of OpenSSL (X509_STORE_CTX_get_error), as sentences."""

_BEGIN_ANEW: Final = "use the version that made it, or an empty database"


def probe_database(url: str) -> tuple[CheckResult, ...]:
    """Whether PostgreSQL at a `postgresql+psycopg://` URL answers and has our schema; its clock."""
    driver_url = url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        with psycopg.connect(driver_url, connect_timeout=int(_SECONDS)) as connection:
            row = connection.execute("SELECT clock_timestamp()").fetchone()
            ours = datetime.now(UTC)
            assert row is not None
            (theirs,) = row
            mark = mark_of(connection)
    except psycopg.Error as error:
        return (
            CheckResult(
                "database",
                False,
                f"does not answer: {str(error).strip().split(chr(10), 1)[0]}",
                "start PostgreSQL, or correct LOWTIDE_DATABASE_URL",
            ),
        )
    newest = newest_revision()
    clock = clock_check("database: clock", ours, theirs)
    if mark is not None and not mark.is_ours:
        told = f"its schema {mark.revision} was made by another development version"
        return CheckResult("database", False, told, _BEGIN_ANEW), clock
    if mark is not None and serves_this_release(mark.revision):
        of = "" if mark.revision == newest else ", of a newer release"
        return CheckResult("database", True, f"answers; its schema is {mark.revision}{of}"), clock
    revision = "empty" if mark is None else mark.revision
    told = f"its schema is {revision}, this release needs {newest}"
    return CheckResult("database", False, told, _MIGRATE), clock


def probe_redis(url: str) -> tuple[CheckResult, ...]:
    """Whether Redis or Valkey answers a PING."""
    problem = redis_problem(url, _SECONDS)
    if problem is not None:
        told = f"does not answer: {problem}"
        return (
            CheckResult(
                "valkey", False, told, "start Redis or Valkey, or correct LOWTIDE_REDIS_URL"
            ),
        )
    return (CheckResult("valkey", True, "answers"),)


def probe_public_url(
    url: str, authorities: ssl.SSLContext | None = None
) -> tuple[CheckResult, ...]:
    """Whether the api answers at the address that machines use, as itself; TLS, and its clock.

    Looked at from this machine: what stands between it and a cloud's network is not seen. A
    machine trusts public authorities alone, so those of this machine do not count. authorities:
    others, for tests.
    """
    name = "public URL"
    parts = urlsplit(url)
    host = parts.hostname or ""
    found: list[CheckResult] = []
    connection = http.client.HTTPConnection(host, parts.port, timeout=_SECONDS)
    if parts.scheme == "https":
        context = authorities or httpx.create_ssl_context(trust_env=False)
        connection = http.client.HTTPSConnection(
            host, parts.port, timeout=_SECONDS, context=context
        )
    elif not _is_loopback(host):
        told = f"{url} is plain http: keys and tokens cross the network readable by anybody"
        found.append(warning(f"{name}: TLS", told, "put a proxy with a certificate before the api"))
    try:
        connection.connect()
        if isinstance(connection.sock, ssl.SSLSocket):
            found.append(_lifetime(f"{name}: TLS", host, connection.sock))
        connection.request("GET", f"{parts.path.rstrip('/')}/healthz")
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
        stated = answer.getheader("Date")
    except ssl.SSLCertVerificationError as error:
        return (*found, _untrusted(f"{name}: TLS", url, error))
    except ssl.SSLError as error:
        told = f"{url} does not speak TLS: {error.reason or error}"
        return (*found, CheckResult(f"{name}: TLS", False, told, "let the proxy serve https there"))
    except (OSError, http.client.HTTPException) as error:
        told = f"{url} cannot be reached: {error}"
        remedy = "start the api behind that address: DNS, firewall, port 443"
        return (*found, CheckResult(name, False, told, remedy))
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK or not _is_lowtide(body):
        told = f"{url} answers {answer.status}, but not as Lowtide"
        return (
            *found,
            CheckResult(name, False, told, "let the proxy pass every path on to the api"),
        )
    found.append(CheckResult(name, True, f"{url} answers as Lowtide"))
    if stated is not None:
        ours = datetime.now(UTC).replace(microsecond=0)
        found.append(clock_check(f"{name}: clock", ours, parsedate_to_datetime(stated)))
    return tuple(found)


def _lifetime(name: str, host: str, link: ssl.SSLSocket) -> CheckResult:
    """Of a certificate that is valid: for how long it will be."""
    ends = str((link.getpeercert() or {}).get("notAfter", ""))
    if not ends:
        return CheckResult(name, True, f"the certificate of {host} is valid")
    at = datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC)
    left = at - datetime.now(UTC)
    ahead = format_duration(left.total_seconds())
    told = f"the certificate of {host} is valid for another {ahead}, to machines too"
    if left.days >= _DAYS_LEFT_MIN:
        return CheckResult(name, True, told)
    remedy = "renew it now, and see why that does not happen by itself"
    return warning(name, told, remedy)


def _untrusted(name: str, url: str, error: ssl.SSLCertVerificationError) -> CheckResult:
    """Why a machine would refuse the certificate, by OpenSSL's code."""
    why, remedy = _UNTRUSTED.get(
        error.verify_code, (error.verify_message or str(error), _PUBLIC_CERTIFICATE)
    )
    told = f"{url} has no certificate that machines would trust: {why}"
    return CheckResult(name, False, told, remedy)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_lowtide(body: bytes) -> bool:
    try:
        document = json.loads(body)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("status") == "ok"
