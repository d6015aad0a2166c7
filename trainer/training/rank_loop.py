"""The training loop of one rank, and a rank's way from its configuration to its ending.

Not here: what happens before PyTorch is loaded (``train``, ``started_rank``), or what a step is
(``run``, ``loop``).

A drain before the first step of an attempt writes no checkpoint: the one that was resumed from, or
none in a fresh run, is already the whole truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer.hooks.notice import seconds_left
from trainer.training import drain
from trainer.training.config import TrainConfig
from trainer.training.data import SampleOrder
from trainer.training.gang import distributed, ending
from trainer.training.gang.ending import Ending
from trainer.training.loop.learning_rate import learning_rate_at
from trainer.training.loop.target import is_best, target_reached
from trainer.training.rank_run import RankTrainer
from trainer.training.reporting.goodput import Bucket
from trainer.training.reporting.place import Place
from trainer.training.saving.save_schedule import SaveSchedule
from trainer.training.started_rank import StartedRank


def run_rank(rank: StartedRank, config: TrainConfig) -> Ending:
    """Runs a started rank to its ending; errors become an ending too."""
    run: RankTrainer | None = None
    try:
        run = RankTrainer(config, rank.environment, rank.progress, rank.place)
        if rank.environment.resume_dir is not None:
            rank.progress.phase("restore", 0)
            run.restore(rank.environment.resume_dir)
        result = train(run, rank.stop)
    except Exception as error:  # whatever it is, the marker must say so
        result = rank.failed(error, distributed.lost_a_peer)
    if run is not None:
        run.close()
    rank.ended(result)
    if result.error is None:
        distributed.leave()
    rank.progress.write_goodput(result.step, final=True)
    return result


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
            with progress.ledger.spending(Bucket.PAUSE):
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
        return leave_early(run, first_step)
    run.save_last(final=True)
    gang.barrier()
    return Ending("finished", place.step, ending.EXIT_FINISHED, reason=reason)


def leave_early(run: RankTrainer, first_step: int) -> Ending:
    """Save what this attempt has trained since ``first_step``, and leave before the end."""
    step = run.place.step
    run.progress.phase("drain", step)
    if step > first_step:
        run.save_last(final=False, seconds_left=seconds_left())
    run.gang.barrier()
    return Ending("drained", step, ending.EXIT_DRAINED)


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
