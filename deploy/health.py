"""Health checks of the containers: `health.py api|worker|beat` ends with 0, or says what is wrong.

A process that lives may still hang, so each program is judged by what others see of it: the api by
its answer, a worker by its last statement in PostgreSQL (it looks at its rows every 10 s), beat by
its last command in Valkey (it rings every 5 s). Loads nothing of Lowtide: it runs every few
seconds. Not here: how often, and what follows (docker-compose.yml).
"""

from __future__ import annotations

import os
import sys
import urllib.request

TIMEOUT_SECONDS = 4
SILENCE_SECONDS_MAX = 60
_API = "http://127.0.0.1:8400/readyz"
# The check comes from the same container, so its own address is the program's.
_LAST_STATEMENT = """
    SELECT extract(epoch FROM clock_timestamp() - max(state_change))
    FROM pg_stat_activity
    WHERE application_name = 'lowtide-worker' AND client_addr = inet_client_addr()
"""


class Unhealthy(Exception):
    """The program does not do its work; the message says how that shows."""


def check_api() -> None:
    """The api answers and its database is ready for it."""
    # Never through a proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(_API, timeout=TIMEOUT_SECONDS):
        pass


def check_worker() -> None:
    """A worker at this address has used the database lately."""
    import psycopg

    url = os.environ["LOWTIDE_DATABASE_URL"].replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(url, connect_timeout=TIMEOUT_SECONDS) as connection:
        row = connection.execute(_LAST_STATEMENT).fetchone()
    _refuse_silence("worker", "PostgreSQL", None if row is None else row[0])


def check_beat() -> None:
    """A client at this address, other than this check, has used Valkey lately."""
    import redis

    url = os.environ["LOWTIDE_REDIS_URL"]
    with redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    ) as valkey:
        own_id = valkey.client_id()
        clients = valkey.client_list()
    address = next(_host(one) for one in clients if int(one["id"]) == own_id)
    idle = [
        float(one["idle"]) for one in clients if _host(one) == address and int(one["id"]) != own_id
    ]
    _refuse_silence("beat", "Valkey", min(idle, default=None))


def _refuse_silence(program: str, server: str, seconds: float | None) -> None:
    if seconds is None:
        raise Unhealthy(f"{program} has no connection to {server}")
    if seconds > SILENCE_SECONDS_MAX:
        raise Unhealthy(f"{program} has asked {server} nothing for {seconds:.0f} s")


def _host(client: dict[str, str]) -> str:
    return client["addr"].rpartition(":")[0]


CHECKS = {"api": check_api, "worker": check_worker, "beat": check_beat}


def main(arguments: list[str]) -> int:
    """0 when healthy, 1 when not, 2 for a wrong argument."""
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        print(f"usage: health.py {'|'.join(CHECKS)}", file=sys.stderr)
        return 2
    try:
        CHECKS[arguments[0]]()
    except Exception as error:
        # Whatever it is, Docker keeps the line beside the verdict.
        print(f"{arguments[0]}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
