"""A fast hash of a file's content: universal over blocks of 4 KiB, SHA-256 over the blocks.

Each block is taken as 512 little-endian words x of 64 bits and becomes two words, with odd
multipliers a and b drawn from the checkpoint's own key:

    whole = sum a[i] * x[i]           modulo 2^64
    upper = sum b[i] * (x[i] >> 32)   modulo 2^64

A chunk's hash is the SHA-256 of its length and its blocks' words in order; a last block that is
not full is padded with zeros. What is found:

- any change within one aligned word, so every single flipped bit or byte: always, because an odd
  number has an inverse modulo 2^64;
- any other change of a block that does not depend on the key: missed with probability at most
  2^-31. Where the changed words differ in a bit below 2^32, `whole` misses it for at most one in
  2^31 values of one multiplier; otherwise `upper` does.
- blocks in another order, zeroed, missing or added: SHA-256 sees other words or another length.

It guards against disks, memory and torn writes, not against a forger: the key lies beside it.
Source: the multilinear family of Dietzfelbinger (STACS 1996) and of Lemire and Kaser, Strongly
universal string hashing is fast (2014). Everything runs in numpy's loops, without the GIL.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

NAME = "multilinear64-sha256"
BLOCK_BYTES = 4096
CHUNK_BYTES = 8 << 20
_WORDS = BLOCK_BYTES // 8
# Blocks that go through the processor's cache together.
_BATCH = 64
_UPPER = np.uint64(32)


class ContentHash:
    """The hash under one key; one object for one thread."""

    def __init__(self, key: bytes) -> None:
        drawn = hashlib.shake_256(key).digest(2 * BLOCK_BYTES)
        multipliers = np.frombuffer(drawn, dtype="<u8").astype(np.uint64) | np.uint64(1)
        self._whole, self._upper = multipliers[:_WORDS], multipliers[_WORDS:]
        self._scratch = np.empty((_BATCH, _WORDS), dtype=np.uint64)

    def chunks(self, content: Any) -> list[str]:
        """The hash of each chunk of ``content`` (a buffer), in hex; none of an empty one."""
        view = memoryview(content).cast("B")
        starts = range(0, len(view), CHUNK_BYTES)
        return [self.chunk(view[first : first + CHUNK_BYTES]) for first in starts]

    def chunk(self, content: Any) -> str:
        """The hash of one chunk, in hex."""
        view = memoryview(content).cast("B")
        full = len(view) // BLOCK_BYTES
        blocks = full + (len(view) % BLOCK_BYTES > 0)
        words = np.empty((2, blocks), dtype=np.uint64)
        rows = np.frombuffer(view, dtype="<u8", count=full * _WORDS).reshape(full, _WORDS)
        for first in range(0, full, _BATCH):
            self._add(rows[first : first + _BATCH], words[:, first : first + _BATCH])
        if blocks > full:
            last = np.zeros(BLOCK_BYTES, dtype=np.uint8)
            tail = view[full * BLOCK_BYTES :]
            last[: len(tail)] = tail
            self._add(last.view("<u8").reshape(1, _WORDS), words[:, full:])
        digest = hashlib.sha256(len(view).to_bytes(8, "little"))
        digest.update(words.astype("<u8", copy=False).tobytes())
        return digest.hexdigest()

    def _add(self, rows: Any, words: Any) -> None:
        count = len(rows)
        upper = self._scratch[:count]
        np.right_shift(rows, _UPPER, out=upper)
        # Not np.dot: for whole numbers its loop is half as fast again.
        np.einsum("ij,j->i", rows, self._whole, out=words[0, :count])
        np.einsum("ij,j->i", upper, self._upper, out=words[1, :count])
