"""Ports for programs that are told where to listen, and listen some seconds later.

A port that the kernel gave for the asking is one that it may give to any connection meanwhile;
these lie below its range. Not here: servers that take port 0 themselves, which is better.
"""

from __future__ import annotations

import os
import socket

_LOWEST, _HIGHEST = 10_000, 20_000
# Each process begins elsewhere, and goes on from what it has given before.
_next = _LOWEST + os.getpid() * 389 % (_HIGHEST - _LOWEST)


def free_port(count: int = 1) -> int:
    """The first of `count` ports in a row on which nothing listens; each is given once."""
    global _next
    for _ in range(_LOWEST, _HIGHEST):
        if _next + count > _HIGHEST:
            _next = _LOWEST
        first, _next = _next, _next + count
        if all(_is_free(first + number) for number in range(count)):
            return first
    raise AssertionError("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
