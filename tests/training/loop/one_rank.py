"""A whole run of one rank in this process: no launcher, no signals, the real loop."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.training.config import parse_config
from trainer.training.drain import StopRequest
from trainer.training.gang import distributed
from trainer.training.gang.ending import Ending
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.rank_loop import train
from trainer.training.rank_run import RankTrainer
from trainer.training.reporting.place import Place
from trainer.training.reporting.progress import ProgressLog

STACK = {
    "model": "tests.training.models.own_models:Stack",
    "data": "digits",
    "steps": 12,
    "batch_size": 32,
    "seed": 3,
    "eval_every_epochs": 0,
}


@dataclass
class Result:
    """What one run left behind."""

    folder: Path
    ending: Ending
    run: RankTrainer

    def lines(self, kind: str) -> list[dict[str, Any]]:
        text = (self.folder / "progress.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["type"] == kind]

    @property
    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.lines("step")}

    def checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:012d}"

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: each.clone() for name, each in self.run.learner.model.state_dict().items()}


OnStep = Callable[[int], None]


class StopsAfter(ProgressLog):
    """Progress that asks for a stop once so many steps are done, and tells of each."""

    def __init__(self, path: Path, stop: StopRequest, steps: int) -> None:
        super().__init__(path)
        self._stop = stop
        self._steps = steps
        self.on_step: OnStep | None = None

    def write(self, kind: str, /, **values: Any) -> None:
        super().write(kind, **values)
        if kind == "step" and values["step"] >= self._steps:
            self._stop.requested = True
        if kind == "step" and self.on_step is not None:
            self.on_step(values["step"])


def train_here(
    folder: Path,
    config: dict[str, Any],
    *,
    resume: Path | None = None,
    stop_after: int = 1 << 60,
    watch: Callable[[RankTrainer], OnStep] | None = None,
) -> Result:
    """``stop_after``: the step after which a drain is asked for, so that one more is made.
    ``watch`` is given the run and returns what is called after every step.
    """
    environment = read_rank_environment({}, folder, fresh=True)
    stop = StopRequest()
    progress = StopsAfter(environment.progress_file, stop, stop_after)
    threads = torch.get_num_threads()
    try:
        run = RankTrainer(parse_config(config), environment, progress, Place())
        if resume is not None:
            run.restore(resume)
        if watch is not None:
            progress.on_step = watch(run)
        result = train(run, stop)
        run.close()
        return Result(folder, result, run)
    finally:
        distributed.leave()
        torch.set_num_threads(threads)
