"""Port blocks for machines: all on loopback, so no two machines may share a port.

Below the range Linux gives to outgoing connections, or one of those could take a machine's port.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection

from app.adapters.providers.local.machines.machine import PORTS_PER_MACHINE

_FIRST, _END = 20_000, 32_000
_BLOCK = PORTS_PER_MACHINE + 1


class NoFreePorts(Exception):
    """Every block has a port that something listens on."""


def free_port_block(taken: Collection[int]) -> int:
    """The first port of a free block that is not in `taken`. Raises NoFreePorts.

    Starts at a random block, so that two clouds on one host rarely look at the same one.
    """
    blocks = (_END - _FIRST) // _BLOCK
    start = secrets.randbelow(blocks)
    for ahead in range(blocks):
        first = _FIRST + (start + ahead) % blocks * _BLOCK
        if first not in taken and all(_is_free(first + place) for place in range(_BLOCK)):
            return first
    raise NoFreePorts(f"no {_BLOCK} free ports in a row on loopback from {_FIRST} to {_END}")


def block_number(first_port: int) -> int:
    """Which block it is, from 0; below 600 for every block there can be."""
    return (first_port - _FIRST) // _BLOCK


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
