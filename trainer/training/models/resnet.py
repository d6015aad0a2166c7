"""Residual networks: ResNet-18, -50 and -152.

Sources: He et al., Deep Residual Learning for Image Recognition (2015), table 1; the bottleneck
strides in its 3 x 3 convolution ("v1.5", as NVIDIA's and torchvision's do); the last scale of every
block starts at zero (Goyal et al., Accurate, Large Minibatch SGD (2017), section 5.1).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

# Images smaller than this lose too much in the usual stem (stride 2, then pooling by 2).
SMALL_IMAGE = 64
WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut (figure 5, left)."""

    widening = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, width, stride)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, images: Tensor) -> Tensor:
        """(samples, inputs, height, width) to (samples, width, height / stride, width / stride)."""
        shortcut = images if self.downsample is None else self.downsample(images)
        images = self.relu(self.bn1(self.conv1(images)))
        result: Tensor = self.relu(self.bn2(self.conv2(images)) + shortcut)
        return result


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut (figure 5, right)."""

    widening = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.widening
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride)
        nn.init.zeros_(self.bn3.weight)

    def forward(self, images: Tensor) -> Tensor:
        """(samples, inputs, height, width) to (samples, 4 x width, height / stride, ...)."""
        shortcut = images if self.downsample is None else self.downsample(images)
        images = self.relu(self.bn1(self.conv1(images)))
        images = self.relu(self.bn2(self.conv2(images)))
        result: Tensor = self.relu(self.bn3(self.conv3(images)) + shortcut)
        return result


class ResNet(nn.Module):
    """Stem, four stages of blocks, mean over the image, one linear layer.

    Images under 64 pixels get the 3 x 3 stem without pooling that is usual for CIFAR.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        shape: tuple[int, int, int],
        classes: int,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        small = min(height, width) < SMALL_IMAGE
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        inputs = 64
        for stage, (stage_width, depth) in enumerate(zip(WIDTHS, depths, strict=True), start=1):
            blocks: list[nn.Module] = []
            for number in range(depth):
                blocks.append(block(inputs, stage_width, 2 if stage > 1 and number == 0 else 1))
                inputs = stage_width * block.widening
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def blocks(self) -> list[nn.Module]:
        """The residual blocks in order."""
        return [block for stage in self._stages() for block in stage]

    def forward(self, images: Tensor) -> Tensor:
        """(samples, channels, height, width) to (samples, classes)."""
        images = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in self._stages():
            images = stage(images)
        scores: Tensor = self.fc(self.avgpool(images).flatten(1))
        return scores

    def _stages(self) -> list[nn.Sequential]:
        return [self.get_submodule(f"layer{stage}") for stage in range(1, 5)]  # type: ignore[misc]


def resnet(depth: Literal[18, 50, 152], shape: tuple[int, int, int], classes: int) -> ResNet:
    """The network of so many layers."""
    if depth == 18:
        return ResNet(BasicBlock, (2, 2, 2, 2), shape, classes)
    return ResNet(Bottleneck, (3, 4, 6, 3) if depth == 50 else (3, 8, 36, 3), shape, classes)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """None where the block's input can be added as it is."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
