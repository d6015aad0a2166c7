"""Controllers run in turn until none has anything to do, for tests without workers and timers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from app.orchestration.frame.controller_frame import AnyController, run_controller
from app.orchestration.frame.runtime import Runtime


def run_until_idle(
    runtime: Runtime, controllers: Sequence[AnyController], rounds_max: int = 100
) -> int:
    """Run controllers in turn until each has found no work since any found some.

    At most `rounds_max` rounds. Returns how many pieces of work were done.
    """
    done = idle = 0
    for controller in itertools.chain.from_iterable(itertools.repeat(controllers, rounds_max)):
        if idle == len(controllers):
            break
        worked = run_controller(runtime, controller)
        done += worked
        idle = 0 if worked else idle + 1
    return done
