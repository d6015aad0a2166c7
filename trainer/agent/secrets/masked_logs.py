"""The log shipper behind a mask: no value of a secret gets into what is sent.

Not here: the sending (`log_shipper`), or what is hidden (`secret_mask`).
"""

from __future__ import annotations

import threading

from trainer.agent.machine.log_shipper import LogShipper
from trainer.agent.secrets.secret_mask import SecretMask, StreamMask


class MaskedLogs:
    """`write` and `say` from any thread, each stream in the order of the calls."""

    def __init__(self, shipper: LogShipper, mask: SecretMask) -> None:
        self._shipper = shipper
        self._mask = mask
        self._streams: dict[str, StreamMask] = {}
        self._lock = threading.Lock()

    def write(self, stream: str, content: bytes) -> None:
        """Queue bytes of a stream, as far as they cannot be the beginning of a value."""
        with self._lock:
            masked = self._streams.setdefault(stream, StreamMask(self._mask))
            self._shipper.write(stream, masked.feed(content))

    def say(self, stream: str, sentence: str) -> None:
        """Queue one line of the agent's own, marked as such.

        It goes before what is held back: between two parts of a value it would let both pass.
        """
        self._shipper.say(stream, self._mask.text(sentence))

    def send_end(self, stream: str, seconds: float) -> None:
        """Send the end of a stream; returns when it is there or the time is over."""
        with self._lock:
            self._release(stream)
        self._shipper.send_end(stream, seconds)

    def flush(self, seconds: float) -> bool:
        """Send everything within `seconds`; True when nothing is left."""
        with self._lock:
            for stream in self._streams:
                self._release(stream)
        return self._shipper.flush(seconds)

    def _release(self, stream: str) -> None:
        if stream in self._streams:
            self._shipper.write(stream, self._streams[stream].end())
