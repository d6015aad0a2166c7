"""Through which threads each controller acts: those of its queue, or its own.

Not here: the threads on which runs wait for their effects (`controller_threads`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.adapters.thread_effects import ThreadEffects
from app.orchestration.frame.controller_frame import AnyController
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.schedule import SENDING_THREADS
from app.orchestration.frame.tell_channels import SENDER


class ControllerRuntimes:
    """The runtimes of one worker, which differ in their effects alone."""

    def __init__(self, runtime: Runtime) -> None:
        """runtime: of controllers that call clouds."""
        self._by_name: Mapping[str, Runtime] = {
            # Hosts that people name may hang: they take no thread from the calls to clouds.
            SENDER: replace(runtime, effects=ThreadEffects(SENDING_THREADS)),
        }
        self._by_queue = {
            "cloud": runtime,
            # Their whole effect is a transaction: one by one, they never wait for each other.
            "quick": replace(runtime, effects=ThreadEffects(1)),
        }

    def of(self, controller: AnyController) -> Runtime:
        """What the controller acts through."""
        return self._by_name.get(controller.name) or self._by_queue[controller.queue]
