"""Asking a deployment's own servers how they are: database, Redis, and the public address.

Here: one bounded look at each, as a finding. Not here: which of them are looked at
(`app.cli.doctor`), or what else is checked (`app.orchestration.diagnose`).
"""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import psycopg

from app.adapters.postgres.revision import mark_of, newest_revision
from app.adapters.redis_list import RedisAway, RedisList
from app.domain.finding import Finding, clock_finding

_SECONDS: Final = 10.0
_ANSWER_BYTES_MAX: Final = 65_536
_MIGRATE: Final = "run `lowtide migrate` (or `lowtide up`, which does it)"
_BEGIN_ANEW: Final = "use the version that made it, or an empty database"


def probe_database(url: str) -> tuple[Finding, ...]:
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
            Finding(
                "database",
                False,
                f"does not answer: {str(error).strip().split(chr(10), 1)[0]}",
                "start PostgreSQL, or correct LOWTIDE_DATABASE_URL",
            ),
        )
    newest = newest_revision()
    clock = clock_finding("database: clock", ours, theirs)
    if mark is not None and not mark.is_ours:
        told = f"its schema {mark.revision} was made by another development version"
        return Finding("database", False, told, _BEGIN_ANEW), clock
    if mark is not None and mark.revision == newest:
        return Finding("database", True, f"answers; its schema is {newest}"), clock
    revision = "empty" if mark is None else mark.revision
    told = f"its schema is {revision}, this release needs {newest}"
    return Finding("database", False, told, _MIGRATE), clock


def probe_redis(url: str) -> tuple[Finding, ...]:
    """Whether Redis or Valkey answers a PING."""
    try:
        with closing(RedisList(url, _SECONDS)) as redis:
            redis.ping()
    except RedisAway as error:
        told = f"does not answer: {error}"
        return (
            Finding("valkey", False, told, "start Redis or Valkey, or correct LOWTIDE_REDIS_URL"),
        )
    return (Finding("valkey", True, "answers"),)


def probe_public_url(url: str) -> tuple[Finding, ...]:
    """Whether the api answers at the address that machines use, as itself, and its clock.

    Looked at from this machine: what stands between it and a cloud's network is not seen.
    """
    name = "public URL"
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=_SECONDS)
        if secure
        else http.client.HTTPConnection(host, parts.port, timeout=_SECONDS)
    )
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/healthz")
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
        stated = answer.getheader("Date")
    except ssl.SSLError as error:
        told = f"{url} has no certificate that machines would trust: {error.reason or error}"
        return (Finding(name, False, told, "give the proxy a certificate of a public authority"),)
    except (OSError, http.client.HTTPException) as error:
        told = f"{url} cannot be reached: {error}"
        return (
            Finding(
                name, False, told, "start the api behind that address: DNS, firewall, port 443"
            ),
        )
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK or not _is_lowtide(body):
        told = f"{url} answers {answer.status}, but not as Lowtide"
        return (Finding(name, False, told, "let the proxy pass every path on to the api"),)
    found = [Finding(name, True, f"{url} answers as Lowtide")]
    if stated is not None:
        ours = datetime.now(UTC).replace(microsecond=0)
        found.append(clock_finding(f"{name}: clock", ours, parsedate_to_datetime(stated)))
    return tuple(found)


def _is_lowtide(body: bytes) -> bool:
    try:
        document = json.loads(body)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("status") == "ok"
