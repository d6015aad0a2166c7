"""A model to a TensorRT engine, for the GPU of this machine, read back and compared.

By way of ONNX. TensorRT is NVIDIA's and needs a GPU: it is used where it is installed, and nowhere
asked for otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer.training.extras.export_formats import ScoreDifferences, compare, to_onnx
from trainer.training.training_errors import ConfigError

BATCH_MOST = 64
_LINES_MOST = 3


def to_tensorrt(model: nn.Module, sample: Tensor, onnx_file: Path, path: Path) -> ScoreDifferences:
    """Builds ``path`` for batches of 1 to ``BATCH_MOST`` and compares it; by way of ``onnx_file``,
    which is written if it is not there yet.

    Raises ``ConfigError`` where TensorRT or a GPU is missing or cannot build it, and
    ``ExportDiffersError``.
    """
    try:
        import tensorrt
    except ImportError as error:
        raise ConfigError(
            "--format tensorrt needs NVIDIA's package `tensorrt`, which is not installed here;"
            " export to onnx, or run this on a GPU machine with `pip install tensorrt`"
        ) from error
    if not torch.cuda.is_available():
        raise ConfigError(
            "--format tensorrt builds for the GPU of this machine, and there is none; export to"
            " onnx here, and run this on a machine with the GPU that will serve the model"
        )
    if not onnx_file.exists():
        to_onnx(model, sample, onnx_file)
    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    engine = _build(tensorrt, logger, onnx_file, tuple(sample.shape[1:]))
    path.write_bytes(engine)
    runtime = tensorrt.Runtime(logger)
    context = runtime.deserialize_cuda_engine(engine).create_execution_context()

    def run(batch: Tensor) -> Tensor:
        given = batch.cuda().contiguous()
        context.set_input_shape("input", tuple(given.shape))
        scores = torch.empty(tuple(context.get_tensor_shape("scores")), device="cuda")
        context.set_tensor_address("input", given.data_ptr())
        context.set_tensor_address("scores", scores.data_ptr())
        stream = torch.cuda.current_stream()
        if not context.execute_async_v3(stream.cuda_stream):
            raise ConfigError("--format tensorrt: the engine that was built does not run")
        stream.synchronize()
        return scores.cpu()

    return compare(model, run, sample)


def _build(tensorrt: Any, logger: Any, onnx_file: Path, shape: tuple[int, ...]) -> bytes:
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(onnx_file)):
        errors = [str(parser.get_error(place)) for place in range(parser.num_errors)]
        raise ConfigError(f"--format tensorrt cannot read it: {'; '.join(errors[:_LINES_MOST])}")
    settings = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("input", (1, *shape), (8, *shape), (BATCH_MOST, *shape))
    settings.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, settings)
    if engine is None:
        raise ConfigError("--format tensorrt: TensorRT could not build the engine; see above")
    return bytes(engine)
