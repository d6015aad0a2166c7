"""One rank's run, put together: model, data, place, folder; with restoring, scoring and saving.

The loop that drives it is in ``train.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from trainer.training import distributed, randomness
from trainer.training.checkpoint import CheckpointFolder, load_checkpoint
from trainer.training.config import TrainConfig
from trainer.training.data import SampleOrder, load_data
from trainer.training.errors import CheckpointCorruptError, ConfigError
from trainer.training.learner import Learner
from trainer.training.place import Place
from trainer.training.progress import Progress
from trainer.training.rank_environment import RankEnvironment


class Run:
    """Everything of one rank. Built alike on all ranks; all methods are collectives."""

    def __init__(
        self, config: TrainConfig, environment: RankEnvironment, progress: Progress, place: Place
    ) -> None:
        """Meets the other ranks, loads the data, builds the model. ``place`` is kept up to date."""
        self.config = config
        self.fence = environment.fence
        self.progress = progress
        self.place = place
        self.gang = distributed.join(environment)
        if config.batch_size < self.gang.world_size * config.accumulation:
            raise ConfigError(
                f"batch_size: {config.batch_size} samples cannot be shared by"
                f" {self.gang.world_size} ranks with accumulation {config.accumulation}"
            )
        self.data = load_data(config.data, config.seed)
        self.order = SampleOrder(config.seed, len(self.data.train), config.batch_size)
        self.total_steps = config.total_steps(len(self.data.train))
        self.learner = Learner(config, self.gang, self.data)
        self.folder = CheckpointFolder(environment.checkpoint_dir)
        if self.gang.rank == 0:
            self.folder.sweep()

    def restore(self, folder: Path) -> None:
        """Continues from the checkpoint in ``folder``, which every machine has a copy of.

        Raises ``CheckpointCorruptError`` on all ranks if it is damaged on one or not the same on
        all; ``ConfigError`` if it belongs to another run.
        """
        problem, digest = "", ""
        try:
            manifest, contents = load_checkpoint(folder)
            digest = manifest["digest"]
        except CheckpointCorruptError as error:
            problem = str(error)
        answers = self.gang.gather((problem, digest))
        for rank, (rank_problem, rank_digest) in enumerate(answers):
            if rank_problem:
                raise CheckpointCorruptError(f"rank {rank}: {rank_problem}")
            if rank_digest != answers[0][1]:
                raise CheckpointCorruptError(f"rank {rank} has another checkpoint than rank 0")
        for key, mine in self.config.identity().items():
            if manifest["identity"].get(key) != mine:
                raise ConfigError(
                    f"{key}: {mine!r} cannot continue a checkpoint made with"
                    f" {manifest['identity'].get(key)!r}"
                )
        state = contents["training_state.pt"]
        self.learner.load(contents["weights.pt"], state)
        self.place.__dict__.update(state["place"])
        if len(state["random"]) == self.gang.world_size:
            randomness.restore(state["random"][self.gang.rank], self.gang.device)
        else:
            # Another number of ranks: the same samples, but new numbers for dropout.
            randomness.seed_rank(self.config.seed, self.place.step, self.gang.rank)

    def evaluate(self, interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """Scores the held-out parts; None if ``interrupted`` (a collective) said so on the way."""
        scores = {}
        for name in ("validation", "test"):
            accuracy = self.learner.score(getattr(self.data, name), interrupted)
            if accuracy is None:
                return None
            scores[f"{name}_accuracy"] = accuracy
        return scores

    def save(self, final: bool) -> float:
        """Writes a checkpoint of this place; returns the seconds it took. Rank 0 writes.

        The other ranks hand over their random state and go on: call the gang's barrier where the
        files must be there.
        """
        started = time.perf_counter()
        self.progress.phase("checkpoint", self.place.step)
        random_states = self.gang.gather(randomness.capture(self.gang.device))
        if self.gang.rank != 0:
            return 0.0
        header = {
            "step": self.place.step,
            "total_steps": self.total_steps,
            "final": final,
            "world_size": self.gang.world_size,
            "fence": self.fence,
            "identity": self.config.identity(),
            "metrics": self.place.metrics,
        }
        state = {
            **self.learner.training_state(),
            "random": random_states,
            "place": asdict(self.place),
        }
        weights = self.learner.model.state_dict()
        path = self.folder.save(header, {"weights.pt": weights, "training_state.pt": state})
        seconds = time.perf_counter() - started
        self.progress.write(
            "checkpoint", step=self.place.step, path=str(path), seconds=seconds, final=final
        )
        return seconds
