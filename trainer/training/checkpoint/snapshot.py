"""The state of one moment, held in preallocated memory: the files' bytes as they will be written.

On the CPU one foreach copy puts every tensor at its place. On a GPU the copy goes into a buffer on
the device, in the order of the training stream, so that nothing of a later step (running
statistics, EMA) can get into it; the way to the host then runs on a stream of its own. Where the
device has no room for that buffer, the tensors are copied straight to the host, and waited for.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint.tensor_slices import FileImage, TensorSlice


class Snapshot:
    """Buffers for one rank's files. ``take`` again and again; one thread reads ``contents``."""

    def __init__(self, images: Sequence[FileImage]) -> None:
        """Allocates and touches the memory, so that no copy pays for its pages."""
        self.images = tuple(images)
        self.bytes = sum(image.padded_size for image in images)
        self._memory = _pages(max(self.bytes, mmap.PAGESIZE))
        host = torch.frombuffer(self._memory, dtype=torch.uint8)
        host.zero_()
        self._host_targets: list[Tensor] = []
        self._spans: list[tuple[int, int]] = []
        start = 0
        for image in images:
            header = torch.frombuffer(bytearray(image.header), dtype=torch.uint8)
            host[start : start + len(header)].copy_(header)
            for piece, place in zip(image.pieces, image.places, strict=True):
                self._host_targets.append(_view(host, start + place, piece))
                if piece.source.device.type == "cuda" and piece.bytes:
                    self._add_span(start + place, start + place + piece.bytes)
            start += image.padded_size
        self._host = host
        self._device_way = _DeviceWay(self) if self._spans else None

    def take(self, sources: Sequence[Tensor]) -> None:
        """Copies the tensors as they are now; they are those of the images' pieces, in order.

        On return they may be changed again. ``contents`` may only be read after ``wait``.
        """
        on_cpu = [number for number, one in enumerate(sources) if one.device.type != "cuda"]
        if self._device_way is not None:
            self._device_way.take(sources)
        if on_cpu:
            with torch.no_grad():
                torch._foreach_copy_(
                    [self._host_targets[number] for number in on_cpu],
                    [sources[number] for number in on_cpu],
                )

    def wait(self) -> None:
        """Returns when everything has arrived in the host's memory; without the GIL meanwhile."""
        if self._device_way is not None:
            self._device_way.wait()

    def close(self) -> None:
        """Gives the pinned memory back; nothing may be taken any more."""
        if self._device_way is not None:
            _cuda_runtime().cudaHostUnregister(self._host.data_ptr())
            self._device_way = None

    def contents(self) -> list[memoryview]:
        """Each file's bytes, padded with zeros to whole pages."""
        view, views, start = memoryview(self._memory), [], 0
        for image in self.images:
            views.append(view[start : start + image.padded_size])
            start += image.padded_size
        return views

    def _add_span(self, first: int, end: int) -> None:
        if self._spans and self._spans[-1][1] == first:
            first = self._spans.pop()[0]
        self._spans.append((first, end))


class _DeviceWay:
    """Device buffer, side stream and pinned host memory of the GPU's part of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._host, self._spans = snapshot._host, snapshot._spans
        pieces = [
            (piece, target)
            for image, targets in _by_image(snapshot)
            for piece, target in zip(image.pieces, targets, strict=True)
        ]
        self._numbers = [
            number for number, (piece, _) in enumerate(pieces) if piece.source.device.type == "cuda"
        ]
        self._host_targets = [pieces[number][1] for number in self._numbers]
        device = pieces[self._numbers[0]][0].source.device
        # The thread that allocates has device 0 for its own until it is told otherwise.
        with torch.cuda.device(device):
            _pin(self._host)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._buffer: Tensor | None = None
        try:
            self._buffer = torch.empty(len(self._host), dtype=torch.uint8, device=device)
        except torch.cuda.OutOfMemoryError:
            return
        self._targets = [
            _view(self._buffer, int(target.storage_offset()) * target.element_size(), piece)
            for piece, target in (pieces[number] for number in self._numbers)
        ]

    def take(self, sources: Sequence[Tensor]) -> None:
        chosen = [sources[number] for number in self._numbers]
        with torch.no_grad():
            if self._buffer is None:
                torch._foreach_copy_(self._host_targets, chosen)
                return
            torch._foreach_copy_(self._targets, chosen)
            self._stream.wait_stream(torch.cuda.current_stream(self._buffer.device))
            with torch.cuda.stream(self._stream):
                for first, end in self._spans:
                    self._host[first:end].copy_(self._buffer[first:end], non_blocking=True)
                self._arrived.record(self._stream)

    def wait(self) -> None:
        if self._buffer is not None:
            self._arrived.synchronize()


def _by_image(snapshot: Snapshot) -> list[tuple[FileImage, list[Tensor]]]:
    targets = iter(snapshot._host_targets)
    return [(image, [next(targets) for _ in image.pieces]) for image in snapshot.images]


def _view(buffer: Tensor, start: int, piece: TensorSlice) -> Tensor:
    flat = buffer[start : start + piece.bytes].view(piece.source.dtype)
    return flat.view(piece.source.shape)


def _pages(size: int) -> mmap.mmap:
    """Anonymous memory that begins at a page: what O_DIRECT and pinning need."""
    memory = mmap.mmap(-1, size)
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        try:
            memory.madvise(advice)
        except OSError:  # a kernel without huge pages
            pass
    return memory


def _pin(host: Tensor) -> None:
    """Lets the GPU write into this memory by itself; without it the copy is right but waited for.

    Not torch's pinned allocator: it rounds up to a power of two.
    """
    _cuda_runtime().cudaHostRegister(host.data_ptr(), host.numel(), 0)


def _cuda_runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
