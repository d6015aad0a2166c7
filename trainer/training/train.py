"""The training program of one rank: ``torchrun ... -m trainer.training.train --config FILE``.

``main`` listens for signals, reads the configuration, runs ``train`` and says how it ended;
``train`` is the whole loop. ``--validate`` only checks the configuration and its data.

Exit codes: 0 finished, 75 drained (stopped on request with everything saved), 65 the checkpoint to
resume from is corrupt, 2 the configuration cannot be used, 1 anything else. torchrun hides them:
``ended-rank<R>.json`` (see ``ending.py``) is what counts.

A drain before the first step of an attempt writes no checkpoint: the one that was resumed from, or
none in a fresh run, is already the whole truth.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.hooks.notice import seconds_left
from trainer.training import drain
from trainer.training.config import TrainConfig, load_config
from trainer.training.errors import ONE_LINE_ERRORS, ConfigError
from trainer.training.gang import ending
from trainer.training.gang.ending import Ending
from trainer.training.gang.rank_environment import RankEnvironment, read_rank_environment
from trainer.training.loop.learning_rate import learning_rate_at
from trainer.training.loop.target import is_best, target_reached
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import ProgressLog, reached_step
from trainer.training.reporting.terminal import show_on_terminal
from trainer.training.saving.save_schedule import SaveSchedule

if TYPE_CHECKING:
    from trainer.training.data import SampleOrder
    from trainer.training.run import RankTrainer


def train(run: RankTrainer, stop: drain.StopRequest) -> Ending:
    """Trains from the run's place to its end, or until a stop is agreed; saves either way."""
    config, gang, place, progress = run.config, run.gang, run.place, run.progress
    first_step = place.step
    run.prepare()
    schedule = SaveSchedule(config, first_step)
    progress.phase("train", place.step)

    def stop_asked() -> bool:
        return stop.requested

    stopping = gang.any(stop.requested)
    reason = target_reached(config, place.metrics)
    while not stopping:
        if evaluation_is_due(place, config, run.order, run.total_steps):
            scores = score(run, stop_asked)
            if scores is None:
                stopping = True
                break
            reason = target_reached(config, scores)
            best = is_best(config, place, scores) and config.checkpoint_keep_best
            if best and not reason and place.step < run.total_steps:
                save(run, schedule, best=True)
        if reason or place.step >= run.total_steps:
            break

        started = time.perf_counter()
        run.observer.before_step(place.step)
        learning_rate = learning_rate_at(place.step, run.total_steps, config)
        loss = run.step(learning_rate, stop_asked)
        if loss is None:  # given up before it or between two of its parts, as if not begun
            stopping = True
            break
        place.step += 1
        if config.step_delay_seconds > 0:
            time.sleep(config.step_delay_seconds)
        # One small all-reduce carries the loss, "I was asked to stop", "a save is due", "my share
        # of the last one is still on its way" (one checkpoint at a time), how long I waited for
        # the others, and "my next samples have not come".
        my_loss = run.notes.take(loss, learning_rate, started)
        save_due = gang.rank == 0 and schedule.due(place.step)
        busy = run.saving.busy
        waited, lacks = run.learner.shared.waits.take(), run.data_wait.lacks()
        loss_sum, stops, saves, savers, waited, lacking = gang.sum(
            my_loss, stop.requested, save_due, busy, waited, lacks
        )
        progress.ledger.all_reduce_seconds += waited / gang.world_size
        run.data_wait.told(lacking)
        run.notes.write(loss_sum, saving=busy)
        run.observer.after_step(place.step)
        run.saving.tell(schedule)
        if place.step == first_step + 1:
            stop.work_begun()
            run.prepare_saving()

        stopping = stops > 0
        if saves > 0 and savers == 0 and not stopping and place.step < run.total_steps:
            save(run, schedule)

    run.notes.settle(gang.sum)
    if stopping:
        progress.phase("drain", place.step)
        if place.step > first_step:
            run.save_last(final=False, seconds_left=seconds_left())
        gang.barrier()
        return Ending("drained", place.step, ending.EXIT_DRAINED)
    run.save_last(final=True)
    gang.barrier()
    return Ending("finished", place.step, ending.EXIT_FINISHED, reason=reason)


def score(run: RankTrainer, stop_asked: Callable[[], bool]) -> dict[str, float] | None:
    """Scores the held-out parts and writes it down; None when a stop was agreed meanwhile."""
    place = run.place
    run.notes.settle(run.gang.sum)
    run.progress.phase("eval", place.step)
    scores = run.evaluate(stop_asked)
    if scores is not None:
        place.evaluated_step = place.step
        place.metrics.update(scores)
        run.progress.write("eval", step=place.step, **scores)
        run.progress.phase("train", place.step)
    return scores


def save(run: RankTrainer, schedule: SaveSchedule, best: bool = False) -> None:
    """Takes a periodic checkpoint; training stands still for one copy of the state."""
    run.notes.settle(run.gang.sum)
    run.save(best=best)
    schedule.asked(run.place.step)
    run.progress.phase("train", run.place.step)


def evaluation_is_due(
    place: Place, config: TrainConfig, order: SampleOrder, total_steps: int
) -> bool:
    """Once, at the end of the run and of every ``eval_every_epochs`` epochs."""
    if place.evaluated_step == place.step:
        return False
    if place.step >= total_steps:
        return True
    every = config.eval_every_epochs
    if every == 0 or place.step == 0:
        return False
    before, after = order.finished_epochs(place.step - 1), order.finished_epochs(place.step)
    return after // every > before // every


def run_to_end(
    config_path: Path,
    environment: RankEnvironment,
    progress: ProgressLog,
    place: Place,
    stop: drain.StopRequest,
) -> Ending:
    """Runs one rank from its configuration to its ending; errors become an ending too."""
    run: RankTrainer | None = None
    try:
        config = load_config(config_path)
        # Only now: importing PyTorch takes seconds, and the signal handlers must stand before. A
        # tenth of that time would go into collections that find nothing.
        gc.disable()
        from trainer.training.run import RankTrainer

        gc.enable()
        run = RankTrainer(config, environment, progress, place)
        if environment.resume_dir is not None:
            progress.phase("restore", 0)
            run.restore(environment.resume_dir)
        result = train(run, stop)
    except Exception as error:  # whatever it is, the marker must say so
        result = ending.failure(error, place.step, _lost_a_peer)
        kind = result.error.kind if result.error is not None else ""
        if kind == "peer_communication" and stop.nothing_to_save:
            # Every rank ends by itself then, and this one saw another do so a moment earlier.
            result = Ending("drained", place.step, ending.EXIT_DRAINED)
        elif isinstance(error, ONE_LINE_ERRORS):
            print(f"error: {error}", file=sys.stderr)
        elif kind == "peer_communication":  # its own stack says nothing of what happened there
            print(f"error: another rank went away: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        if result.error is not None:
            progress.write("error", kind=kind, message=result.error.message)
    if run is not None:
        run.close()
    ending.write_ending(environment, result)
    scores = place.metrics if result.outcome == "finished" else {}
    progress.write("end", outcome=result.outcome, step=result.step, reason=result.reason, **scores)
    return result


def _lost_a_peer() -> bool:
    from trainer.training.gang.distributed import lost_a_peer

    return lost_a_peer()


def validate(config_path: Path) -> int:
    """Checks the configuration and that its data can be loaded here; says so in one line."""
    from trainer.training.data import load_data

    try:
        config = load_config(config_path)
        load_data(config.data, config.seed, config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ending.EXIT_CONFIG
    print(f"{config_path}: ok")
    return ending.EXIT_FINISHED


def main() -> int:
    """Parses the command line and runs or validates; returns the exit code."""
    stop = drain.StopRequest()
    stop.listen()
    drain.dump_stacks_on_signal()
    options = parse_arguments()
    if options.validate:
        return validate(options.config)
    try:
        folder = options.folder or Path("runs") / options.config.stem
        environment = read_rank_environment(os.environ, folder, fresh=options.fresh)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ending.EXIT_CONFIG
    if environment.under_torchrun:
        drain.die_with_launcher()
    ending.write_started(environment)
    if environment.node_rank == 0:
        environment.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    first_here = environment.local_rank == 0
    progress = ProgressLog(
        environment.progress_file if first_here else None,
        phases_only=environment.rank != 0,
        reached_step=0 if options.fresh else reached_step(environment.progress_file, os.environ),
    )
    if environment.rank == 0:
        show_on_terminal(progress)
    progress.phase("boot", 0)
    place = Place()

    def end_early() -> None:
        ending.write_ending(environment, Ending("drained", place.step, ending.EXIT_DRAINED))
        os._exit(ending.EXIT_DRAINED)

    stop.end_early_by(end_early)
    result = run_to_end(options.config, environment, progress, place, stop)
    if result.error is None:
        from trainer.training.gang.distributed import leave

        leave()
    progress.write_goodput(result.step, final=True)
    return result.exit_code


def parse_arguments() -> argparse.Namespace:
    """The command line. Where files go is said by LOWTIDE_* first."""
    parser = argparse.ArgumentParser(prog="trainer.training.train")
    parser.add_argument("--config", type=Path, required=True, help="JSON file of the run")
    parser.add_argument("--validate", action="store_true", help="check it and do nothing else")
    parser.add_argument(
        "--folder", type=Path, help="for checkpoints and progress; default: runs/NAME of the file"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="start anew instead of from the newest checkpoint"
    )
    return parser.parse_args()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: tearing down gloo's threads at interpreter exit can abort a good run.
    os._exit(code)
