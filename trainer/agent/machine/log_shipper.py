"""Sends the output of setup and trainer to the control plane, stream by stream, in order.

Lives here: the bounded buffer and the sending. When bytes come faster than they can be sent, or the
control plane cannot be reached for long, the oldest go, and the stream says so where they are
missing. Not here: the reading of pipes (`trainer_run`), one stream's order (`log_stream`).
"""

from __future__ import annotations

import threading
import time

from trainer.agent.machine import last_words
from trainer.agent.machine.control_plane_client import (
    ControlPlaneClient,
    ControlPlaneUnreachable,
    CredentialRevoked,
    ProtocolRefused,
)
from trainer.agent.machine.log_stream import SEND_BYTES_MAX, TOO_FAST, UNREACHABLE, UploadQueue

PENDING_BYTES_MAX = 16 << 20
SEND_PERIOD_SECONDS = 0.5
RETRY_MOST_SECONDS = 15.0
_TRY_AGAIN_SECONDS = 0.2


class LogShipper:
    """`write` from any thread, never blocks; `run` in a thread of its own."""

    def __init__(
        self,
        client: ControlPlaneClient,
        pending_max: int = PENDING_BYTES_MAX,
        makes_gaps: bool = False,
    ) -> None:
        """makes_gaps: the control plane keeps a place for bytes that come after later ones."""
        self._client = client
        self._pending_max = pending_max
        self._makes_gaps = makes_gaps
        self._streams: dict[str, UploadQueue] = {}
        self._pending = 0
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._hurried: set[str] = set()
        self._unreachable = False
        self._stopping = threading.Event()

    def write(self, stream: str, content: bytes) -> None:
        """Queue bytes; beyond the cap the oldest of the longest stream are dropped."""
        if not content:
            return
        with self._lock:
            self._streams.setdefault(stream, UploadQueue()).add(content)
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
            try:
                sent_all = self.send_pending()
            except Exception as error:
                # Whatever it is, it concerns the logs alone: training goes on.
                last_words.print_line(f"logs: {error!r}")
                sent_all = False
            wait = SEND_PERIOD_SECONDS if sent_all else min(wait * 2, RETRY_MOST_SECONDS)
        self._client.close()

    def stop(self) -> None:
        """End `run` at its next turn."""
        self._stopping.set()

    def send_end(self, stream: str, seconds: float) -> None:
        """Send the end of a stream before anything else; return when it is there or time is over.

        Where more waits than fits into one request, the rest is left out and sent later.
        """

        def send() -> None:
            self._send_end(stream, time.monotonic() + seconds)
            self._client.close()

        sender = threading.Thread(target=send, name="log-end", daemon=True)
        sender.start()
        sender.join(seconds)

    def flush(self, seconds: float) -> bool:
        """Send everything within `seconds`; True when nothing is left."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.send_pending(deadline) and not self._has_pending():
                return True
            time.sleep(0.05)
        return not self._has_pending()

    def send_pending(self, until: float | None = None) -> bool:
        """One round over all streams; False when the control plane could not take something.

        until: begin no further request after this instant of the monotonic clock.
        """
        with self._sending:
            with self._lock:
                names = list(self._streams)
            return all(self._send_stream(name, until) for name in names)

    def _send_end(self, name: str, until: float) -> None:
        with self._lock:
            self._hurried.add(name)
        try:
            if not self._sending.acquire(timeout=max(0.0, until - time.monotonic())):
                return
            try:
                self._send_own(name, until)
            finally:
                self._sending.release()
        finally:
            with self._lock:
                self._hurried.discard(name)

    def _send_own(self, name: str, until: float) -> None:
        """All of the stream but what is left out."""
        while time.monotonic() < until:
            with self._lock:
                stream = self._streams.get(name)
                if stream is None:
                    return
                before = stream.waiting_bytes
                stream.end_first(self._makes_gaps)
                self._pending -= before - stream.waiting_bytes
                has_own = bool(stream.in_flight or stream.waiting)
            if not has_own:
                return
            if not self._send_next(name):
                time.sleep(min(_TRY_AGAIN_SECONDS, max(0.0, until - time.monotonic())))

    def _send_stream(self, name: str, until: float | None) -> bool:
        """Everything this stream holds now, piece by piece, unless an end is in more of a hurry."""
        for _ in range(4 + 2 * (self._pending_max // SEND_BYTES_MAX)):
            with self._lock:
                done = self._streams[name].is_empty or bool(self._hurried)
            if done or (until is not None and time.monotonic() >= until):
                return True
            if not self._send_next(name):
                return False
        return True

    def _send_next(self, name: str) -> bool:
        """One request; False when it failed."""
        with self._lock:
            stream = self._streams[name]
            before = stream.waiting_bytes
            piece = stream.next_piece()
            self._pending -= before - stream.waiting_bytes
        if piece is None:
            return True
        try:
            taken, next_offset = self._client.append_log(
                name, piece.offset, piece.content, piece.gap_bytes, piece.fills_gap
            )
        except (ControlPlaneUnreachable, CredentialRevoked, ProtocolRefused):
            self._unreachable = True
            return False
        self._unreachable = False
        with self._lock:
            stream.answered(piece, taken, next_offset)
        return True

    def _drop_oldest(self) -> None:
        longest = max(self._streams.values(), key=lambda stream: stream.waiting_bytes)
        self._pending -= longest.drop_oldest(UNREACHABLE if self._unreachable else TOO_FAST)

    def _has_pending(self) -> bool:
        with self._lock:
            return not all(stream.is_empty for stream in self._streams.values())
