"""Linear layers whose three products run in 8-bit floats, for GPUs that multiply those faster.

Each tensor is scaled by its largest value right before the product: 4 bits of exponent for what
goes forward, 5 for gradients. Weights, sums and everything else stay as they were. Source:
Micikevicius et al., FP8 Formats for Deep Learning (2022).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

FORWARD = torch.float8_e4m3fn
BACKWARD = torch.float8_e5m2
# The kernel takes matrices whose sides are multiples of 16.
MULTIPLE = 16
_TINY = 1e-12


class Float8Linear(nn.Linear):
    """A linear layer with the parameters of the one it replaces."""

    def forward(self, inputs: Tensor) -> Tensor:
        """As ``nn.Linear``; the ordinary product where rows are not a multiple of 16."""
        rows = inputs.numel() // inputs.shape[-1]
        if rows % MULTIPLE:
            return functional.linear(inputs, self.weight, self.bias)
        dtype = (
            torch.get_autocast_dtype(inputs.device.type)
            if torch.is_autocast_enabled(inputs.device.type)
            else inputs.dtype
        )
        flat = inputs.reshape(-1, inputs.shape[-1]).to(dtype)
        product: Tensor = _Product.apply(flat, self.weight.to(dtype))  # type: ignore[no-untyped-call]
        if self.bias is not None:
            product = product + self.bias.to(dtype)
        return product.reshape(*inputs.shape[:-1], -1)


def use_float8(model: nn.Module) -> int:
    """Exchanges the linear layers that fit, in place; returns how many.

    The last one stays: its products decide between classes, and small errors show there.
    """
    linears = [each for each in model.modules() if type(each) is nn.Linear]
    fitting = [
        each
        for each in linears[:-1]
        if each.in_features % MULTIPLE == 0 and each.out_features % MULTIPLE == 0
    ]
    for each in fitting:
        each.__class__ = Float8Linear
    return len(fitting)


class _Product(torch.autograd.Function):
    """inputs (rows, in) times the transpose of weight (out, in)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _multiply(inputs, FORWARD, weight, FORWARD, inputs.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        inputs, weight = ctx.saved_tensors
        to_inputs = _multiply(gradient, BACKWARD, weight.t(), FORWARD, inputs.dtype)
        to_weight = _multiply(gradient.t(), BACKWARD, inputs.t(), FORWARD, weight.dtype)
        return to_inputs, to_weight


def _multiply(
    left: Tensor, left_type: torch.dtype, right: Tensor, right_type: torch.dtype, out: torch.dtype
) -> Tensor:
    """left (rows, inner) times the transpose of right (columns, inner)."""
    left8, left_scale = _scaled(left, left_type)
    right8, right_scale = _scaled(right, right_type)
    return torch._scaled_mm(
        left8, right8.t(), scale_a=left_scale, scale_b=right_scale, out_dtype=out
    )


def _scaled(tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The tensor in 8 bits, and the factor that makes it as large as it was."""
    largest = tensor.abs().amax().float().clamp(min=_TINY)
    scale = largest / torch.finfo(dtype).max
    return (tensor / scale).to(dtype).contiguous(), scale
