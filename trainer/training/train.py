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
import math
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.training import drain, ending
from trainer.training.config import TrainConfig, load_config
from trainer.training.data import SampleOrder, load_data
from trainer.training.ending import Ending
from trainer.training.errors import CheckpointCorruptError, ConfigError
from trainer.training.learning_rate import learning_rate_at
from trainer.training.place import Place
from trainer.training.progress import Progress
from trainer.training.rank_environment import RankEnvironment, read_rank_environment
from trainer.training.save_schedule import SaveSchedule

if TYPE_CHECKING:
    from trainer.training.run import Run


def train(run: Run, stop: drain.StopRequest) -> Ending:
    """Trains from the run's place to its end, or until a stop is agreed; saves either way."""
    config, gang, place, progress = run.config, run.gang, run.place, run.progress
    first_step = place.step
    schedule = SaveSchedule(config, first_step)
    progress.phase("train", place.step)
    stopping = gang.any(stop.requested)

    while not stopping:
        if evaluation_is_due(place, config, run.order, run.total_steps):
            progress.phase("eval", place.step)
            scores = run.evaluate(interrupted=lambda: gang.any(stop.requested))
            if scores is None:
                stopping = True
                break
            place.evaluated_step = place.step
            place.metrics.update(scores)
            progress.write("eval", step=place.step, **scores)
            progress.phase("train", place.step)
        if place.step >= run.total_steps:
            break

        started = time.perf_counter()
        learning_rate = learning_rate_at(place.step, run.total_steps, config)
        my_loss = run.learner.step(run.data.train, run.order.batch(place.step), learning_rate)
        if config.step_delay_seconds > 0:
            time.sleep(config.step_delay_seconds)
        # One small all-reduce carries the loss, "I was asked to stop" and "a save is due".
        save_due = gang.rank == 0 and schedule.due(place.step + 1)
        loss_sum, stops, saves = gang.sum(my_loss, stop.requested, save_due)
        place.step += 1
        note_step(run, loss_sum, learning_rate, time.perf_counter() - started)

        stopping = stops > 0
        if saves > 0 and not stopping and place.step < run.total_steps:
            schedule.saved(place.step, run.save(final=False))
            progress.phase("train", place.step)

    if stopping:
        progress.phase("drain", place.step)
        if place.step > first_step:
            run.save(final=False)
        gang.barrier()
        return Ending("drained", place.step, ending.EXIT_DRAINED)
    run.save(final=True)
    gang.barrier()
    return Ending("finished", place.step, ending.EXIT_FINISHED)


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


def note_step(run: Run, loss_sum: float, learning_rate: float, seconds: float) -> None:
    """Writes the step that was just finished, and the epoch if it ended one, into the progress.

    Raises ``FloatingPointError`` when the loss is not a number any more: no later step mends that.
    """
    place, config = run.place, run.config
    loss = loss_sum / config.batch_size
    if not math.isfinite(loss):
        raise FloatingPointError(
            f"the loss is {loss} at step {place.step}; lower learning_rate or use another precision"
        )
    place.epoch_loss_sum += loss_sum
    place.epoch_samples += config.batch_size
    delay = {"step_delay_seconds": config.step_delay_seconds} if config.step_delay_seconds else {}
    run.progress.write(
        "step",
        step=place.step,
        total_steps=run.total_steps,
        loss=loss,
        samples=place.step * config.batch_size,
        phase="train",
        seconds=seconds,
        learning_rate=learning_rate,
        samples_per_second=config.batch_size / seconds,
        **delay,
    )
    epochs = run.order.finished_epochs(place.step)
    if epochs > run.order.finished_epochs(place.step - 1):
        mean = place.epoch_loss_sum / place.epoch_samples
        run.progress.write("epoch", step=place.step, epoch=epochs, mean_loss=mean)
        place.epoch_loss_sum, place.epoch_samples = 0.0, 0


def run_to_end(
    config_path: Path, environment: RankEnvironment, progress: Progress, stop: drain.StopRequest
) -> Ending:
    """Runs one rank from its configuration to its ending; errors become an ending too."""
    place = Place()
    try:
        config = load_config(config_path)
        # Only now: importing PyTorch takes seconds, and the signal handlers must stand before.
        from trainer.training.run import Run

        run = Run(config, environment, progress, place)
        if environment.resume_dir is not None:
            progress.phase("restore", 0)
            run.restore(environment.resume_dir)
        result = train(run, stop)
    except Exception as error:  # whatever it is, the marker must say so
        result = ending.failure(error, place.step)
        if isinstance(error, (ConfigError, CheckpointCorruptError)):
            print(f"error: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        if result.error is not None:
            progress.write("error", kind=result.error.kind, message=result.error.message)
    ending.write_ending(environment, result)
    scores = place.metrics if result.outcome == "finished" else {}
    progress.write("end", outcome=result.outcome, step=result.step, **scores)
    return result


def validate(config_path: Path) -> int:
    """Checks the configuration and that its data can be loaded here; says so in one line."""
    try:
        config = load_config(config_path)
        load_data(config.data, config.seed)
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
    parser = argparse.ArgumentParser(prog="trainer.training.train")
    parser.add_argument("--config", type=Path, required=True, help="JSON file of the run")
    parser.add_argument("--validate", action="store_true", help="check it and do nothing else")
    options = parser.parse_args()
    if options.validate:
        return validate(options.config)
    try:
        environment = read_rank_environment(os.environ)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return ending.EXIT_CONFIG
    if environment.under_torchrun:
        drain.die_with_launcher()
    ending.write_started(environment)
    first_here = environment.local_rank == 0
    progress = Progress(
        environment.progress_file if first_here else None, phases_only=environment.rank != 0
    )
    progress.phase("boot", 0)
    result = run_to_end(options.config, environment, progress, stop)
    if result.error is None:
        from trainer.training.distributed import leave

        leave()
    return result.exit_code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: tearing down gloo's threads at interpreter exit can abort a good run.
    os._exit(code)
