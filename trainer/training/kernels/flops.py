"""Floating-point operations of a model, and what share of the GPU's peak a run makes of them.

Counted, not guessed: one pass over tensors without storage (device ``meta``), so that it costs
no memory, touches no weight and draws no random number. Where a model cannot run there (its
shapes depend on values), nothing is said.

MFU follows Chowdhery et al., PaLM (2022), appendix B: operations that the model needs, recomputed
ones not counted, over the dense 16-bit peak of the GPU, whatever precision the run has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from trainer.protocol.gpu_models import GpuModel, model_of_device
from trainer.protocol.model_figures import known_figures
from trainer.training.config import TrainConfig

BACKWARD_OVER_FORWARD = 2
"""Fallback where only the forward pass can be counted: each product has two in the backward."""


@dataclass(frozen=True)
class ModelCount:
    """Operations of one sample (a multiplication and an addition are two), and what is learned.

    activation_bytes: kept for the backward pass, for one sample; None where it was not counted.
    """

    forward_flops: float
    training_flops: float
    parameters: int
    activation_bytes: float | None = None


def count_model(
    model: nn.Module,
    inputs: Tensor,
    loss_of: Callable[[Any], Tensor],
    dtype: torch.dtype | None = None,
) -> ModelCount | None:
    """Counts one training pass over a batch like ``inputs``, per sample.

    ``loss_of`` turns the model's output into a scalar. ``dtype``: what the pass runs in under
    autocast, None for the weights' own (activations are counted as if all of it did). Only shapes
    matter. None when the model cannot run on tensors without storage. Attention is counted as
    written out: a fused kernel keeps less.
    """
    from torch.utils.flop_counter import FlopCounterMode

    def stand_in(tensor: Tensor) -> Tensor:
        narrow = dtype if tensor.is_floating_point() else None
        return torch.empty_like(tensor, device="meta", dtype=narrow)

    stand_ins = {
        name: stand_in(tensor).requires_grad_(tensor.requires_grad)
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    }
    batch = stand_in(inputs)
    kept: dict[int, int] = {}
    weights = {_storage(tensor) for tensor in stand_ins.values()}

    def keep(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in weights:
            kept[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    samples = max(1, len(inputs))
    parameters = sum(each.numel() for each in model.parameters())
    counter = FlopCounterMode(display=False)
    forward = 0.0
    try:
        with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = loss_of(functional_call(model, stand_ins, (batch,)))
            forward = float(counter.get_total_flops())
            activations = sum(kept.values()) / samples
            loss.backward()  # type: ignore[no-untyped-call]
        total = float(counter.get_total_flops())
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        if forward == 0:
            return None
        total, activations = forward * (1 + BACKWARD_OVER_FORWARD), None
    return ModelCount(forward / samples, total / samples, parameters, activations)


def count_for(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None = None
) -> ModelCount | None:
    """``count_model`` for samples of ``shape``: images, or windows of tokens."""
    tokens = len(shape) == 1
    sample = torch.empty((2, *shape), dtype=torch.int64 if tokens else torch.float32, device="meta")
    return count_model(model, sample, _cross_entropy, dtype)


def training_flops_of(
    config: TrainConfig, model: nn.Module, shape: tuple[int, ...], classes: int
) -> float | None:
    """Operations to train on one sample: known for the own models, counted for others.

    None where a model can neither be known nor counted, as one that is spread over the ranks.
    """
    known = None if config.model_options else known_figures(config.model, shape, classes)
    if known is not None:
        return known.training_flops
    if any(hasattr(each, "device_mesh") for each in model.parameters()):
        return None
    count = count_for(model, shape)
    if count is None:
        return None
    # Passes that are computed twice to save memory are counted twice, and are no use twice.
    return min(count.training_flops, (1 + BACKWARD_OVER_FORWARD) * count.forward_flops)


def this_gpu(device: torch.device) -> GpuModel | None:
    """The catalog's entry of this rank's GPU; None on a CPU, or for one that is not in it."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return model_of_device(properties.name, properties.total_memory)


def mfu(training_flops: float, samples_per_second: float, gpus: int, gpu: GpuModel) -> float:
    """Model FLOPs utilisation, 0 to 1, of ``gpus`` that train ``samples_per_second`` together."""
    return training_flops * samples_per_second / (gpus * gpu.tensor_tflops * 1e12)


def usd_per_million_samples(usd_per_hour: float, samples_per_second: float) -> float:
    """Price of a million samples at this speed; ``usd_per_hour`` is of all machines together."""
    return usd_per_hour / 3_600 / samples_per_second * 1e6


def _cross_entropy(scores: Tensor) -> Tensor:
    flat = scores.flatten(0, -2)
    labels = torch.zeros(len(flat), dtype=torch.int64, device=flat.device)
    return functional.cross_entropy(flat, labels)


def _storage(tensor: Tensor) -> int:
    """Names a storage; tensors without memory have no address, so the object itself counts."""
    return int(tensor.untyped_storage()._cdata)
