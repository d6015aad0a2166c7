"""Bytes of image files to arrays. Pillow decodes; without it image files cannot be read."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.training.data.loading.data_parts import Array, BadSampleError
from trainer.training.data.loading.order import Indices
from trainer.training.training_errors import ConfigError

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# A file that unpacks to more than this many pixels is taken for damaged or hostile.
MOST_PIXELS = 178_956_970


def require_decoder() -> Any:
    """Pillow's Image module. Raises ``ConfigError`` when it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            "data: image files need Pillow; add `pip install pillow` to setup, install"
            " lowtide[images], or convert the data to .npy arrays"
        ) from error
    return Image


def decode(data: bytes, channels: int, at_least: int | None = None) -> Array:
    """The image in ``data`` as (channels, height, width) of bytes; the first frame of several.

    at_least: a JPEG whose sides are both more than twice as long is read at half, a quarter or an
    eighth of its size, which costs that much less.
    Raises ``BadSampleError`` with what the decoder says.
    """
    image_module = require_decoder()
    try:
        with image_module.open(io.BytesIO(data)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise BadSampleError(f"it has {image.width} × {image.height} pixels")
            if at_least is not None:
                # Never smaller than asked for; does nothing for other formats.
                image.draft(None, (2 * at_least, 2 * at_least))
            pixels = np.array(image.convert(MODES[channels]))
    except BadSampleError:
        raise
    except Exception as error:  # Pillow names no exceptions for what a damaged file may hold
        first = (str(error).strip() or type(error).__name__).split("\n", 1)[0]
        raise BadSampleError(f"it cannot be decoded ({first.replace(repr(data), 'it')})") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def check_channels(channels: int) -> None:
    """Raises ``ConfigError`` for a number of channels that no image file can be read with."""
    if channels not in MODES:
        raise ConfigError(f"channels: image files are read with 1, 3 or 4 channels, not {channels}")


class EncodedImages(ABC):
    """Part of a source of images: read and decoded when they are asked for.

    labels: of all images; channels, at_least: as of `decode`.
    """

    labels: npt.NDArray[np.int64]
    channels: int
    at_least: int

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def encoded(self, index: int) -> tuple[bytes, int]:
        """As ``EncodedPart.encoded``."""

    def read(self, index: int) -> tuple[Array, Any]:
        """As ``Part.read``."""
        data, label = self.encoded(index)
        return decode(data, self.channels, self.at_least), label

    def read_many(self, ids: Indices) -> tuple[Array, Array] | None:
        """As ``Part.read_many``."""
        return None
