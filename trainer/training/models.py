"""The models one can name in a configuration, written out here so that nothing else is installed.

Each takes (samples, channels, height, width) and gives (samples, classes) of unnormalised scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

ImageShape = tuple[int, int, int]
DROPOUT = 0.25
# Images smaller than this lose too much in ResNet's usual stem (stride 2, then pooling by 2).
SMALL_IMAGE = 64


def build_model(name: str, shape: ImageShape, classes: int) -> nn.Module:
    """Builds a freshly initialised model for images of ``shape`` (channels, height, width)."""
    return MODELS[name](shape, classes)


def cnn(shape: ImageShape, classes: int) -> nn.Module:
    """Two convolutions and a hidden layer, with dropout: sized for 8 x 8 digits."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(DROPOUT),
        nn.Linear(32 * (height // 2) * (width // 2), 64),
        nn.ReLU(),
        nn.Dropout(DROPOUT),
        nn.Linear(64, classes),
    )


def mlp(shape: ImageShape, classes: int) -> nn.Module:
    """One hidden layer over the flattened image, with dropout."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 128),
        nn.ReLU(),
        nn.Dropout(DROPOUT),
        nn.Linear(128, classes),
    )


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut.

    Source: He et al., Deep Residual Learning for Image Recognition (2015), figure 2.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.activation = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.activation(self.body(images) + self.shortcut(images))
        return result


def resnet18(shape: ImageShape, classes: int) -> nn.Module:
    """ResNet-18; images under 64 pixels get the 3 x 3 stem that is usual for CIFAR."""
    channels, height, width = shape
    if min(height, width) < SMALL_IMAGE:
        stem: list[nn.Module] = [nn.Conv2d(channels, 64, 3, padding=1, bias=False)]
    else:
        stem = [nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False)]
    stem += [nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if min(height, width) >= SMALL_IMAGE:
        stem.append(nn.MaxPool2d(3, 2, padding=1))
    blocks: list[nn.Module] = []
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        inputs = outputs
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)]
    return nn.Sequential(*stem, *blocks, *head)


MODELS: dict[str, Callable[[ImageShape, int], nn.Module]] = {
    "cnn": cnn,
    "mlp": mlp,
    "resnet18": resnet18,
}
