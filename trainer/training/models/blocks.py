"""Where a model may be cut: for activation checkpointing and for sharding."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn


def model_blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated parts of ``model`` in order: what to recompute or to shard one by one.

    A model says so itself by an attribute ``blocks`` (a list of modules), as all own ones with
    repeated parts do. For others it is the longest list of modules of two or more alike; empty
    when there is none.
    """
    named = getattr(model, "blocks", None)
    if isinstance(named, Iterable):
        blocks = [block for block in named if isinstance(block, nn.Module)]
        if blocks:
            return blocks
    best: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            children = list(module)
            alike = len({type(child) for child in children}) == 1 and len(children) > 1
            repeated = alike and next(children[0].children(), None) is not None
            if repeated and len(children) > len(best):
                best = children
    return best
