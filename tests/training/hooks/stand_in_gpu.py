"""Stands in for GPUs where there are none: tensors that are "on" one, and mix with no others.

They compute as ever, on the processor. What is checked is where a script puts its tensors: an
operation on tensors of two devices is an error, as on a GPU; and the group that stands in for
NCCL's knows no tensors of the processor. What only a GPU can show (kernels, memory, streams,
NCCL itself) is not shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

PLACES = frozenset(
    {"to", "copy_", "cuda", "cpu", "__get__", "__set__", "_has_compatible_shallow_copy_type"}
    | {"__getitem__", "__setitem__"}
)
"""What may have tensors of two devices; an index may be the processor's."""
MOVES = frozenset({"to", "cuda", "cpu", "numpy", "tolist", "item"})
_beside: list[Any] = [None]
"""The group that does the work of the one that stands in for NCCL's."""
computed: dict[str, int] = {}
"""How many operations each device had to do: how a test sees that a script used its GPU."""


class OnGpu(torch.Tensor):
    """A tensor on GPU ``index``, which tensors of the processor cannot be mixed with."""

    gpu_index: int

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        index = next(each.gpu_index for each in tensors if isinstance(each, OnGpu))
        if name == "__get__":
            return _attribute(func, args[0], index)
        if name not in PLACES:
            _check_one_device(func, tensors, index)
        if name in MOVES and (left := _left(name, args, kwargs)) is not None:
            return left
        if getattr(func, "__module__", "").startswith("torch.distributed"):
            kwargs["group"] = _beside[0]
        answer = _plainly(func, args, kwargs)
        if name == "numpy":
            raise TypeError(
                f"can't convert cuda:{index} device type tensor to numpy: copy it first"
            )
        computed[f"cuda:{index}"] = computed.get(f"cuda:{index}", 0) + 1
        return tree_map(lambda each: on_gpu(each, index), answer)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As a file has it: loaded on the processor, until it is moved."""
        return plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return on_gpu(plain(self).clone(), self.gpu_index)


class _Gpus(TorchFunctionMode):
    """What has no tensor of a GPU among its arguments yet: moving there, and making some there."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in ("to", "cuda") and args and isinstance(args[0], torch.Tensor):
            return _moved(name, args, kwargs)
        if (asked := kwargs.get("device")) is not None and torch.device(asked).type == "cuda":
            index = torch.device(asked).index
            kwargs["device"] = "cpu"
            made = func(*args, **kwargs)
            return on_gpu(made, torch.cuda.current_device() if index is None else index)
        return func(*args, **kwargs)


class _Stream:
    """Work is done when it is asked for: there is nothing to wait for."""


def on_gpu(value: Any, index: int) -> Any:
    """The tensor as one of that GPU, with the same memory; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    with torch._C.DisableTorchFunction():
        made = value if type(value) is OnGpu else value.as_subclass(OnGpu)
    made.gpu_index = index
    return made


def plain(value: Any) -> Any:
    """The tensor on the processor, with the same memory; anything else as it is."""
    if not isinstance(value, OnGpu):
        return value
    with torch._C.DisableTorchFunction():
        return value.as_subclass(torch.Tensor)


def install(count: int = 1) -> None:
    """From here on this process has ``count`` GPUs, and torch's NCCL is the stand-in's."""
    current = [0]

    def set_device(device: Any) -> None:
        found = (
            torch.device(device) if not isinstance(device, int) else torch.device("cuda", device)
        )
        assert found.index is not None
        assert found.index < count, f"invalid device ordinal {found.index}"
        current[0] = found.index

    cuda: Any = torch.cuda
    cuda.is_available, cuda.device_count = lambda: True, lambda: count
    cuda.set_device, cuda.current_device = set_device, lambda: current[0]
    cuda.get_device_capability = lambda *_: (7, 0)
    cuda.get_device_name = lambda *_: "stand-in"
    cuda.get_rng_state_all, cuda.set_rng_state_all = list, lambda _: None
    cuda.get_rng_state, cuda.set_rng_state = lambda *_: torch.zeros(1), lambda *_: None
    cuda.Stream, cuda.stream = _Stream, nullcontext
    cuda.empty_cache = cuda.synchronize = lambda *_: None
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    _stand_in_for_nccl()
    _Gpus().__enter__()  # type: ignore[no-untyped-call]  # PyTorch has no types for it


def _stand_in_for_nccl() -> None:
    meet, meet_all = dist.init_process_group, dist.barrier

    def init_process_group(backend: str | None = None, **options: Any) -> None:
        assert backend == "nccl", f"a machine with GPUs, and the group's backend is {backend}"
        options.pop("device_id", None)
        meet("cuda:gloo", **options)
        _beside[0] = dist.new_group(backend="gloo")

    def barrier(*_: Any, **__: Any) -> None:
        meet_all(group=_beside[0])

    class Distributed(nn.parallel.DistributedDataParallel):
        def __init__(self, module: nn.Module, **options: Any) -> None:
            own = f"cuda:{os.environ['LOCAL_RANK']}"
            places = {str(parameter.device) for parameter in module.parameters()}
            assert places == {own}, f"No backend type for these devices: {places}, not {own}"
            for placed in ("device_ids", "output_device", "process_group"):
                options.pop(placed, None)
            super().__init__(module, process_group=_beside[0], **options)

        def forward(self, *inputs: Any, **options: Any) -> Any:
            answer: Any = super().forward(*inputs, **options)  # type: ignore[no-untyped-call]  # PyTorch has no types for it
            # Tensors of a GPU are views here, which may not be changed in place behind its sink.
            return tree_map(lambda t: t.clone() if isinstance(t, OnGpu) else t, answer)

    group: Any = dist
    group.barrier, group.init_process_group = barrier, init_process_group
    parallel: Any = nn.parallel
    parallel.DistributedDataParallel = Distributed
    parallel.distributed.DistributedDataParallel = Distributed


def _moved(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Tensor.to and Tensor.cuda, to wherever."""
    tensor, *rest = args
    asked = _device_in(rest, kwargs) if name == "to" else torch.device("cuda")
    if asked is None:
        return torch.Tensor.to(tensor, *rest, **kwargs)
    rest = ["cpu" if _names_device(each) else plain(each) for each in rest]
    if kwargs.get("device") is not None:
        kwargs["device"] = "cpu"
    with torch._C.DisableTorchFunction():
        copied = torch.Tensor.to(tensor, *rest, **kwargs) if name == "to" else tensor
        copied = copied.as_subclass(torch.Tensor) if asked.type == "cpu" else copied
    if asked.type == "cpu":
        return copied
    return on_gpu(copied, torch.cuda.current_device() if asked.index is None else asked.index)


def _left(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A tensor of a GPU that is moved to the processor, or another GPU."""
    if name == "cpu":
        return plain(args[0])
    if name in ("to", "cuda"):
        moved = _moved(name, args, dict(kwargs))
        stays = name == "to" and _device_in(args[1:], kwargs) is None
        return on_gpu(moved, args[0].gpu_index) if stays else moved
    return None


def _attribute(func: Any, tensor: Any, index: int) -> Any:
    if func == torch.Tensor.device.__get__:
        return torch.device("cuda", index)
    if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
        return True
    with torch._C.DisableTorchFunction():
        return on_gpu(func(tensor), index)


def _check_one_device(func: Any, tensors: list[torch.Tensor], index: int) -> None:
    for each in tensors:
        elsewhere = not isinstance(each, OnGpu) or each.gpu_index != index
        if elsewhere and each.dim() > 0:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices,"
                f" cuda:{index} and {each.device}, in {getattr(func, '__name__', func)}"
            )


def _plainly(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    kwargs = {key: each for key, each in kwargs.items() if key != "device"}
    with torch._C.DisableTorchFunction():
        return func(*args, **kwargs)


def _device_in(rest: Any, kwargs: dict[str, Any]) -> torch.device | None:
    for each in (*rest, kwargs.get("device")):
        if _names_device(each):
            return torch.device("cuda", each) if isinstance(each, int) else torch.device(each)
        if isinstance(each, torch.Tensor):
            return each.device
    return None


def _names_device(value: Any) -> bool:
    return isinstance(value, str | torch.device) or type(value) is int
