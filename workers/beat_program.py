"""Beat: rings each controller at its period. It loads neither settings nor controllers.

Not here: the schedule (`celery_app`), or how beat waits and rings (`beat_scheduler`).
"""

from __future__ import annotations

import sys

from workers.celery_app import make_celery
from workers.plan import USAGE_EXIT, PlanRefused, read_plan_apart


def run() -> int:
    """Run until it is told to stop; the exit code for the shell."""
    try:
        plan = read_plan_apart()
    except PlanRefused as error:
        print(error, file=sys.stderr)
        return USAGE_EXIT
    app = make_celery(plan)
    # Beat names controllers; what a ring does is not its business.
    app.conf.include = ()
    app.Beat(quiet=True).run()
    return 0
