"""CRC-32C (Castagnoli), as TFRecord files carry it, many bytes at a time with numpy.

The data is cut into lanes that are run side by side, one table look-up for each place in a lane;
then the lanes' remainders are folded together, two by two. A CRC without its initial value is
linear, and zeros in front do not change it: so the front is padded and the initial value is mixed
into the first bytes. Source: RFC 3720, appendix B.4 (polynomial, test values).
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41, bits reversed
_LANE = 128
_MASK_DELTA = 0xA282EAD8
Words = npt.NDArray[np.uint32]


def crc32c(data: bytes) -> int:
    """The checksum of ``data``."""
    if len(data) < 4:
        state = 0xFFFFFFFF
        for byte in data:
            state = (state >> 8) ^ int(_table()[(state ^ byte) & 0xFF])
        return state ^ 0xFFFFFFFF
    lanes = 1 << max(0, (len(data) - 1) // _LANE).bit_length()
    padded = np.zeros(lanes * _LANE, np.uint8)
    padded[-len(data) :] = np.frombuffer(data, np.uint8)
    padded[-len(data) :][:4] ^= 0xFF
    states = np.zeros(lanes, np.uint32)
    for column in np.ascontiguousarray(padded.reshape(lanes, _LANE).T):
        states = (states >> np.uint32(8)) ^ _table()[(states ^ column) & np.uint32(0xFF)]
    length = _LANE
    while len(states) > 1:
        states = _behind(states[0::2], length) ^ states[1::2]
        length *= 2
    return int(states[0]) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """As TFRecord stores it. Source: tensorflow/tsl, lib/hash/crc32c.h, ``Mask``."""
    value = crc32c(data)
    return (((value >> 15) | (value << 17)) + _MASK_DELTA) & 0xFFFFFFFF


@functools.cache
def _table() -> Words:
    """What eight shifts make of each byte."""
    states = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        states = np.where(states & 1, (states >> 1) ^ np.uint32(_POLYNOMIAL), states >> 1)
    return states.astype(np.uint32)


def _behind(states: Words, length: int) -> Words:
    """The states after ``length`` bytes of zeros more."""
    after = np.zeros_like(states)
    for byte, table in enumerate(_zeros_tables(length)):
        after ^= table[(states >> np.uint32(8 * byte)) & np.uint32(0xFF)]
    return after


@functools.cache
def _zeros_tables(length: int) -> Words:
    """(4, 256): what ``length`` bytes of zeros make of each byte of a state."""
    shifts = np.arange(0, 32, 8, dtype=np.uint32)
    states = np.arange(256, dtype=np.uint32)[None] << shifts[:, None]
    if length == _LANE:
        for _ in range(_LANE):
            states = (states >> np.uint32(8)) ^ _table()[states & np.uint32(0xFF)]
        return states
    half = length // 2
    return np.stack([_behind(_behind(row, half), half) for row in states])
