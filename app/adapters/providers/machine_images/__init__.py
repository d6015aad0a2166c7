"""Which machine image knows which GPU: data with a date and a source for each provider.

Lives here: the shipped images, and which one counts where a person names others. Not here: what a
cloud makes of an image's name (each provider's own folder), or the machine types
(`machine_catalog`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from app.domain.market.gpu_catalog import GPU_NAMES
from app.domain.market.machine_catalog import MachineCatalog, MachineType
from app.domain.market.offer import Hardware

IMAGE_PROVIDERS: Final = ("aws", "gcp")


@dataclass(frozen=True, slots=True)
class ShippedImage:
    """One image, by the name that its cloud resolves to the newest version.

    gpus: those that its driver knows, by catalog name. local_disks: where the image itself mounts
    the machine's local disks, "" where it leaves them alone. docker: it brings docker and NVIDIA's
    container toolkit. source: which document says so.
    """

    name: str
    gpus: tuple[str, ...]
    architecture: str
    python: str
    driver: str
    local_disks: str
    docker: bool
    source: str


@dataclass(frozen=True, slots=True)
class MissingImage:
    """GPUs that no shipped image's driver knows, and why."""

    gpus: tuple[str, ...]
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class ShippedImages:
    """The images of one provider; the first is the one for machines without a GPU."""

    images: tuple[ShippedImage, ...]
    without_image: tuple[MissingImage, ...]

    @property
    def default(self) -> str:
        """The image that most GPUs use."""
        return self.images[0].name

    def name_for(self, gpu: str) -> str | None:
        """The image whose driver knows this GPU ("": no GPU); None where none does."""
        if not gpu:
            return self.default
        return next((one.name for one in self.images if gpu in one.gpus), None)

    def why_not(self, gpu: str) -> str:
        """Why no image is shipped for the GPU, as the end of a sentence."""
        known = (one.reason for one in self.without_image if gpu in one.gpus)
        return next(known, "none is shipped for it")


@functools.cache
def shipped_images(provider: str) -> ShippedImages:
    """The images that came with this release. Raises LookupError for an unknown provider."""
    if provider not in IMAGE_PROVIDERS:
        raise LookupError(f"there are no machine images of {provider!r}")
    path = Path(__file__).with_name(f"{provider}.json")
    told: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return ShippedImages(
        tuple(ShippedImage(**{**one, "gpus": tuple(one["gpus"])}) for one in told["images"]),
        tuple(MissingImage(**{**one, "gpus": tuple(one["gpus"])}) for one in told["without_image"]),
    )


def image_for(
    provider: str, gpu: str, general: str | None, by_gpu: Iterable[tuple[str, str]] = ()
) -> str | None:
    """The image for machines with this GPU ("": none), None where nobody named one.

    general: a person's image in place of the shipped ones, for the GPUs that those serve. by_gpu:
    a person's images for single GPUs; each counts before all others.
    """
    named = dict(by_gpu).get(gpu)
    shipped = shipped_images(provider).name_for(gpu)
    if named is not None or shipped is None:
        return named
    return general or shipped


def booted_hardware(provider: str, kind: MachineType, image: str | None) -> Hardware:
    """What machines of this type carry once they have booted this image.

    Containers: not with a shipped image that is known to lack docker; of others nobody here can
    know.
    """
    shipped = shipped_images(provider).images
    lacking = any(one.name == image and not one.docker for one in shipped)
    return replace(kind.hardware, containers=not lacking)


def images_in_use(image: Callable[[str], str | None]) -> dict[str, tuple[str, ...]]:
    """Every image that `image` knows, with its GPUs: first that of machines without a GPU ("")."""
    found: dict[str, tuple[str, ...]] = {}
    for gpu in ("", *sorted(GPU_NAMES)):
        name = image(gpu)
        if name is not None:
            found[name] = (*found.get(name, ()), gpu)
    return found


def with_images(catalog: MachineCatalog, image: Callable[[str], str | None]) -> MachineCatalog:
    """The catalog without the machine types for whose GPU `image` knows none."""
    kept = tuple(one for one in catalog.types if image(one.gpu) is not None)
    return MachineCatalog(catalog.provider, catalog.as_of, catalog.source, kept)


def read_named_images(value: object) -> Any:
    """`"V100=ami-1, B200=ami-2"` as (GPU, image) pairs; anything but text as it is.

    Raises ValueError saying what is wrong.
    """
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    found: dict[str, str] = {}
    for part in parts:
        gpu, separator, image = (word.strip() for word in part.partition("="))
        gpu = gpu.upper()
        if not separator or not image:
            raise ValueError(f"{part[:60]!r} must have the form GPU=IMAGE")
        if gpu not in GPU_NAMES:
            raise ValueError(
                f"{gpu[:20]!r} is not a GPU; write one of {', '.join(sorted(GPU_NAMES))}"
            )
        if gpu in found:
            raise ValueError(f"names {gpu} twice")
        found[gpu] = image
    return tuple(sorted(found.items()))
