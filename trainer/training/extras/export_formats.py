"""A model to the formats it is served in, each read back and compared with the model itself.

Not here: reading the checkpoint and the card (``export.py``). The packages for ONNX are the
optional extra ``export``, imported only when that format is asked for.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from trainer.training.training_errors import ConfigError

# Samples at once in the comparison: one, and several, because the batch is not fixed.
COMPARED_BATCHES = (1, 3)
RELATIVE_MOST = 1e-3
ABSOLUTE_MOST = 1e-4
OPSET = 20
# An ONNX file is one message of Protocol Buffers, which ends at 2 GiB; beyond, weights go beside.
ONE_FILE_BYTES_MOST = 1_900_000_000


class ExportDiffersError(RuntimeError):
    """An exported model does not compute what the model does; the message says by how much."""


@dataclass(frozen=True)
class ScoreDifferences:
    """The largest differences between the scores of the model and of what was exported.

    ``relative``: of the largest score of the model.
    """

    absolute: float
    relative: float


def to_onnx(model: nn.Module, sample: Tensor, path: Path) -> ScoreDifferences:
    """Writes ``path`` and runs it with onnxruntime. ``sample`` is a batch like those to come.

    Raises ``ConfigError`` where the packages are missing or the model cannot be expressed, and
    ``ExportDiffersError``.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # what torch builds the graph with
    except ImportError as error:
        raise ConfigError(
            f"--format onnx needs the package `{error.name}`; pip install 'lowtide[export]'"
        ) from error
    with _quiet(), _explained("onnx"):
        torch.onnx.export(
            model,
            (sample,),
            str(path),
            input_names=["input"],
            output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            opset_version=OPSET,
            dynamo=True,
            external_data=_bytes_of(model) > ONE_FILE_BYTES_MOST,
            verbose=False,
        )
    onnx.checker.check_model(str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(batch: Tensor) -> Tensor:
        (scores,) = session.run(["scores"], {"input": batch.numpy()})
        return torch.from_numpy(np.asarray(scores))

    return compare(model, run, sample)


def to_torch_export(model: nn.Module, sample: Tensor, path: Path) -> ScoreDifferences:
    """Writes ``path`` for ``torch.export.load`` and compares what is loaded from it.

    Raises ``ConfigError`` where the model cannot be expressed, and ``ExportDiffersError``.
    """
    with _quiet(), _explained("torch_export"):
        program = torch.export.export(
            model, (sample,), dynamic_shapes=({0: torch.export.Dim("batch")},)
        )
        torch.export.save(program, str(path))
        loaded = torch.export.load(str(path)).module()
    return compare(model, loaded, sample)


def compare(
    model: nn.Module, other: Callable[[Tensor], Tensor], sample: Tensor
) -> ScoreDifferences:
    """Runs both on batches of several sizes. Raises ``ExportDiffersError`` beyond the tolerance."""
    absolute = relative = 0.0
    for size in COMPARED_BATCHES:
        batch = sample[torch.arange(size) % len(sample)]
        with torch.no_grad():
            expected, found = model(batch), other(batch)
        if found.shape != expected.shape:
            raise ExportDiffersError(
                f"scores have the shape {tuple(found.shape)}, not {tuple(expected.shape)}"
            )
        difference = (found - expected).abs().max().nan_to_num(torch.inf).item()
        largest = max(expected.abs().max().item(), 1e-12)
        absolute = max(absolute, difference)
        relative = max(relative, difference / largest)
    if absolute > ABSOLUTE_MOST and relative > RELATIVE_MOST:
        raise ExportDiffersError(
            f"scores differ by {absolute:.3g} ({relative:.3g} of the largest), more than"
            f" {RELATIVE_MOST:g} of it"
        )
    return ScoreDifferences(absolute, relative)


def example_batch(shape: tuple[int, ...], classes: int) -> Tensor:
    """Three samples of random numbers, always the same ones: images, or windows of tokens."""
    generator = torch.Generator().manual_seed(20_261)
    if len(shape) == 1:
        return torch.randint(classes, (3, *shape), generator=generator)
    return torch.randn((3, *shape), generator=generator)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turns torch's many errors for a model that cannot be traced into one sentence."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # torch promises no type here
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"--format {name}: torch cannot express this model: {first}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch's reports of its own progress out of ours."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def _bytes_of(model: nn.Module) -> int:
    return sum(each.numel() * each.element_size() for each in model.state_dict().values())
