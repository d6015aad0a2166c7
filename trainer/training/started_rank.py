"""A rank from its first moment on: what it knows and can say before PyTorch is loaded.

Lives here: its markers, its progress and its ending. Not here: the loop (``rank_loop``), or the
order in which a rank starts (``train``).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.training import drain
from trainer.training.gang import ending
from trainer.training.gang.ending import Ending
from trainer.training.gang.rank_environment import RankEnvironment
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import ProgressLog, reached_step
from trainer.training.reporting.step_lines import show_on_terminal
from trainer.training.training_errors import ONE_LINE_ERRORS


@dataclass(frozen=True)
class StartedRank:
    """One rank's process. ``config_path`` is the JSON file of the run; ``place`` moves with it."""

    config_path: Path
    environment: RankEnvironment
    progress: ProgressLog
    place: Place
    stop: drain.StopRequest

    def failed(self, error: Exception, lost_a_peer: Callable[[], bool] = lambda: False) -> Ending:
        """The ending that an error makes, said on stderr and in the progress.

        lost_a_peer: looks whether another rank has gone; see ``ending.failure``.
        """
        result = ending.failure(error, self.place.step, lost_a_peer)
        kind = result.error.kind if result.error is not None else ""
        if kind == "peer_communication" and self.stop.nothing_to_save:
            # Every rank ends by itself then, and this one saw another do so a moment earlier.
            result = Ending("drained", self.place.step, ending.EXIT_DRAINED)
        elif isinstance(error, ONE_LINE_ERRORS):
            print(f"error: {error}", file=sys.stderr)
        elif kind == "peer_communication":  # its own stack says nothing of what happened there
            print(f"error: another rank went away: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        if result.error is not None:
            self.progress.write("error", kind=kind, message=result.error.message)
        return result

    def ended(self, result: Ending) -> Ending:
        """Write how it ended: the marker that counts, then the progress."""
        ending.write_ending(self.environment, result)
        scores = self.place.metrics if result.outcome == "finished" else {}
        self.progress.write(
            "end", outcome=result.outcome, step=result.step, reason=result.reason, **scores
        )
        return result


def start_rank(
    config_path: Path, environment: RankEnvironment, stop: drain.StopRequest, *, fresh: bool
) -> StartedRank:
    """Say that this rank has started. Needs no PyTorch, so that a stop is heard meanwhile.

    fresh: it starts anew instead of from the newest checkpoint.
    """
    if environment.under_torchrun:
        drain.die_with_launcher()
    ending.write_started(environment)
    if environment.node_rank == 0:
        environment.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    progress = ProgressLog(
        environment.progress_file if environment.local_rank == 0 else None,
        phases_only=environment.rank != 0,
        reached_step=0 if fresh else reached_step(environment.progress_file, os.environ),
    )
    if environment.rank == 0:
        show_on_terminal(progress)
    progress.phase("boot", 0)
    place = Place()

    def end_early() -> None:
        ending.write_ending(environment, Ending("drained", place.step, ending.EXIT_DRAINED))
        os._exit(ending.EXIT_DRAINED)

    stop.end_early_by(end_early)
    return StartedRank(config_path, environment, progress, place, stop)
