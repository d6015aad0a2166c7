"""What is done to an image between its file and the model: crop, resize, flip, scale of numbers.

On the CPU the worker that read the sample crops, resizes and flips it. On the GPU the worker only
brings every image to one size a little larger than needed; the rest is done there for the whole
batch. Scaling happens where the batch is used. Either way every random choice comes from the
sample's own ``draws``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from trainer.protocol.train_options.data import DataOptions
from trainer.training.data.loading.data_parts import Array, DataSet

Draw = npt.NDArray[np.float64]
DRAWS = 5  # of each sample: area, ratio, top, left, mirrored
# What a photo's model is scored on: the middle 224 of 256 pixels, scaled with the size.
# Source: Krizhevsky et al., ImageNet Classification with Deep Convolutional Networks (2012), 4.1.
CENTRE = 224 / 256
# Source: Szegedy et al., Going Deeper with Convolutions (2014), section 6.
LEAST_RATIO, MOST_RATIO = 3 / 4, 4 / 3
SCALES = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5,), (0.5,)),
    "none": ((0.0,), (1.0,)),
}


@dataclass(frozen=True)
class Box:
    """A rectangle of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class ImageTransform:
    """For one part of a data set. ``shape`` is what comes out: (channels, height, width).

    centre: how much of the shorter side is kept where the crop is not random.
    mean, deviation: of bytes divided by 255; other numbers are not scaled.
    """

    shape: tuple[int, ...]
    crop: bool
    flip: bool
    area: tuple[float, ...]
    centre: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    on_gpu: bool

    def prepare(self, image: Array, draw: Draw) -> Tensor:
        """One image of any size to (channels, height, width), still bytes if it was.

        The size is ``shape``'s, or ``margin_size`` for what the GPU goes on with.
        """
        tensor = torch.from_numpy(image)
        height, width = tensor.shape[1:]
        if self.on_gpu:
            return _cut(tensor, centre_box(height, width, 1.0), self.margin_size)
        size = (self.shape[1], self.shape[2])
        if self.crop:
            tensor = _cut(tensor, random_box(height, width, self.area, draw), size)
        elif (height, width) != size or self.centre < 1:
            tensor = _cut(tensor, centre_box(height, width, self.centre), size)
        return tensor.flip(2) if self.flip and draw[4] < 0.5 else tensor

    def finish(self, images: Tensor, draws: Tensor) -> Tensor:
        """A batch of prepared images to what the model gets, where the batch is."""
        if self.on_gpu:
            images = self._crop_batch(images, draws)
        if images.dtype != torch.uint8:
            return images
        mean = _of_bytes(self.mean, images.device)
        return images.float().sub_(mean).div_(_of_bytes(self.deviation, images.device))

    @property
    def is_random(self) -> bool:
        """Whether anything depends on a sample's draws."""
        return self.crop or self.flip

    def keeps(self, shape: tuple[int, ...]) -> bool:
        """Whether ``prepare`` would leave an image of ``shape`` as it is."""
        return not (self.is_random or self.on_gpu) and self.centre == 1 and shape == self.shape

    @property
    def margin_size(self) -> tuple[int, int]:
        """(height, width) of the images that are sent to the GPU."""
        return round(self.shape[1] / self.centre), round(self.shape[2] / self.centre)

    def _crop_batch(self, images: Tensor, draws: Tensor) -> Tensor:
        """Crop and flip of (samples, channels, height, width), by one bilinear sampling.

        Without random crops the middle is cut out and nothing is interpolated.
        """
        height, width = self.shape[1:]
        mirrored = (draws[:, 4] < 0.5) if self.flip else torch.zeros_like(draws[:, 4]).bool()
        if not self.crop:
            box = Box(
                (images.shape[2] - height) // 2, (images.shape[3] - width) // 2, height, width
            )
            images = _pixels(images, box)
            return torch.where(mirrored.view(-1, 1, 1, 1), images.flip(3), images)
        share = self.area[0] + draws[:, 0] * (self.area[1] - self.area[0])
        ratio = torch.exp(_between(math.log(LEAST_RATIO), math.log(MOST_RATIO), draws[:, 1]))
        tall, wide = (share / ratio).sqrt().clamp(max=1), (share * ratio).sqrt().clamp(max=1)
        # affine_grid counts from -1 to 1 over the image; the middle of the box, then half its size.
        middle_y, middle_x = (1 - tall) * (2 * draws[:, 2] - 1), (1 - wide) * (2 * draws[:, 3] - 1)
        wide = torch.where(mirrored, -wide, wide)
        zero = torch.zeros_like(tall)
        rows = torch.stack([wide, zero, middle_x, zero, tall, middle_y], 1).view(-1, 2, 3)
        size = [len(images), self.shape[0], height, width]
        grid = functional.affine_grid(rows.float(), size, align_corners=False)
        cropped = functional.grid_sample(
            images.float(), grid, padding_mode="border", align_corners=False
        )
        return cropped.round().to(images.dtype) if images.dtype == torch.uint8 else cropped


def image_transforms(data: DataSet, options: DataOptions) -> tuple[ImageTransform, ImageTransform]:
    """For training, and for scoring: the same without anything random."""
    channels = data.shape[0]
    scale = options.normalize
    if scale == "auto" or (scale == "imagenet" and channels != 3):
        scale = "imagenet" if channels == 3 else "half"
    mean, deviation = SCALES[scale]

    def made(training: bool) -> ImageTransform:
        return ImageTransform(
            shape=data.shape,
            crop=training and _chosen(options.random_crop, data.photos),
            flip=training and _chosen(options.flip, data.photos),
            area=options.crop_area,
            centre=CENTRE if data.photos else 1.0,
            mean=mean,
            deviation=deviation,
            on_gpu=options.transforms_on == "gpu",
        )

    return made(True), made(False)


def random_box(height: int, width: int, area: tuple[float, ...], draw: Draw) -> Box:
    """A crop of the wanted area and shape, cut off where the image ends."""
    pixels = _between(area[0], area[1], float(draw[0])) * height * width
    ratio = math.exp(_between(math.log(LEAST_RATIO), math.log(MOST_RATIO), float(draw[1])))
    tall = min(height, max(1, round(math.sqrt(pixels / ratio))))
    wide = min(width, max(1, round(math.sqrt(pixels * ratio))))
    top, left = int(draw[2] * (height - tall + 1)), int(draw[3] * (width - wide + 1))
    return Box(top, left, tall, wide)


def centre_box(height: int, width: int, share: float) -> Box:
    """The square in the middle, ``share`` of the shorter side long."""
    side = max(1, round(min(height, width) * share))
    return Box((height - side) // 2, (width - side) // 2, side, side)


@functools.lru_cache(maxsize=16)
def _of_bytes(values: tuple[float, ...], device: torch.device) -> Tensor:
    """(1, channels, 1, 1), kept on the device: making it anew would wait for the batch's copy."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1) * 255


def _cut(image: Tensor, box: Box, size: tuple[int, int]) -> Tensor:
    """The box of (channels, height, width), brought to ``size`` with anti-aliasing."""
    pixels = _pixels(image[None], box)
    if (box.height, box.width) == size:
        return pixels[0]
    return functional.interpolate(pixels, size=size, mode="bilinear", antialias=True)[0]


def _pixels(images: Tensor, box: Box) -> Tensor:
    return images[:, :, box.top : box.top + box.height, box.left : box.left + box.width]


def _between(low: float, high: float, share: Any) -> Any:
    return low + share * (high - low)


def _chosen(choice: bool | str, photos: bool) -> bool:
    return photos if choice == "auto" else bool(choice)
