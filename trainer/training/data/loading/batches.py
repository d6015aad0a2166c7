"""From a request for samples to a batch of tensors: what a worker process does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainer.protocol.train_options.data import DataOptions
from trainer.training.data.loading.data_parts import BadSampleError, DataSet, Part
from trainer.training.data.loading.draws import uniforms
from trainer.training.data.loading.order import Indices
from trainer.training.data.loading.transforms import DRAWS, ImageTransform, image_transforms
from trainer.training.training_errors import DataUnavailableError

# How many neighbours are tried in place of a sample that cannot be read.
MOST_NEIGHBOURS = 16
_NO_DRAWS = torch.zeros((0, DRAWS))
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass takes; tensors on the rank's device.

    inputs: (samples, channels, height, width) float32, or (samples, tokens) int64.
    labels: (samples,) int64, or (samples, tokens) int64: the token that follows each.
    ids: numbers of the samples in their part.
    """

    inputs: Tensor
    labels: Tensor
    ids: Indices

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class SampleRequest:
    """Samples of one part, each in the epoch that it is wanted for; ``scoring``: nothing random."""

    part: str
    epochs: Indices
    ids: Indices
    scoring: bool = True


class BatchReader(Dataset[dict[str, Any]]):
    """Reads and transforms the samples of a request; runs in workers, draws nothing itself.

    The answer has ``inputs``, ``labels``, ``ids``, ``draws`` and ``skipped`` (a sentence for each
    sample that was replaced), or only ``problem``, a sentence, and ``unavailable``.
    """

    def __init__(
        self, data: DataSet, options: DataOptions, seed: int, device: torch.device = _CPU
    ) -> None:
        self.data = data
        # Bytes travel to a GPU, and become numbers there: a quarter of the way's traffic.
        self._finishes_here = device.type == "cpu" and options.transforms_on == "cpu"
        self.seed = seed
        self.skip_bad = options.on_bad_sample == "skip"
        self._training: ImageTransform | None = None
        self._scoring: ImageTransform | None = None
        if data.kind == "images":
            self._training, self._scoring = image_transforms(data, options)

    def transform(self, scoring: bool) -> ImageTransform | None:
        """What is done to images; None for tokens."""
        return self._scoring if scoring else self._training

    def __getitem__(self, request: SampleRequest) -> dict[str, Any]:
        try:
            return self._read(request)
        except BadSampleError as error:
            return {"problem": str(error), "unavailable": False}
        except DataUnavailableError as error:
            return {"problem": str(error), "unavailable": True}

    def finish(self, read: dict[str, Any], *, scoring: bool) -> Tensor:
        """The inputs as the model gets them, from an answer whose tensors are on the device."""
        transform = self.transform(scoring)
        inputs: Tensor = read["inputs"]
        if transform is None or self._finishes_here or len(inputs) == 0:
            return inputs
        return transform.finish(inputs, read["draws"])

    def _read(self, request: SampleRequest) -> dict[str, Any]:
        part, transform = self.data.part(request.part), self.transform(request.scoring)
        quick = self._read_many(part, transform, request)
        if quick is not None:
            return quick
        draws = uniforms(self.seed, request.epochs, request.ids, DRAWS)
        inputs, labels, skipped = [], [], []
        for index, draw in zip(request.ids.tolist(), draws, strict=True):
            value, label, problem = self._sample(part, index)
            if problem:
                skipped.append(problem)
            prepared = (
                torch.from_numpy(value) if transform is None else transform.prepare(value, draw)
            )
            inputs.append(prepared)
            labels.append(torch.as_tensor(label))
        if not inputs:
            return self._nothing(request)
        batch, drawn = torch.stack(inputs), torch.from_numpy(draws)
        if transform is not None and self._finishes_here:
            batch = transform.finish(batch, drawn)
        return {
            "inputs": batch,
            "labels": torch.stack(labels),
            "ids": request.ids,
            "draws": drawn,
            "skipped": skipped,
        }

    def is_quick(self) -> bool:
        """Whether training images are in memory as the model gets them: many cost like one."""
        transform, data = self.transform(scoring=False), self.data
        if not data.in_memory or transform is None or not transform.keeps(data.shape):
            return False
        none = data.train.read_many(np.zeros(0, np.int64))
        return none is not None and none[0].shape[1:] == data.shape

    def _read_many(
        self, part: Part, transform: ImageTransform | None, request: SampleRequest
    ) -> dict[str, Any] | None:
        """The answer for samples that need nothing done to each; None: go one by one."""
        if transform is not None and not transform.keeps(self.data.shape):
            return None
        try:
            found = part.read_many(request.ids)
        except BadSampleError:
            return None
        if found is None or found[0].shape[1:] != self.data.shape:
            return None
        inputs, nothing = torch.from_numpy(found[0]), _NO_DRAWS
        if transform is not None and self._finishes_here:
            inputs = transform.finish(inputs, nothing)
        answer = {"inputs": inputs, "labels": torch.from_numpy(found[1]), "draws": nothing}
        return {**answer, "ids": request.ids, "skipped": ()}

    def _sample(self, part: Part, index: int) -> tuple[Any, Any, str]:
        """The sample and its label; or the next that can be read, and why this one cannot."""
        first = ""
        for offset in range(MOST_NEIGHBOURS):
            place = (index + offset) % len(part)
            try:
                value, label = part.read(place)
                return value, label, first
            except BadSampleError as error:
                problem = f"{part.name(place)}: {error}"
                if not self.skip_bad:
                    raise BadSampleError(
                        f"data: {problem}; repair or remove it, or set on_bad_sample: skip"
                    ) from error
                first = first or problem
        raise BadSampleError(
            f"data: {MOST_NEIGHBOURS} samples in a row cannot be read; the first is {first}"
        )

    def _nothing(self, request: SampleRequest) -> dict[str, Any]:
        """The answer to a request for no samples."""
        empty = zero_batch(self.data, 0, torch.device("cpu"))
        return {
            "inputs": empty.inputs,
            "labels": empty.labels,
            "ids": request.ids,
            "draws": _NO_DRAWS,
            "skipped": (),
        }


def zero_batch(data: DataSet, count: int, device: torch.device) -> MicroBatch:
    """Zeros in the shape of ``count`` samples, to warm up or to measure a model with."""
    tokens = data.kind == "tokens"
    inputs = torch.zeros(
        (count, *data.shape), dtype=torch.int64 if tokens else torch.float32, device=device
    )
    labels = torch.zeros_like(inputs) if tokens else torch.zeros(count, dtype=torch.int64)
    return MicroBatch(inputs, labels.to(device), np.zeros(count, np.int64))
