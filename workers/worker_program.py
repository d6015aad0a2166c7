"""The worker: Celery takes rings off their queues, controllers run on threads of our own.

Not here: the configuration (`celery_app`), or what a ring does (`tasks`).
"""

from __future__ import annotations

import sys
import warnings

from celery.exceptions import SecurityWarning

from app.settings import SettingsError
from workers.celery_app import make_celery
from workers.plan import USAGE_EXIT
from workers.read_plan import read_plan


def run() -> int:
    """Run until it is told to stop; the exit code for the shell."""
    try:
        plan = read_plan()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return USAGE_EXIT
    # It warns root of pickled messages; nothing but JSON is taken here.
    warnings.simplefilter("ignore", SecurityWarning)
    app = make_celery(plan)
    app.finalize()
    worker = app.Worker(
        quiet=True, without_gossip=True, without_mingle=True, without_heartbeat=True
    )
    worker.start()
    return int(worker.exitcode or 0)
