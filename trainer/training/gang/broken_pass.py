"""Forgetting a pass of a sharded model that an error broke off in the middle.

PyTorch 2.13 has a call for it (``FSDPModule.reset_iter_state``). Lives here: the same for the ones
before it, which have none; the only place that knows what FSDP2 keeps during a pass.
"""

from __future__ import annotations

from typing import Any

import torch


def forget_pass(model: Any) -> None:
    """Makes ``model``, the outermost sharded module, ready for its next forward pass. Gradients of
    the pass are worth nothing.
    """
    if hasattr(model, "reset_iter_state"):
        model.reset_iter_state()
    else:
        _reset(model._get_fsdp_state())


def _reset(state: Any) -> None:
    """As PyTorch 2.13's FSDPState._reset_iter_state, for the fields of 2.11."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState

    if torch.cuda.is_available():
        torch.cuda.synchronize()  # in place of waiting for each exchange that is on its way
    shared, exchanges = state._state_ctx, state._comm_ctx
    exchanges.all_gather_state = None
    exchanges.reduce_scatter_state = None
    exchanges.post_forward_order.clear()
    for each in shared.all_states:
        each._modules_to_run_forward.clear()
        each._training_state = TrainingState.IDLE
        group = each._fsdp_param_group
        if group is None:
            continue
        if group._all_gather_result is not None and group._all_gather_result.all_gather_work:
            group._all_gather_result.all_gather_work.wait()
        group._all_gather_result = None
        group._post_reduce_event = None
        group._all_reduce_state = None
        group._reshard_after_forward_event = None
        group._partial_reduce_output = None
        group._post_forward_indices.clear()
        group._training_state = TrainingState.IDLE
        group._to_sharded()
    shared.iter_forward_root = None
    shared.post_backward_final_callback_queued = False
