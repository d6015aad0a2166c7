"""Whether Redis or Valkey answers: what `doctor` and `/readyz` ask.

Not here: rings (`celery_wakeups`).
"""

from __future__ import annotations


def redis_problem(url: str, timeout_seconds: float) -> str | None:
    """Why Redis cannot be used, or None when it answers a PING. Tried once."""
    # Not every program that can ask does ask.
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        with redis.Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as error:
        return str(error)
    return None
