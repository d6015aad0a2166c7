"""Loaded by every Python program with this folder on its path: notes where sockets want to go.

One line each in the folder that WATCH_SOCKETS_FOLDER names. Not here: who sets that, and reads the
lines (`tests.support.outgoing_guard.outgoing_traffic`).
"""

import os
import sys
from typing import Any

_FOLDER = os.environ.get("WATCH_SOCKETS_FOLDER")


def _note(line: str) -> None:
    # Every program loads this: nothing is imported that it may not need.
    with open(f"{_FOLDER}/{os.getpid()}", "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{line}\n")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = str(arguments[1][0])
    elif event == "socket.getaddrinfo" and arguments[0] is not None:
        host = str(arguments[0])
    else:
        return
    if not host.startswith("127.") and host not in ("localhost", "::1", "", "b''"):
        _note(f"outside {event} {host}")


if _FOLDER:
    _note("program " + " ".join(sys.orig_argv))
    sys.addaudithook(_watch)
