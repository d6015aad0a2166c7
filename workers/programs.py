"""Starts a worker or beat: `python -m workers.programs worker|beat`.

The same as `celery -A workers.celery_app worker|beat` without Celery's command line, whose own
imports cost 10 MB and a quarter of a second. Not here: configuration (`celery_app`).
"""

from __future__ import annotations

import sys
import warnings

from workers.plan import PlanRefused, read_plan_apart

USAGE_EXIT = 2


def main(arguments: list[str]) -> int:
    """Run the program until it is told to stop; the exit code for the shell."""
    if arguments not in (["worker"], ["beat"]):
        print("usage: python -m workers.programs worker|beat", file=sys.stderr)
        return USAGE_EXIT
    return _work() if arguments == ["worker"] else _beat()


def _work() -> int:
    from celery.exceptions import SecurityWarning

    from app.settings import SettingsError

    try:
        from workers.celery_app import app
    except SettingsError as error:
        print(error, file=sys.stderr)
        return USAGE_EXIT
    # It warns root of pickled messages; nothing but JSON is taken here.
    warnings.simplefilter("ignore", SecurityWarning)
    app.finalize()
    worker = app.Worker(
        quiet=True, without_gossip=True, without_mingle=True, without_heartbeat=True
    )
    worker.start()
    return int(worker.exitcode or 0)


def _beat() -> int:
    try:
        read_plan_apart()
    except PlanRefused as error:
        print(error, file=sys.stderr)
        return USAGE_EXIT
    from workers.celery_app import app

    # Beat names controllers; what a ring does is not its business.
    app.conf.include = ()
    app.Beat(quiet=True).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
