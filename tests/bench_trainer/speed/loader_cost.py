"""What reading data costs: beside a plain DataLoader over Pillow, with workers, and in memory.

The plain reader does per image what anybody would write: open, convert, crop and resize, flip,
scale, stack. Both read the same files in the same order, in one process.
"""

from __future__ import annotations

import io
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from tests.bench.results import Figure
from tests.bench_trainer.around import Around
from trainer.protocol.train_options.data import DataOptions
from trainer.training.data import SampleOrder, load_data
from trainer.training.data.loading.loader import Loader

PHOTO = (500, 375)  # ImageNet's usual
BATCH = 32
RATIO_GOAL = 1.0
IN_MEMORY_GOAL_MICROSECONDS = 40.0
ROUNDS = 3


def measure(around: Around) -> list[Figure]:
    """CPU per image against the plain reader; images per second by workers; the cost in memory."""
    torch.set_num_threads(1)
    folder = _photos(around.new_folder("photos"), around.count(512, 128))
    steps = around.count(12, 3)
    plain, ours = [], []
    for number in range(ROUNDS):
        plain.append(_cpu(lambda: _plain(folder, steps), steps))
        ours.append(_cpu(lambda: _loaded(folder, steps), steps))
        around.say(f"round {number + 1}: plain {plain[-1]:.2f}, ours {ours[-1]:.2f} ms of CPU")
    ratios = [mine / theirs for mine, theirs in zip(ours, plain, strict=True)]
    detail = {
        "plain_cpu_ms_per_image": statistics.median(plain),
        "our_cpu_ms_per_image": statistics.median(ours),
        "ratios": ratios,
    }
    ratio = statistics.median(ratios)
    return [
        Figure("loader", "CPU per photo / plain", ratio, "x", RATIO_GOAL, detail=detail),
        _by_workers(around, folder, steps),
        _in_memory(around),
    ]


def _by_workers(around: Around, folder: Path, steps: int) -> Figure:
    rates = {}
    for workers in (0, 1, 2):
        loader = _started(folder, workers)
        loader.next()
        began = time.perf_counter()
        for _ in range(4 * steps):
            loader.next()
        rates[workers] = 4 * steps * BATCH / (time.perf_counter() - began)
        loader.close()
        around.say(f"{workers} workers: {rates[workers]:.0f} photos/s")
    detail = {"photos_per_second_by_workers": rates, "cores": os.cpu_count()}
    ratio = rates[2] / rates[0]
    return Figure("loader", "photos with 2 workers / none", ratio, "x", detail=detail)


def _in_memory(around: Around) -> Figure:
    """Median CPU of one ``next`` on digits, its epoch's permutation included."""
    data = load_data("digits", 0)
    order = SampleOrder(0, len(data.train), 64)
    device = torch.device("cpu")
    loader = Loader(data, order, rank=0, world_size=1, device=device, seed=0)
    loader.start(0)
    rounds = []
    for _ in range(7):
        started = time.process_time()
        for _ in range(around.count(2_000, 500)):
            loader.next()
        rounds.append((time.process_time() - started) / around.count(2_000, 500) * 1e6)
    value = statistics.median(rounds)
    goal = IN_MEMORY_GOAL_MICROSECONDS
    return Figure("loader", "CPU per batch in memory", value, "us", goal, detail={"rounds": rounds})


def _cpu(work: Callable[[], Any], steps: int) -> float:
    """CPU milliseconds per image of what runs in this process."""
    before = time.process_time()
    work()
    return (time.process_time() - before) * 1e3 / (steps * BATCH)


def _loaded(folder: Path, steps: int) -> None:
    loader = _started(folder, 0)
    for _ in range(steps):
        loader.next()


def _started(folder: Path, workers: int) -> Loader:
    options = DataOptions(workers=workers, cache="off", split=(1, 0, 0))
    data = load_data(str(folder), 0, options)
    order = SampleOrder(0, len(data.train), BATCH)
    device = torch.device("cpu")
    loader = Loader(data, order, rank=0, world_size=1, device=device, seed=0, options=options)
    loader.start(0)
    return loader


def _plain(folder: Path, steps: int) -> None:
    files = sorted(folder.rglob("*.jpg"))
    order = SampleOrder(0, len(files), BATCH)
    wanted = [int(each) for step in range(steps) for each in order.batch(step)]
    loader: Iterator[Any] = iter(DataLoader(_Photos(files), batch_size=BATCH, sampler=wanted))
    for _ in loader:
        pass


class _Photos(Dataset[tuple[torch.Tensor, int]]):
    """What anybody would write."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self._deviation = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self._files[index]) as image:
            generator = np.random.default_rng(index)
            width, height = image.size
            wide, tall = (int(side * (0.3 + 0.7 * generator.random())) for side in (width, height))
            left = int(generator.random() * (width - wide))
            top = int(generator.random() * (height - tall))
            box = (left, top, left + wide, top + tall)
            resample = Image.Resampling.BILINEAR
            pixels = np.asarray(image.convert("RGB").resize((224, 224), resample, box))
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div(255)
        if generator.random() < 0.5:
            tensor = tensor.flip(2)
        return (tensor - self._mean) / self._deviation, index % 10


def _photos(root: Path, count: int) -> Path:
    """JPEGs of ImageNet's usual size: smooth, with some detail, about 50 KB each."""
    generator = np.random.RandomState(0)
    for number in range(count):
        coarse = generator.randint(0, 255, (25, 34, 3)).astype(np.uint8)
        pixels = np.asarray(Image.fromarray(coarse).resize(PHOTO, Image.Resampling.BICUBIC))
        noise = generator.randint(-12, 12, pixels.shape)
        file = io.BytesIO()
        Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8)).save(
            file, "JPEG", quality=88
        )
        folder = root / f"class-{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:05d}.jpg").write_bytes(file.getvalue())
    return root
