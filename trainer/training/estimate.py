"""``python -m trainer.training.estimate``: what a run will need, before anything is rented.

    --config FILE          the run, as for training
    --gpu NAME[:MEMORY][:COUNT] ...   A100:80GB, H100:8; default: one of every known kind
    --samples N            training samples of one epoch; with --shape the data is not looked at
    --shape 3x224x224      of one sample, or the tokens of a window; --classes N
    --price NAME=USD ...   for one GPU and hour; then the cheapest comes first
    --calibrate STEPS      measures so many steps on this machine
    --json                 for programs

The figures come from ``trainer/protocol/train_estimate.py``, which says where each constant is
from. Interruptions, start-up and evaluations are not in them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainer.protocol.gpu_models import GPU_MODELS, GPU_NAMES, GpuModel, model_of_label
from trainer.training.config import TrainConfig, load_config
from trainer.training.data import DataSet, load_data
from trainer.training.estimating.estimate_report import as_text
from trainer.training.estimating.run_estimate import estimate
from trainer.training.estimating.step_measurement import calibrate
from trainer.training.gang.ending import EXIT_CONFIG
from trainer.training.kernels.flops import this_gpu
from trainer.training.training_errors import ONE_LINE_ERRORS, ConfigError

_BUILT_IN = ("digits", "synthetic")


def gpus_named(texts: Sequence[str]) -> list[tuple[GpuModel, int]]:
    """``A100:80GB:8`` to (kind, count); every known kind once for none. Raises ``ConfigError``."""
    if not texts:
        return [(gpu, 1) for gpu in GPU_MODELS]
    found = []
    for text in texts:
        label, count = text, 1
        counted = re.fullmatch(r"(.*):(\d{1,4})", text)
        if counted is not None and int(counted[2]) > 0:
            label, count = counted[1], int(counted[2])
        gpu = model_of_label(label)
        if gpu is None:
            raise ConfigError(f"--gpu: {text!r} is not known; one of {', '.join(GPU_NAMES)}")
        found.append((gpu, count))
    return found


def prices_named(texts: Sequence[str]) -> dict[str, float]:
    """``A100:80GB=1.5`` to a price by label or name. Raises ``ConfigError``."""
    prices = {}
    for text in texts:
        label, _, usd = text.partition("=")
        gpu = model_of_label(label)
        if gpu is None or not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", usd):
            raise ConfigError(f"--price: {text!r} is not like A100:80GB=1.50")
        prices[gpu.label if ":" in label else gpu.name] = float(usd)
    return prices


def data_of(
    config: TrainConfig, shape: str | None, classes: int, samples: int | None
) -> tuple[DataSet, int]:
    """The data, or a stand-in of the shape that was named; and the samples of one epoch.

    Raises ``ConfigError``.
    """
    if shape is None:
        try:
            data = load_data(config.data, config.seed, config)
        except ConfigError as error:
            raise ConfigError(
                f"{error}; with --shape and --samples the data is not needed"
            ) from error
        return data, samples or len(data.train)
    if not re.fullmatch(r"\d{1,7}(x\d{1,7}x\d{1,7})?", shape):
        raise ConfigError(f"--shape: {shape!r} is not like 3x224x224 or 1024")
    if samples is None:
        raise ConfigError("--shape: say how many --samples an epoch has, too")
    stand_in = replace(
        config,
        data="synthetic",
        synthetic_shape=tuple(map(int, shape.split("x"))),
        synthetic_classes=classes,
        synthetic_samples=max(10, config.batch_size),
        image_size=None,
    )
    data = load_data("synthetic", config.seed, stand_in)
    photos = data.kind == "images" and config.data not in _BUILT_IN
    return replace(data, photos=photos), samples


def main() -> int:
    """Parses the command line and prints; returns the exit code."""
    parser = argparse.ArgumentParser(prog="trainer.training.estimate")
    parser.add_argument("--config", type=Path, required=True, help="JSON file of the run")
    parser.add_argument("--gpu", nargs="+", default=[], metavar="NAME", help="A100:80GB:8")
    parser.add_argument("--samples", type=int, help="training samples of one epoch")
    parser.add_argument("--shape", help="of one sample, 3x224x224, or 1024 for tokens")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--price", nargs="+", default=[], metavar="NAME=USD")
    parser.add_argument("--calibrate", type=int, default=0, metavar="STEPS")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        config = load_config(options.config)
        data, samples = data_of(config, options.shape, options.classes, options.samples)
        gpus, prices = gpus_named(options.gpu), prices_named(options.price)
        measured = gpu_here = None
        if options.calibrate > 0:
            share = -(-config.batch_size // config.accumulation)
            measured = calibrate(config, data, share, options.calibrate)
            gpu_here = this_gpu(measured.device)
        found = estimate(config, data, samples, gpus, prices, measured, gpu_here)
    except ONE_LINE_ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    print(json.dumps(found.to_json(), indent=1) if options.json else as_text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
