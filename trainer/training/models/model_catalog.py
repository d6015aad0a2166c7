"""From the name in a configuration to a model. The names themselves: ``MODELS``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from trainer.training.models import small
from trainer.training.models.gpt import Gpt
from trainer.training.models.outside import outside_model
from trainer.training.models.resnet import resnet
from trainer.training.models.vision_transformer import VisionTransformer
from trainer.training.training_errors import ConfigError

Shape = tuple[int, ...]
Builder = Callable[..., nn.Module]


def _vit(width: int, heads: int) -> Builder:
    def build(shape: Any, classes: int, **options: Any) -> nn.Module:
        return VisionTransformer(shape, classes, width=width, depth=12, heads=heads, **options)

    return build


def _gpt(width: int, depth: int, heads: int) -> Builder:
    def build(shape: Any, classes: int, **options: Any) -> nn.Module:
        return Gpt(shape[0], classes, width=width, depth=depth, heads=heads, **options)

    return build


IMAGE_MODELS: dict[str, Builder] = {
    "cnn": small.cnn,
    "resnet18": lambda shape, classes: resnet(18, shape, classes),
    "resnet50": lambda shape, classes: resnet(50, shape, classes),
    "resnet152": lambda shape, classes: resnet(152, shape, classes),
    "vit_small": _vit(width=384, heads=6),
    "vit_base": _vit(width=768, heads=12),
}
TOKEN_MODELS: dict[str, Builder] = {
    "gpt_tiny": _gpt(width=64, depth=2, heads=2),
    "gpt_small": _gpt(width=768, depth=12, heads=12),
}
MODELS: dict[str, Builder] = {"mlp": small.mlp, **IMAGE_MODELS, **TOKEN_MODELS}


def build_model(
    name: str, shape: Shape, classes: int, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """A freshly initialised model, on the current default device, from torch's generator.

    name: of ``MODELS``, or ``module:factory``, ``timm:NAME``, ``torchvision:NAME``.
    shape: of one sample: (channels, height, width) of images, (length,) of token windows.
    classes: of labels, or the vocabulary's size.
    options: further keyword arguments of the model, such as ``dropout``.
    Raises ``ConfigError`` in one line.
    """
    options = dict(options or {})
    if ":" in name:
        return outside_model(name, shape, classes, options)
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"model: {name!r} is not known; one of {', '.join(MODELS)}{hint}")
    if name in IMAGE_MODELS and len(shape) != 3:
        raise ConfigError(f"model: {name} takes images, the data has samples of shape {shape}")
    if name in TOKEN_MODELS and len(shape) != 1:
        raise ConfigError(f"model: {name} takes tokens, the data has samples of shape {shape}")
    try:
        return MODELS[name](shape, classes, **options)
    except TypeError as error:
        raise ConfigError(f"model_options: not accepted by {name}: {error}") from error
