"""Starts a worker or beat: `python -m workers.programs worker|beat`.

The same as `celery -A workers.celery_app worker|beat` without Celery's command line, whose own
imports cost 10 MB and a quarter of a second. Not here: configuration (`celery_app`).
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from app.ports.object_store import ObjectStoreError
from app.settings import SettingsError

USAGE_EXIT = 2


def main(arguments: list[str]) -> int:
    """Run the program until it is told to stop; the exit code for the shell."""
    if arguments not in (["worker"], ["beat"]):
        print("usage: python -m workers.programs worker|beat", file=sys.stderr)
        return USAGE_EXIT
    try:
        from workers.celery_app import app
    except (SettingsError, ObjectStoreError) as error:
        print(error, file=sys.stderr)
        return USAGE_EXIT
    return _work(app) if arguments == ["worker"] else _beat(app)


def _work(app: Any) -> int:
    from celery.exceptions import SecurityWarning

    # It warns root of pickled messages; nothing but JSON is taken here.
    warnings.simplefilter("ignore", SecurityWarning)
    app.finalize()
    worker = app.Worker(
        quiet=True, without_gossip=True, without_mingle=True, without_heartbeat=True
    )
    worker.start()
    return int(worker.exitcode or 0)


def _beat(app: Any) -> int:
    app.Beat(quiet=True).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
