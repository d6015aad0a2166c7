"""Sends the output of setup and trainer to the control plane, stream by stream, in order.

Lives here: the bounded buffer and the offsets. When the control plane cannot be reached for long
the oldest bytes go, and the stream says so where they are missing. Not here: the reading of pipes
(`trainer_run`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from trainer.agent.control_plane_client import (
    ControlPlaneClient,
    ControlPlaneUnreachable,
    CredentialRevoked,
    ProtocolRefused,
)

PENDING_BYTES_MAX = 16 << 20
SEND_BYTES_MAX = 256 << 10
SEND_PERIOD_SECONDS = 0.5
RETRY_MOST_SECONDS = 15.0


@dataclass
class _Stream:
    pieces: deque[bytes] = field(default_factory=deque)
    in_flight: bytes = b""
    offset: int = 0
    agreed: bool = False
    dropped_bytes: int = 0


class LogShipper:
    """`write` from any thread, never blocks; `run` in a thread of its own."""

    def __init__(self, client: ControlPlaneClient, pending_max: int = PENDING_BYTES_MAX) -> None:
        self._client = client
        self._pending_max = pending_max
        self._streams: dict[str, _Stream] = {}
        self._pending = 0
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._stopping = threading.Event()

    def write(self, stream: str, content: bytes) -> None:
        """Queue bytes; beyond the cap the oldest of the longest stream are dropped."""
        if not content:
            return
        with self._lock:
            self._streams.setdefault(stream, _Stream()).pieces.append(content)
            self._pending += len(content)
            while self._pending > self._pending_max:
                self._drop_oldest()

    def say(self, stream: str, sentence: str) -> None:
        """Queue one line of the agent's own, marked as such."""
        self.write(stream, f"[lowtide] {sentence}\n".encode())

    def run(self) -> None:
        """Send until `stop`; a failing control plane is asked less and less often."""
        wait = SEND_PERIOD_SECONDS
        while not self._stopping.wait(wait):
            sent_all = self.send_pending()
            wait = SEND_PERIOD_SECONDS if sent_all else min(wait * 2, RETRY_MOST_SECONDS)
        self._client.close()

    def stop(self) -> None:
        """End `run` at its next turn."""
        self._stopping.set()

    def flush_soon(self, seconds: float) -> None:
        """Try at once, whatever the pause after a failure; return when done or after `seconds`."""

        def send() -> None:
            self.send_pending()
            self._client.close()

        sender = threading.Thread(target=send, name="log-flush", daemon=True)
        sender.start()
        sender.join(seconds)

    def flush(self, seconds: float) -> bool:
        """Send everything within `seconds`; True when nothing is left."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.send_pending() and not self._has_pending():
                return True
            time.sleep(0.05)
        return not self._has_pending()

    def send_pending(self) -> bool:
        """One round over all streams; False when the control plane could not take something."""
        with self._sending:
            with self._lock:
                names = list(self._streams)
            return all(self._send_stream(name) for name in names)

    def _send_stream(self, name: str) -> bool:
        """Everything this stream holds now, piece by piece."""
        for _ in range(2 + PENDING_BYTES_MAX // SEND_BYTES_MAX):
            with self._lock:
                stream = self._streams[name]
                if not stream.in_flight:
                    self._load(stream)
                content, offset = stream.in_flight, stream.offset
            if not content:
                return True
            try:
                taken, next_offset = self._client.append_log(name, offset, content)
            except (ControlPlaneUnreachable, CredentialRevoked, ProtocolRefused):
                return False
            with self._lock:
                self._settle(stream, taken, next_offset)
        return True

    def _settle(self, stream: _Stream, taken: bool, next_offset: int) -> None:
        if taken:
            stream.in_flight = b""
        elif stream.agreed and stream.offset < next_offset:
            # The lost answer to a send that was taken, wholly or in part.
            already = min(next_offset - stream.offset, len(stream.in_flight))
            stream.in_flight = stream.in_flight[already:]
        stream.offset, stream.agreed = next_offset, True

    def _load(self, stream: _Stream) -> None:
        """Join pieces into one send; the note about lost bytes stands where they were."""
        joined = bytearray()
        if stream.dropped_bytes:
            joined += (
                f"\n[lowtide] {stream.dropped_bytes} bytes of log are missing here:"
                " the control plane could not be reached\n"
            ).encode()
            stream.dropped_bytes = 0
        while stream.pieces and len(joined) < SEND_BYTES_MAX:
            piece = stream.pieces.popleft()
            self._pending -= len(piece)
            joined += piece
        stream.in_flight = bytes(joined)

    def _drop_oldest(self) -> None:
        longest = max(
            self._streams.values(), key=lambda stream: sum(len(piece) for piece in stream.pieces)
        )
        piece = longest.pieces.popleft()
        longest.dropped_bytes += len(piece)
        self._pending -= len(piece)

    def _has_pending(self) -> bool:
        with self._lock:
            return any(stream.pieces or stream.in_flight for stream in self._streams.values())
