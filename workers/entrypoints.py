"""Starts a worker or beat: `python -m workers.entrypoints worker|beat`.

As Celery's command line does, whose own imports cost 10 MB and a quarter of a second. Not here:
configuration (`celery_app`), what a ring does (`tasks`), or how beat rings (`beat_scheduler`).
"""

from __future__ import annotations

import sys
import warnings

from celery import Celery
from celery.exceptions import SecurityWarning

from app.settings import SettingsError, load_settings
from workers.celery_app import make_celery

USAGE_EXIT = 2


def main(arguments: list[str]) -> int:
    """Run the program until it is told to stop; the exit code for the shell."""
    if arguments not in (["worker"], ["beat"]):
        print("usage: python -m workers.entrypoints worker|beat", file=sys.stderr)
        return USAGE_EXIT
    try:
        app = make_celery(load_settings())
    except SettingsError as error:
        print(error, file=sys.stderr)
        return USAGE_EXIT
    return _work(app) if arguments == ["worker"] else _beat(app)


def _work(app: Celery) -> int:
    # It warns root of pickled messages; nothing but JSON is taken here.
    warnings.simplefilter("ignore", SecurityWarning)
    app.finalize()
    worker = app.Worker(
        quiet=True, without_gossip=True, without_mingle=True, without_heartbeat=True
    )
    worker.start()
    return int(worker.exitcode or 0)


def _beat(app: Celery) -> int:
    # Beat names controllers; what a ring does is not its business.
    app.conf.include = ()
    app.Beat(quiet=True).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
