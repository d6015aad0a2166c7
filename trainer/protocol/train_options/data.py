"""Options of reading the data, and the defaults for data options that were not set.

Standard library only: the control plane reckons with the same sizes as the trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from trainer.protocol.train_options.option import OptionError, option
from trainer.protocol.train_options.section import Section

PHOTO_SIZE: Final = 224
"""Height and width of image files' samples where `image_size` is open."""

GPT2_VOCABULARY: Final = 50_257
"""Tokens there are where neither `vocabulary` nor the files say it."""

DIGITS_SHAPE: Final = (1, 8, 8)
DIGITS_CLASSES: Final = 10
DIGITS_SAMPLES: Final = 1_797
"""Scikit-learn's handwritten digits: channels, height and width, classes, and how many."""

_MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True)
class DataOptions(Section):
    """How the samples of ``data`` are read. What a sample is, and the layouts: docs/data.md."""

    split: tuple[int, ...] = option(
        (7, 2, 1),
        length=3,
        low=0,
        high=_MILLION,
        identity=True,
        about="Shares of train, validation and test if the data has no folders for them",
    )
    image_size: int | None = option(
        None,
        low=1,
        high=4_096,
        identity=True,
        about=f"Height and width that the model gets; not set: {PHOTO_SIZE} for image files, else"
        " as stored",
    )
    channels: int = option(
        3, low=1, high=4, identity=True, about="Channels of image files; 1 is grey"
    )
    random_crop: bool | Literal["auto"] = option(
        "auto",
        identity=True,
        about="Random resized crops in training; auto: for image files",
    )
    crop_area: tuple[float, ...] = option(
        (0.08, 1.0),
        length=2,
        low=0.01,
        high=1,
        identity=True,
        about="Smallest and largest share of the image's area that a random crop covers",
    )
    flip: bool | Literal["auto"] = option(
        "auto", identity=True, about="Mirror half of the training images; auto: for image files"
    )
    normalize: str = option(
        "auto",
        choices=("auto", "imagenet", "half", "none"),
        identity=True,
        about="Scaling of byte images: by ImageNet's mean and deviation, by 0.5 and 0.5, or to 0..1"
        " only; auto: imagenet with 3 channels, else half. Float images stay as they are",
    )
    transforms_on: str = option(
        "cpu",
        choices=("cpu", "gpu"),
        identity=True,
        about="Where images are cropped and flipped; on a GPU, bytes become floats there anyway",
    )
    workers: int | Literal["auto"] = option(
        "auto",
        low=0,
        high=256,
        about="Processes per rank that read samples; auto: none for data in memory, else up to 8",
    )
    prefetch: int = option(2, low=1, high=64, about="Micro-batches read ahead by each worker")
    on_bad_sample: str = option(
        "fail",
        choices=("fail", "skip"),
        identity=True,
        about="A sample that cannot be read: end the run, or use the next one and count it",
    )
    cache: str = option(
        "auto",
        choices=("auto", "off"),
        pattern=r"/.*",
        how="an absolute path",
        about="Folder for files of a bucket and for indexes; auto: in LOWTIDE_SCRATCH_DIR, else in"
        " /scratch, else in the user's cache folder",
    )
    cache_gb: float | None = option(
        None,
        low=0.1,
        high=100_000,
        about="Largest size of the cache; not set: half of the free space",
    )
    loader: str = option(
        "torch", choices=("torch", "dali"), identity=True, about="Decoder of image files"
    )
    context_length: int = option(
        1024, low=1, high=_MILLION, identity=True, about="Tokens in a window of a token file"
    )
    token_type: str = option(
        "uint16",
        choices=("uint16", "uint32"),
        identity=True,
        about="Type of tokens in a .bin file; .npy files contain it",
    )
    vocabulary: int | None = option(
        None,
        low=2,
        high=100 * _MILLION,
        identity=True,
        about=f"Number of different tokens; not set: as in meta.json, else {GPT2_VOCABULARY:,}",
    )
    synthetic_samples: int = option(
        1280, low=1, high=100 * _MILLION, identity=True, about="Number of synthetic samples"
    )
    synthetic_classes: int = option(
        10,
        low=1,
        high=100 * _MILLION,
        identity=True,
        about="Classes, or different tokens, of synthetic data",
    )
    synthetic_shape: tuple[int, ...] = option(
        (3, 32, 32),
        low=1,
        high=_MILLION,
        identity=True,
        about="Channels, height and width of synthetic images; one number: tokens in a window",
    )
    synthetic_fixed: bool = option(
        False,
        identity=True,
        about="Keep its first batch on the device and train on that alone: for throughput",
    )

    def check(self) -> None:
        """Shares that leave something to train on, bounds in order. Raises ``OptionError``."""
        if self.split[0] == 0:
            raise OptionError("split", "the first share, to train on, cannot be 0")
        if self.crop_area[0] > self.crop_area[1]:
            raise OptionError("crop_area", "write the least share first")
        if len(self.synthetic_shape) not in (1, 3):
            raise OptionError(
                "synthetic_shape", "write [channels, height, width], or [tokens] for token windows"
            )
