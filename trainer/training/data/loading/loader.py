"""The loader: gives this rank its micro-batches, read ahead by worker processes.

It keeps no state that a checkpoint would need: what comes next is a function of the seed, the step,
the ranks and the accumulation, so it starts at any step at once. torch's DataLoader moves the work
to processes and the tensors to pinned memory; the order, the samples and the random numbers are
ours, and no generator of torch, numpy or Python is touched.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from trainer.protocol.train_options.data import DataOptions
from trainer.training.data.loading.batches import BatchReader, MicroBatch, SampleRequest, zero_batch
from trainer.training.data.loading.dali import DaliReader
from trainer.training.data.loading.data_parts import DataSet
from trainer.training.data.loading.order import SampleOrder
from trainer.training.data.loading.together import read_together
from trainer.training.data.loading.workers import (
    ENDED,
    Answers,
    as_it_is,
    let_go,
    quiet_start,
    start_worker,
    tried,
    worker_count,
)
from trainer.training.training_errors import DataError, DataUnavailableError

__all__ = ["Loader", "MicroBatch", "zero_batch"]

SCORING_BATCH = 256


@dataclass
class _TrainingRequests:
    """The endless requests of one rank's micro-batches, from ``step`` on."""

    order: SampleOrder
    rank: int
    world_size: int
    accumulation: int
    step: int = 0

    def __iter__(self) -> Iterator[SampleRequest]:
        for step in itertools.count(self.step):
            yield from self.of_step(step)

    def of_step(self, step: int) -> list[SampleRequest]:
        """This rank's share of the global batch that follows ``step`` finished steps, in parts."""
        epochs, ids = self.order.epochs(step), self.order.batch(step)
        mine = _piece(len(ids), self.world_size, self.rank)
        epochs, ids = epochs[mine], ids[mine]
        if self.accumulation == 1:
            return [SampleRequest("train", epochs, ids, scoring=False)]
        parts = (_piece(len(ids), self.accumulation, each) for each in range(self.accumulation))
        return [SampleRequest("train", epochs[part], ids[part], scoring=False) for part in parts]


def _piece(length: int, pieces: int, number: int) -> slice:
    """One of ``pieces`` that are as equal as can be, the longer ones first, as array_split's."""
    size, longer = divmod(length, pieces)
    first = number * size + min(number, longer)
    return slice(first, first + size + (number < longer))


class Loader:
    """One rank's view of a data set. See the module's head.

    waited_seconds: how long samples were waited for, in all.
    may_wait: samples come from workers, and may be late. Alike on all ranks.
    bad_samples: how many samples were replaced by a neighbour on this rank.
    """

    def __init__(
        self,
        data: DataSet,
        order: SampleOrder,
        *,
        rank: int,
        world_size: int,
        device: torch.device,
        seed: int,
        accumulation: int = 1,
        options: DataOptions | None = None,
    ) -> None:
        options = options or DataOptions()
        self.data = data
        self.waited_seconds = 0.0
        self.bad_samples = 0
        self.last_bad_sample = ""
        self.workers = worker_count(options, data)
        self._prefetch = options.prefetch
        self._device = device
        self._reader = batch_reader(data, options, seed, device)
        self._requests = _TrainingRequests(order, rank, world_size, accumulation)
        self._fixed = options.synthetic_fixed
        self._fixed_batches: list[MicroBatch] = []
        self._loader: DataLoader[dict[str, Any]] | None = None
        self._answers: Answers | Iterator[dict[str, Any]] | None = None
        self._staged: list[MicroBatch] = []
        self._step = 0
        self.may_wait = self.workers > 0 and not self._fixed
        self._copying: Any = None
        if device.type == "cuda":
            self._copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def start(self, step: int, accumulation: int | None = None) -> None:
        """Reads ahead from the batch that follows ``step`` finished steps; returns at once.

        Called again it forgets what was read ahead; ``accumulation`` changes the micro-batches, not
        their samples.
        """
        self._requests.step = self._step = step
        self._requests.accumulation = accumulation or self._requests.accumulation
        self._staged = []
        self._fixed_batches = []
        if self._fixed:
            return
        if self.workers == 0 and self._reader.is_quick():
            self._answers = read_together(self._reader, self._requests.of_step, step)
        else:
            self._answers = self._begun(self._requests, persistent=True)

    def next(self) -> list[MicroBatch]:
        """This rank's micro-batches of the next step. Raises ``DataError`` in one line."""
        while not self.ready():
            pass
        batches, self._staged = self._staged, []
        self._step += 1
        if self._copying is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_stream(self._copying)
            for batch in batches:
                # Memory that was filled on one stream is used, and then given back, on another.
                batch.inputs.record_stream(current)
                batch.labels.record_stream(current)
        return batches

    def prefetch(self) -> None:
        """Copies the next step's micro-batches to the GPU while this one's kernels still run.

        To be called once a step's work is queued there. Does nothing on a CPU.
        """
        if self._copying is not None:
            self.ready()

    def part(self, name: str, most: int | None = None) -> Iterator[MicroBatch]:
        """This rank's share of a part, for scoring: equally many batches on all ranks.

        Some may be empty; ``most`` bounds their number. Nothing about them is random, in "train"
        neither.
        """
        return (batch for batch in self.tries(name, most) if batch is not None)

    def tries(self, name: str, most: int | None = None) -> Iterator[MicroBatch | None]:
        """As ``part``, with None for a moment in which the next batch has not come."""
        samples, world_size = len(self.data.part(name)), self._requests.world_size
        mine = np.arange(samples)[_piece(samples, world_size, self._requests.rank)]
        batches = math.ceil(math.ceil(samples / world_size) / SCORING_BATCH)
        wanted = []
        for number in range(batches if most is None else min(most, batches)):
            ids = mine[number * SCORING_BATCH : (number + 1) * SCORING_BATCH]
            wanted.append(SampleRequest(name, np.zeros_like(ids), ids))
        held = [self._begun(wanted, persistent=False)]
        try:
            while (answer := tried(held[0])) is not ENDED:
                yield None if answer is None else self._batch(answer, scoring=True)
        finally:
            let_go(held)

    def close(self) -> None:
        """Ends the workers; one that hangs in a read is left to the end of this process."""
        held, self._answers, self._loader = [self._answers, self._loader], None, None
        self._staged = []
        let_go(held)

    def ready(self) -> bool:
        """Whether the next step's micro-batches are here; what is late is waited for a moment."""
        if self._fixed and not self._staged:
            self._staged = self._fixed_step()
        while len(self._staged) < self._requests.accumulation:
            if self._answers is None:
                raise RuntimeError("the loader was not started")
            started = time.perf_counter()
            answer = tried(self._answers)
            self.waited_seconds += time.perf_counter() - started
            if answer is None:
                return False
            if self._copying is None:
                self._staged.append(self._batch(answer, scoring=False))
            else:
                with torch.cuda.stream(self._copying):
                    self._staged.append(self._batch(answer, scoring=False))
        return True

    def _fixed_step(self) -> list[MicroBatch]:
        """The first step's tensors again, under the numbers of the samples that would be next."""
        if not self._fixed_batches:
            first = self._requests.of_step(0)
            self._fixed_batches = [self._batch(self._reader[each], scoring=False) for each in first]
        wanted = self._requests.of_step(self._step)
        return [
            MicroBatch(batch.inputs, batch.labels, request.ids)
            for batch, request in zip(self._fixed_batches, wanted, strict=True)
        ]

    def _batch(self, answer: dict[str, Any], *, scoring: bool) -> MicroBatch:
        if "problem" in answer:
            raise (DataUnavailableError if answer["unavailable"] else DataError)(answer["problem"])
        if answer["skipped"]:
            self.bad_samples += len(answer["skipped"])
            self.last_bad_sample = answer["skipped"][-1]
        if self._device.type != "cpu":
            for name in ("inputs", "labels", "draws"):
                answer[name] = answer[name].to(self._device, non_blocking=True)
        inputs = self._reader.finish(answer, scoring=scoring)
        return MicroBatch(inputs, answer["labels"], answer["ids"])

    def _begun(
        self, requests: Iterable[SampleRequest], *, persistent: bool
    ) -> Answers | Iterator[dict[str, Any]]:
        """The answers to ``requests``, from now on read by the workers if there are any."""
        if self.workers == 0:
            return map(self._reader.__getitem__, requests)
        with quiet_start():
            if not persistent:
                return Answers(iter(self._made(requests, persistent)))
            if self._loader is None:
                self._loader = self._made(requests, persistent)
            return Answers(iter(self._loader))

    def _made(
        self, requests: Iterable[SampleRequest], persistent: bool
    ) -> DataLoader[dict[str, Any]]:
        return DataLoader(
            self._reader,
            # One request is one item: nothing is collated or shuffled by torch.
            batch_size=None,
            sampler=requests,
            collate_fn=as_it_is,
            num_workers=self.workers,
            prefetch_factor=self._prefetch,
            persistent_workers=persistent,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=start_worker,
            multiprocessing_context="fork",
            # Otherwise torch draws the workers' seed from its global generator.
            generator=torch.Generator(),
        )


def batch_reader(
    data: DataSet, options: DataOptions, seed: int, device: torch.device
) -> BatchReader:
    """What reads the samples: torch's way, or DALI where the options ask for it."""
    if options.loader == "dali":
        return DaliReader(data, options, seed, device)
    return BatchReader(data, options, seed, device)
