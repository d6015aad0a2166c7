"""Whether a training run fits a GPU, and what it needs there: memory, time, micro-batch, workers.

Lives here: the closed-form part, without PyTorch, so that the control plane can ask "what if". Not
here: counting a model that is not one of the trainer's own, and measuring on the machine at hand
(``python -m trainer.training.estimate``).

A step takes the longer of two times (the roofline model, Williams et al. 2009)::

    computing  = training_flops x samples / (peak of the GPU x COMPUTE_SHARE)
    memory     = traffic_elements x bytes x samples / (bandwidth of the GPU x BANDWIDTH_SHARE)

and the update of the weights, which is memory traffic alone. The shares are what known good code
reaches, each from one published measurement; so is the loss from training on several GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainer.protocol.gpu_models import GPU_MODELS, GpuModel
from trainer.protocol.model_figures import ModelFigures

BANDWIDTH_SHARE: Final = {2: 0.51, 4: 0.39}
"""Of the data sheet's bandwidth, by bytes of a number: ResNet-50 v1.5 on one A100 of 80 GB makes
2,470 images a second with AMP and 938 with TF32 (NVIDIA DeepLearningExamples, resnet50v1.5, 21.03);
so many x 19 passes x 11.1 million numbers, against 2,039 GB a second."""

COMPUTE_SHARE: Final = 0.45
COMPUTE_SHARE_FAST: Final = 0.29
"""Of the dense 16-bit peak: ViT-g/14 on 8 A100 makes 693 samples a second, on 8 H100 1,428 (NVIDIA
NeMo framework, ViT performance). The second holds for GPUs of ``FAST_TFLOPS`` and more, whose
memory and launches have not kept pace with their tensor cores."""

FAST_TFLOPS: Final = 500

PEAK_SHARE: Final = {"bf16": 1.0, "fp16": 1.0, "fp8": 1.0, "tf32": 0.5, "fp32": 1 / 16}
"""Of the dense 16-bit peak, by precision (NVIDIA A100 and H100 data sheets). fp8 is counted like
16 bits, because only the products of linear layers get it; fp32 is faster than this on GPUs older
than these, which have fewer tensor cores."""

STEP_LEAST_SECONDS: Final = 0.000_3
"""A bare PyTorch loop spends 272 microseconds of a processor on the step of a tiny network
(measured, PyTorch 2.13): no GPU makes a step shorter."""

SCALING: Final = 0.84
"""Throughput of n GPUs of one machine over n times one: 16,621 of 8 x 2,470 images a second (the
same measurement of NVIDIA's). Between machines it depends on the network."""

DECODED_PER_WORKER: Final = 300.0
"""JPEGs of 500 x 375 pixels that one worker decodes, crops and resizes a second: Pillow makes 620
to 700 on one core of a server, and a cloud's virtual CPU is half a core."""

FIXED_MEMORY_GB: Final = 1.5
"""CUDA context, libraries and their workspaces: an allowance."""

USABLE_MEMORY: Final = 0.92
"""Of a GPU's named memory; the rest is the driver's and lost to fragmentation. An allowance."""

_BYTES: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
_OLD: Final = frozenset({"P100", "V100", "T4"})
_NO_FP8: Final = _OLD | {"A10G", "A100"}
_OPTIMIZER_BYTES: Final = {"sgd": 4, "adamw": 8}
_GB: Final = 1e9


@dataclass(frozen=True)
class RunFigures:
    """The run: its model's figures and the options that cost something.

    batch_size is over all GPUs. samples: of the whole run, every epoch counted.
    """

    figures: ModelFigures
    batch_size: int
    samples: int
    precision: str = "bf16"
    optimizer: str = "sgd"
    ema: bool = False
    decodes_images: bool = True

    @property
    def bytes_per_number(self) -> int:
        """Of activations and their traffic."""
        return _BYTES.get(self.precision, 2)

    @property
    def total_flops(self) -> float:
        """Of the whole run."""
        return self.figures.training_flops * self.samples


@dataclass(frozen=True)
class Memory:
    """Of one GPU in bytes, with ``micro_batch`` samples at a time."""

    micro_batch: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    fixed: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.fixed


@dataclass(frozen=True)
class GpuEstimate:
    """The run on ``gpus`` of one kind. ``micro_batch`` 0: not even one sample fits.

    limit: computing, memory traffic or launches. usd: None where no price was told.
    """

    gpu: GpuModel
    gpus: int
    micro_batch: int
    accumulation: int
    memory: Memory
    step_seconds: float
    samples_per_second: float
    limit: str
    mfu: float
    hours: float
    workers: int
    usd: float | None = None


def training_memory(work: RunFigures, micro_batch: int, gpus: int = 1) -> Memory:
    """Weights in 32 bits (and a 16-bit copy while autocast runs), gradients, the optimizer's state,
    EMA, and what the backward pass needs of ``micro_batch`` samples.

    With several GPUs the gradients are held twice: in the weights and in the buckets that travel.
    """
    parameters = work.figures.parameters
    copy = 2 if work.bytes_per_number == 2 else 0
    ema = 4 if work.ema else 0
    return Memory(
        micro_batch=micro_batch,
        weights=parameters * (4.0 + copy),
        gradients=parameters * 4.0 * (2 if gpus > 1 else 1),
        optimizer=parameters * (float(_OPTIMIZER_BYTES.get(work.optimizer, 8)) + ema),
        activations=work.figures.activation_elements * work.bytes_per_number * micro_batch,
        fixed=FIXED_MEMORY_GB * _GB,
    )


def fitting_micro_batch(work: RunFigures, gpu: GpuModel, gpus: int) -> int:
    """The largest share of the batch that fits, after halving it as often as needed; 0 if none."""
    room = gpu.memory_gb * 2**30 * USABLE_MEMORY
    micro_batch = math.ceil(work.batch_size / gpus)
    while micro_batch >= 1:
        if training_memory(work, micro_batch, gpus).total <= room:
            return micro_batch
        if micro_batch == 1:
            return 0
        micro_batch = math.ceil(micro_batch / 2)
    return 0


def step_seconds(work: RunFigures, gpu: GpuModel, gpus: int = 1) -> tuple[float, str]:
    """Time of one optimizer step, and what limits it."""
    samples = work.batch_size / gpus
    peak = gpu.tensor_tflops * 1e12 * PEAK_SHARE[work.precision] * _compute_share(gpu)
    computing = work.figures.training_flops * samples / peak
    bandwidth = gpu.bandwidth_gb_per_second * _GB * BANDWIDTH_SHARE[work.bytes_per_number]
    memory = work.figures.traffic_elements * work.bytes_per_number * samples / bandwidth
    # Weights, gradients and state are read, weights and state are written: all in 32 bits.
    state = _OPTIMIZER_BYTES.get(work.optimizer, 8) + (4 if work.ema else 0)
    update = work.figures.parameters * (3 * 4 + 2 * state) / bandwidth
    scaling = SCALING if gpus > 1 else 1.0
    seconds = (max(computing, memory) + update) / scaling
    if seconds < STEP_LEAST_SECONDS:
        return STEP_LEAST_SECONDS, "launches"
    return seconds, "computing" if computing > memory else "memory traffic"


def can_run(work: RunFigures, gpu: GpuModel) -> bool:
    """Whether this kind has the run's numbers: bf16 and TF32 since Ampere, fp8 since Ada."""
    if work.precision in ("bf16", "tf32"):
        return gpu.name not in _OLD
    return work.precision != "fp8" or gpu.name not in _NO_FP8


def estimate_on(
    work: RunFigures, gpu: GpuModel, gpus: int = 1, usd_per_gpu_hour: float | None = None
) -> GpuEstimate:
    """The whole run on ``gpus`` of one kind, without interruptions."""
    micro_batch = fitting_micro_batch(work, gpu, gpus)
    seconds, limit = step_seconds(work, gpu, gpus)
    per_second = work.batch_size / seconds
    hours = work.samples / per_second / 3_600
    share = math.ceil(work.batch_size / gpus)
    usable = gpus * gpu.tensor_tflops * 1e12
    return GpuEstimate(
        gpu=gpu,
        gpus=gpus,
        micro_batch=micro_batch,
        accumulation=math.ceil(share / micro_batch) if micro_batch else 0,
        memory=training_memory(work, max(1, micro_batch), gpus),
        step_seconds=seconds,
        samples_per_second=per_second,
        limit=limit,
        mfu=work.figures.training_flops * per_second / usable,
        hours=hours,
        workers=_workers(work, per_second / gpus),
        usd=None if usd_per_gpu_hour is None else usd_per_gpu_hour * gpus * hours,
    )


def ranked(
    work: RunFigures,
    gpus: int = 1,
    usd_per_gpu_hour: Mapping[str, float] | None = None,
    models: Sequence[GpuModel] = GPU_MODELS,
) -> list[GpuEstimate]:
    """Every kind that the run fits on and that has its numbers: the cheapest first where prices
    are told (by ``label`` or name), else the fastest; kinds without a price come last.
    """
    prices = usd_per_gpu_hour or {}
    found = [
        estimate_on(work, gpu, gpus, prices.get(gpu.label, prices.get(gpu.name)))
        for gpu in models
        if can_run(work, gpu)
    ]
    fitting = [one for one in found if one.micro_batch > 0]
    return sorted(fitting, key=lambda one: (one.usd is None, one.usd or 0.0, one.hours))


def scaled(measured_samples_per_second: float, here: GpuEstimate, there: GpuEstimate) -> float:
    """Samples a second on another kind of GPU, from a measurement on this one: the roofline of both
    says how they compare, and what both get wrong alike cancels out.
    """
    return measured_samples_per_second * there.samples_per_second / here.samples_per_second


def _compute_share(gpu: GpuModel) -> float:
    return COMPUTE_SHARE_FAST if gpu.tensor_tflops >= FAST_TFLOPS else COMPUTE_SHARE


def _workers(work: RunFigures, samples_per_second: float) -> int:
    """Processes that decode images for one GPU; 2 where nothing is decoded."""
    if not work.decodes_images:
        return 2
    return max(2, math.ceil(samples_per_second / DECODED_PER_WORKER))
