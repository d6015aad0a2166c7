"""Nested plain values and tensors to a JSON document plus named tensors, and back. Never pickle.

A tensor becomes ``{"$": "tensor", "key": ..., "shape": ...}``: its key is its path, joined by dots.
Bytes, byte streams and numpy arrays lie among the tensors too. They, tuples, sets, number formats
and dicts whose keys are not all plain strings are marked likewise. Floats keep their full
precision.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.training.training_errors import CheckpointCorruptError

MARK = "$"


def take_apart(value: object, tensors: dict[str, Tensor], path: str = "") -> Any:
    """The JSON document of ``value``; its tensors are added to ``tensors`` by key.

    Raises ``TypeError`` naming the path of what is neither a tensor nor a plain value.
    """
    if isinstance(value, Tensor):
        if path in tensors:
            raise TypeError(f"two tensors of a checkpoint are both called {path!r}")
        tensors[path] = value
        return {MARK: "tensor", "key": path, "shape": list(value.shape)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        plain = all(isinstance(key, str) and key != MARK for key in value)
        if not plain and not all(isinstance(key, (str, int)) for key in value):
            raise TypeError(f"{path or 'the state'}: a checkpoint's dict keys are str or int")
        items = [
            (key, take_apart(item, tensors, f"{path}.{key}" if path else str(key)))
            for key, item in value.items()
        ]
        return dict(items) if plain else {MARK: "dict", "items": [list(item) for item in items]}
    if isinstance(value, (list, tuple)):
        listed = [
            take_apart(item, tensors, f"{path}.{number}" if path else str(number))
            for number, item in enumerate(value)
        ]
        return listed if isinstance(value, list) else {MARK: "tuple", "items": listed}
    return _take_apart_rest(value, tensors, path)


def _take_apart_rest(value: object, tensors: dict[str, Tensor], path: str) -> Any:
    """What a module's extra state may hold besides."""
    if isinstance(value, torch.dtype):
        return {MARK: "dtype", "name": str(value).removeprefix("torch.")}
    if isinstance(value, (set, frozenset)):
        items = sorted(value, key=repr)
        return {MARK: "set", "items": take_apart(items, tensors, path)}
    raw: Tensor | None = None
    if isinstance(value, (bytes, bytearray)):
        mark, raw = "bytes", _as_tensor(bytes(value))
    elif isinstance(value, io.BytesIO):
        mark, raw = "stream", _as_tensor(value.getvalue())
    elif isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
        mark, raw = "array", torch.from_numpy(np.array(value, order="C"))
    if raw is None:
        raise TypeError(
            f"{path or 'the state'}: a checkpoint holds tensors and plain values,"
            f" not {type(value).__name__}"
        )
    return {**take_apart(raw, tensors, path), MARK: mark}


def require_storable(value: object) -> None:
    """Raises ``TypeError`` naming the path of what a checkpoint cannot hold."""
    tensors: dict[str, Tensor] = {}
    take_apart(value, tensors)
    for path, tensor in tensors.items():
        if tensor.dtype not in DTYPE_NAMES or tensor.layout is not torch.strided:
            kind = f"{tensor.layout} tensors of {tensor.dtype}"
            raise TypeError(f"{path or 'the state'}: a checkpoint does not hold {kind}")


def put_together(document: object, tensors: Mapping[str, Tensor]) -> Any:
    """What ``take_apart`` was given. Raises ``CheckpointCorruptError`` for a missing tensor."""
    if isinstance(document, list):
        return [put_together(item, tensors) for item in document]
    if not isinstance(document, dict):
        return document
    mark = document.get(MARK)
    if mark is None:
        return {key: put_together(item, tensors) for key, item in document.items()}
    if mark == "tensor":
        tensor = tensors.get(document["key"])
        if tensor is None or list(tensor.shape) != document["shape"]:
            raise CheckpointCorruptError(f"the tensor {document['key']} is not in the files, whole")
        return tensor
    if mark in ("bytes", "stream", "array"):
        content = put_together({**document, MARK: "tensor"}, tensors).cpu().numpy()
        if mark == "array":
            return content.copy()
        return content.tobytes() if mark == "bytes" else io.BytesIO(content.tobytes())
    if mark == "dtype":
        dtype = getattr(torch, document["name"], None)
        if not isinstance(dtype, torch.dtype):
            raise CheckpointCorruptError(f"{document['name']} is no number format of this PyTorch")
        return dtype
    items = [put_together(item, tensors) for item in document["items"]]
    if mark == "set":
        return set(items)
    return tuple(items) if mark == "tuple" else dict(items)


def _as_tensor(content: bytes) -> Tensor:
    if not content:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
