"""Activation checkpointing: blocks keep only their input and run again in the backward pass.

The second run draws the same random numbers and leaves running statistics alone, so the losses are
those of a run without it, bit for bit.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainer.training.loop.averages import batch_norms


def recompute_blocks(blocks: list[nn.Module]) -> None:
    """Makes each block compute its activations again when they are needed; for good."""
    for block in blocks:
        # The parameters keep their names: only the way through the block is another.
        block.forward = functools.partial(_recomputed, block, block.forward)


def _recomputed(block: nn.Module, forward: Callable[..., Any], *inputs: object) -> Any:
    if torch.compiler.is_compiling():
        # The compiler keeps changes of buffers out of what it computes again.
        return checkpoint(forward, *inputs, use_reentrant=False)
    contexts = functools.partial(_first_and_second, block)
    return checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts)


def _first_and_second(
    block: nn.Module,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _statistics_kept(block)


@contextlib.contextmanager
def _statistics_kept(block: nn.Module) -> Iterator[None]:
    layers = batch_norms(block)
    kept = [(layer.momentum, layer.num_batches_tracked) for layer in layers]
    for layer in layers:
        # The same calls as in the first run, or autograd would not find what it looks for.
        layer.momentum = 0.0
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked = layer.num_batches_tracked.clone()
    try:
        yield
    finally:
        for layer, (momentum, batches) in zip(layers, kept, strict=True):
            layer.momentum, layer.num_batches_tracked = momentum, batches
