"""Samples in memory, read for many steps at once: for a small network a step's own reading would
cost more than its bookkeeping in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from trainer.training.data.loading.batches import BatchReader, SampleRequest

STEPS_MOST = 32
BYTES_MOST = 1 << 20


def read_together(
    reader: BatchReader, requests_of: Callable[[int], list[SampleRequest]], first_step: int
) -> Iterator[dict[str, Any]]:
    """The answers to the requests of one step after the other, from ``first_step`` on, endlessly.

    The steps that are read together do not depend on where a run is continued: a sample lies at the
    same place in memory in any attempt, so that the same instructions work on it.
    """
    sample_bytes = 4 * int(np.prod(reader.data.shape))
    samples = max(1, sum(len(each.ids) for each in requests_of(first_step)))
    together = max(1, min(STEPS_MOST, BYTES_MOST // (samples * sample_bytes)))
    step = first_step
    while True:
        begin = step - step % together
        steps = [requests_of(number) for number in range(begin, begin + together)]
        answers = _split(reader, [request for requests in steps for request in requests])
        passed_over = sum(len(requests) for requests in steps[: step - begin])
        yield from answers[passed_over:]
        step = begin + together


def _split(reader: BatchReader, requests: list[SampleRequest]) -> list[dict[str, Any]]:
    """Reads all requests as one and gives each its own part of the answer."""
    whole = reader[
        SampleRequest(
            requests[0].part,
            np.concatenate([request.epochs for request in requests]),
            np.concatenate([request.ids for request in requests]),
            requests[0].scoring,
        )
    ]
    sizes = [len(request.ids) for request in requests]
    # torch's own memory is aligned; what numpy handed over need not be.
    inputs = torch.split(whole["inputs"].clone(), sizes)
    labels = torch.split(whole["labels"].clone(), sizes)
    rest = {"draws": whole["draws"], "skipped": ()}
    return [
        {"inputs": its_inputs, "labels": its_labels, "ids": request.ids, **rest}
        for its_inputs, its_labels, request in zip(inputs, labels, requests, strict=True)
    ]
