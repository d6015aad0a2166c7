"""One rank's run, put together: model, data, place, folder; with restoring, scoring and saving.

The loop that drives it is in ``rank_loop.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer.training.config import TrainConfig
from trainer.training.data import SampleOrder, load_data
from trainer.training.data.loading.loader import Loader
from trainer.training.extras.model_card import about_run, seconds_in
from trainer.training.gang import distributed, preflight
from trainer.training.gang.data_wait import DataWait, StopAgreed
from trainer.training.gang.rank_environment import RankEnvironment
from trainer.training.kernels import compilation
from trainer.training.loop import module_state, randomness
from trainer.training.loop.learner import Learner
from trainer.training.loop.target import require_scored
from trainer.training.observer import observe
from trainer.training.reporting.goodput import Bucket
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import ProgressLog
from trainer.training.reporting.step_notes import StepNotes
from trainer.training.saving import restoring
from trainer.training.saving.saving import Saving
from trainer.training.training_errors import ConfigError, StepOutOfMemoryError

SCORED_PARTS = ("validation", "test")
AVERAGES = "averages"
# What the statistics of averaged weights are taken from: enough for a mean, and soon done.
AVERAGE_BATCHES_MOST = 64
# Less than the time after which a rank that failed is ended by whoever watches it.
UNFINISHED_SAVE_SECONDS = 5.0


class RankTrainer:
    """Everything of one rank. Built alike on all ranks; all methods are collectives."""

    def __init__(
        self, config: TrainConfig, environment: RankEnvironment, progress: ProgressLog, place: Place
    ) -> None:
        """Meets the other ranks, loads the data, builds the model. ``place`` is kept up to date."""
        self.config = config
        self.environment = environment
        self.progress = progress
        self.place = place
        self._is_prepared = False
        self._bad_samples_told = 0
        self.earlier_seconds: dict[str, float] = {}
        with progress.ledger.spending(Bucket.RENDEZVOUS):
            self.gang = distributed.join(environment, config)
        if config.batch_size < self.gang.world_size * config.accumulation:
            raise ConfigError(
                f"batch_size: {config.batch_size} samples cannot be shared by"
                f" {self.gang.world_size} ranks with accumulation {config.accumulation}"
            )
        with progress.ledger.spending(Bucket.DATA_START):
            self.data = load_data(config.data, config.seed, config)
        self.order = SampleOrder(config.seed, len(self.data.train), config.batch_size)
        self.total_steps = config.total_steps(len(self.data.train))
        scored = [name for name in SCORED_PARTS if len(self.data.part(name)) > 0]
        require_scored(config, scored)
        if config.preflight and self.gang.world_size > 1:
            with progress.ledger.spending(Bucket.RENDEZVOUS):
                self._check_gang()
        if compilation.is_compiled(config, self.gang.device):
            compilation.keep_compiled_code(environment.checkpoint_dir)
        self.learner = Learner(config, self.gang, self.data)
        self.loader = Loader(
            self.data,
            self.order,
            rank=self.gang.rank,
            world_size=self.gang.world_size,
            device=self.gang.device,
            seed=config.seed,
            options=config,
        )
        self.data_wait = DataWait(self.loader, self.gang, progress.ledger)
        buffers = [name for name, _ in self.learner.model.named_buffers()]
        self.saving = Saving(config, environment, self.gang, progress, buffers)

    def restore(self, folder: Path) -> None:
        """Continues from the checkpoint in ``folder``, which every machine has a copy of.

        Raises ``CheckpointCorruptError`` on all ranks if it is damaged on one or not the same on
        all; ``ConfigError`` if it belongs to another run.
        """
        found = restoring.restore(folder, self.environment, self.gang, self._identity())
        if found is None:
            return
        restoring.check_weights(
            found.weights,
            self.learner.model.state_dict(),
            module_state.extra_state_keys(self.learner.model),
        )
        state = found.training_state
        self.learner.load(found.weights, state, found.own)
        self.place.__dict__.update(state["place"])
        self.earlier_seconds = seconds_in(found.manifest)
        if found.random is not None:
            randomness.restore(found.random, self.gang.device)
        else:
            # Another number of ranks: the same samples, but new numbers for dropout.
            randomness.seed_rank(self.config.seed, self.place.step, self.gang.rank)

    def prepare(self) -> None:
        """What comes between restoring and the first step: compiling, reading ahead, observing."""
        ledger = self.progress.ledger
        if self.learner.is_compiled:
            self.progress.phase("compile", self.place.step)
        with ledger.spending(Bucket.COMPILE):
            self._prepare_learner()
        with ledger.spending(Bucket.DATA_START):
            self._begin_reading()
        with ledger.spending(Bucket.STARTUP):
            self.observer = observe(
                self.config,
                self.environment.checkpoint_dir,
                self.learner,
                self.data,
                self.place,
                self.progress,
            )
        self.notes = StepNotes(
            self.config,
            self.order,
            self.total_steps,
            self.place,
            self.progress,
            self.observer.step_numbers,
        )
        self._is_prepared = True

    def step(self, learning_rate: float, stop_asked: Callable[[], bool]) -> Tensor | None:
        """One optimizer step from this place; its summed loss, None if it was given up.

        ``stop_asked`` is this rank's own: the ranks agree on it while samples are late, and between
        the parts of a step. Where memory is short and ``on_oom`` is adapt, the same samples are
        tried again in smaller parts. Raises ``StepOutOfMemoryError`` when nothing smaller is left.
        """
        while True:
            micro_batches = self.data_wait.next(stop_asked)
            if micro_batches is None:
                return None
            if self.loader.bad_samples > self._bad_samples_told:
                self._tell_of_bad_samples()
            try:
                loss = self.learner.step(micro_batches, learning_rate, stop_asked)
            except StepOutOfMemoryError as error:
                self._go_smaller(error)
                self._begin_reading()
                continue
            self.loader.prefetch()
            if loss is not None and self.learner.averages is not None:
                self.learner.averages.after_step(self.place.step + 1, self.total_steps)
            return loss

    def evaluate(self, stop_asked: Callable[[], bool]) -> dict[str, float] | None:
        """Scores the held-out parts; None if a stop was agreed on the way."""
        averages = self.learner.averages
        if averages is not None and self.place.step >= self.total_steps:
            self.learner.adopt_average(self.loader.part("train", AVERAGE_BATCHES_MOST))
        scores: dict[str, float] = {}
        scored_weights = (
            averages.in_place()
            if averages is not None and averages.are_scored
            else contextlib.nullcontext()
        )
        with scored_weights:
            for name in SCORED_PARTS:
                samples = len(self.data.part(name))
                if samples == 0:
                    continue
                try:
                    found = self.learner.score(self.data_wait.part(name, stop_asked), samples)
                except StopAgreed:
                    return None
                scores.update({f"{name}_{metric}": value for metric, value in found.items()})
        return scores

    def close(self) -> None:
        """Ends what works beside the loop. Nothing of it is a collective.

        A checkpoint that is on its way when a run fails gets some seconds to become complete.
        """
        self.saving.close(UNFINISHED_SAVE_SECONDS)
        self.loader.close()
        if self._is_prepared:
            self.observer.close(self.place.step)

    def _prepare_learner(self) -> None:
        while True:
            try:
                return self.learner.prepare()
            except StepOutOfMemoryError as error:
                self._go_smaller(error)

    def _go_smaller(self, error: StepOutOfMemoryError) -> None:
        """Raises ``error`` where that was not asked for, or when nothing smaller is left."""
        if self.config.on_oom != "adapt" or not self.learner.shrink():
            raise error
        self._tell_of_memory(str(error))

    def _begin_reading(self) -> None:
        parts = self.learner.plan.accumulation(self.config, self.gang.world_size)
        self.loader.start(self.place.step, accumulation=parts)
        self.data_wait.forget()

    def _tell_of_bad_samples(self) -> None:
        self._bad_samples_told = self.loader.bad_samples
        self.progress.write(
            "bad_samples",
            step=self.place.step,
            bad_samples=self.loader.bad_samples,
            message=f"replaced by its neighbour: {self.loader.last_bad_sample}",
        )

    def _check_gang(self) -> None:
        facts = preflight.facts_of_rank(self.config, len(self.data.train), self.data.digest)
        preflight.compare_ranks(self.gang, self.environment.node_rank, facts)
        gbps = preflight.measure_network(self.gang, self.config.least_network_gbps)
        self.progress.write("preflight", ranks=self.gang.world_size, all_reduce_gbps=gbps)

    def _tell_of_memory(self, problem: str) -> None:
        plan = self.learner.plan
        self.progress.write(
            "memory",
            step=self.place.step,
            problem=problem,
            micro_batch=plan.micro_batch(self.config, self.gang.world_size),
            accumulation=plan.accumulation(self.config, self.gang.world_size),
            recompute=plan.recompute,
        )

    def prepare_saving(self) -> None:
        """Has the memory for checkpoints allocated: once there is an optimizer state to hold."""
        self.saving.prepare(self._trees(), self.learner.own_state())

    def save(self, *, best: bool = False) -> None:
        """Takes this place's state; it becomes a checkpoint while training goes on."""
        self.progress.phase("checkpoint", self.place.step)
        self.saving.take(
            self._header(final=False), self._trees(), self.learner.own_state(), best=best
        )

    def save_last(self, final: bool, seconds_left: float | None = None) -> None:
        """Returns on all ranks when this place's checkpoint is durable, or the one before it where
        ``seconds_left`` are too few for both.

        Raises ``CheckpointNotSavedError`` on all of them when it cannot be written.
        """
        self.progress.phase("checkpoint", self.place.step)
        self.saving.take_last(
            self._header(final), self._trees(), self.learner.own_state(), seconds_left
        )

    def _header(self, final: bool) -> dict[str, Any]:
        droppable = {"optional": [AVERAGES]} if self._averages_can_be_dropped else {}
        return {
            **droppable,
            "step": self.place.step,
            "total_steps": self.total_steps,
            "final": final,
            "world_size": self.gang.world_size,
            "fence": self.environment.fence,
            "identity": self._identity(),
            "metrics": dict(self.place.metrics),
            "about": about_run(
                self.config, self.data, self.place, self.progress.ledger, self.earlier_seconds
            ),
        }

    def _identity(self) -> dict[str, Any]:
        # Other files under the same name are other data.
        return {**self.config.identity(), "data_digest": self.data.digest}

    def _trees(self) -> dict[str, Any]:
        state = {**self.learner.training_state(), "place": asdict(self.place)}
        # In files of its own, so that an upload can do without them.
        apart = {AVERAGES: state.pop(AVERAGES)} if self._averages_can_be_dropped else {}
        return {"weights": self.learner.weights(), **apart, "training_state": state}

    @property
    def _averages_can_be_dropped(self) -> bool:
        """Only exponential ones: an even average that lost its past would be another one."""
        return self.config.checkpoint_may_drop_averages and self.config.ema_decay is not None
