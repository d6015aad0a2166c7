"""Operations, parameters and memory traffic of the trainer's own models, in closed form.

Lives here: figures that follow from an architecture and the shape of its samples, without PyTorch,
so that the control plane can ask too. Not here: what they cost on a GPU (``train_estimate``). A
multiplication and an addition are two operations; normalisation, activations and sums are left
out, as is usual: they are a matter of memory traffic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

Family = Literal["cnn", "transformer"]
Shape = tuple[int, ...]

SMALL_IMAGE: Final = 64
BACKWARD: Final = 2
"""Each product of the forward pass has two in the backward: for its input and for its weight."""

CNN_PASSES: Final = 19
"""Times that each element a convolution puts out crosses the GPU's memory in a training step with
batch normalisation. Forward 7: written, read twice and written by the normalisation, read and
written by the ReLU, read by the next convolution. Backward 12: ReLU 3, normalisation 5,
convolution 4 (its gradient read for the input's and for the weight's, input read, input's gradient
written). A count of kernels as PyTorch runs them one by one, not a measurement."""

PLAIN_PASSES: Final = 11
"""The same without normalisation. Forward 4: written, read and written by the ReLU, read by the
next layer. Backward 7: ReLU 3, layer 4."""

TRANSFORMER_PASSES: Final = 5
"""The same for each element kept: written, read by the next part and by the backward pass; its
gradient written and read."""


@dataclass(frozen=True)
class ModelFigures:
    """One model on samples of one shape; everything but ``parameters`` is for one sample.

    activation_elements: numbers kept for the backward pass. traffic_elements: numbers that cross
    the GPU's memory in forward and backward pass. source: where the architecture is described.
    """

    name: str
    family: Family
    parameters: int
    forward_flops: float
    activation_elements: float
    traffic_elements: float
    source: str

    @property
    def training_flops(self) -> float:
        """Of forward and backward pass."""
        return (1 + BACKWARD) * self.forward_flops


_RESNETS: Final = {
    "resnet18": (1, (2, 2, 2, 2)),
    "resnet50": (4, (3, 4, 6, 3)),
    "resnet152": (4, (3, 8, 36, 3)),
}
_VITS: Final = {"vit_small": (384, 12), "vit_base": (768, 12)}
_GPTS: Final = {"gpt_tiny": (64, 2), "gpt_small": (768, 12)}
_CNN_WIDTHS: Final = (16, 32)
_CNN_HIDDEN: Final = 64
_MLP_HIDDEN: Final = 128


def known_figures(model: str, shape: Shape, classes: int) -> ModelFigures | None:
    """The figures of one of the trainer's own models; None for any other.

    shape: (channels, height, width) of an image, or (tokens,). classes: or the vocabulary's size.
    """
    if model == "cnn" and len(shape) == 3:
        return _cnn(shape, classes)
    if model == "mlp":
        return _mlp(math.prod(shape), classes)
    if model in _RESNETS and len(shape) == 3:
        return _resnet(model, shape, classes)
    if model in _VITS and len(shape) == 3:
        return _vit(model, shape, classes)
    if model in _GPTS and len(shape) == 1:
        return _gpt(model, shape[0], classes)
    return None


class _Convolutions:
    """Adds up convolutions, each followed by a normalisation, over images of one size."""

    def __init__(self, channels: int, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.parameters = 0
        self.macs = 0
        self.written = 0
        self.kept = channels * rows * columns

    def add(self, inputs: int, outputs: int, kernel: int, stride: int, relu: bool) -> None:
        """``relu``: its output is kept as well as what goes into the normalisation."""
        self.rows, self.columns = -(-self.rows // stride), -(-self.columns // stride)
        elements = outputs * self.rows * self.columns
        self.parameters += inputs * outputs * kernel * kernel + 2 * outputs
        self.macs += inputs * kernel * kernel * elements
        self.written += elements
        self.kept += elements * (2 if relu else 1)


def _cnn(shape: Shape, classes: int) -> ModelFigures:
    channels, rows, columns = shape
    first, second = _CNN_WIDTHS
    pixels, pooled = rows * columns, second * (rows // 2) * (columns // 2)
    head = _Hidden(pooled, _CNN_HIDDEN, classes)
    convolved = (first + second) * pixels
    weights = 9 * (channels * first + first * second)
    return ModelFigures(
        name="cnn",
        family="cnn",
        parameters=weights + first + second + head.parameters,
        forward_flops=2.0 * (weights * pixels + head.macs),
        # Of what is pooled, the places of the maxima in 64 bits; then the mask of the dropout.
        activation_elements=float(channels * pixels + convolved + 3 * pooled + head.kept),
        traffic_elements=float(PLAIN_PASSES * (convolved + head.written)),
        source="trainer/training/models/small.py",
    )


def _mlp(inputs: int, classes: int) -> ModelFigures:
    net = _Hidden(inputs, _MLP_HIDDEN, classes)
    return ModelFigures(
        name="mlp",
        family="cnn",
        parameters=net.parameters,
        forward_flops=2.0 * net.macs,
        activation_elements=float(net.kept),
        traffic_elements=float(PLAIN_PASSES * net.written),
        source="trainer/training/models/small.py",
    )


class _Hidden:
    """One hidden layer with ReLU and dropout, and the scores; its input is kept as well."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        self.macs = inputs * width + width * classes
        self.parameters = self.macs + width + classes
        self.written = width + classes
        # Of the hidden layer: the ReLU's output, the dropout's mask and output.
        self.kept = inputs + 3 * width + classes


def _resnet(name: str, shape: Shape, classes: int) -> ModelFigures:
    widening, depths = _RESNETS[name]
    channels, rows, columns = shape
    small = min(rows, columns) < SMALL_IMAGE
    net = _Convolutions(channels, rows, columns)
    net.add(channels, 64, 3 if small else 7, 1 if small else 2, relu=True)
    inputs = 64
    if not small:
        net.rows, net.columns = -(-net.rows // 2), -(-net.columns // 2)
        # What the pooling puts out, and the places of its maxima in 64 bits.
        net.kept += 3 * inputs * net.rows * net.columns
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for number in range(depth):
            stride = 2 if stage > 0 and number == 0 else 1
            _add_block(net, inputs, width, widening, stride)
            inputs = width * widening
    net.kept += inputs
    return ModelFigures(
        name=name,
        family="cnn",
        parameters=net.parameters + inputs * classes + classes,
        forward_flops=2.0 * (net.macs + inputs * classes),
        activation_elements=float(net.kept),
        traffic_elements=float(CNN_PASSES * net.written),
        source="He et al. 2015, table 1; stride in the 3 × 3 convolution (v1.5)",
    )


def _add_block(net: _Convolutions, inputs: int, width: int, widening: int, stride: int) -> None:
    outputs = width * widening
    before = net.rows, net.columns
    if stride != 1 or inputs != outputs:
        net.add(inputs, outputs, 1, stride, relu=False)
        net.rows, net.columns = before
    if widening == 1:
        net.add(inputs, width, 3, stride, relu=True)
        net.add(width, outputs, 3, 1, relu=True)
    else:
        net.add(inputs, width, 1, 1, relu=True)
        net.add(width, width, 3, stride, relu=True)
        net.add(width, outputs, 1, 1, relu=True)


def _vit(name: str, shape: Shape, classes: int) -> ModelFigures:
    width, depth = _VITS[name]
    channels, rows, columns = shape
    patch = 4 if min(rows, columns) < SMALL_IMAGE else 16
    patches = (rows // patch) * (columns // patch)
    embedding = channels * patch * patch * width
    outside = embedding + width + width + (patches + 1) * width + width * classes + classes
    blocks = _blocks(width, depth, patches + 1)
    return ModelFigures(
        name=name,
        family="transformer",
        parameters=outside + blocks.parameters,
        forward_flops=2.0 * (patches * embedding + blocks.macs + width * classes),
        activation_elements=blocks.kept + channels * rows * columns,
        traffic_elements=TRANSFORMER_PASSES * blocks.kept,
        source="Dosovitskiy et al. 2020, table 1; Touvron et al. 2020, table 1",
    )


def _gpt(name: str, tokens: int, vocabulary: int) -> ModelFigures:
    width, depth = _GPTS[name]
    blocks = _blocks(width, depth, tokens)
    # The logarithms of the scores are kept in 32 bits: what a large vocabulary costs.
    scores = 2 * tokens * vocabulary
    return ModelFigures(
        name=name,
        family="transformer",
        parameters=(vocabulary + tokens) * width + blocks.parameters,
        forward_flops=2.0 * (blocks.macs + tokens * width * vocabulary),
        activation_elements=float(blocks.kept + scores),
        traffic_elements=float(TRANSFORMER_PASSES * (blocks.kept + scores)),
        source="Radford et al. 2019, section 2.3; operations as in Chowdhery et al. 2022, B",
    )


@dataclass(frozen=True)
class _Blocks:
    parameters: int
    macs: int
    kept: float


def _blocks(width: int, depth: int, tokens: int) -> _Blocks:
    """Blocks of attention and a fourfold MLP, and the normalisation after them.

    Kept for each token and layer: 16 times the width, with attention that keeps no scores.
    Source: Korthikanti et al., Reducing Activation Recomputation (2022), section 4.1 (34 bytes
    in 16 bits, of which 2 are masks of dropout).
    """
    return _Blocks(
        parameters=depth * (12 * width * width + 13 * width) + 2 * width,
        macs=depth * (12 * tokens * width * width + 2 * tokens * tokens * width),
        kept=float(16 * width * depth * tokens),
    )
