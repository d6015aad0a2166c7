"""One log stream on its way: what waits, what is being sent, and what was left out at the end.

Plain data under the lock of its owner (`log_shipper`), which does the sending.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SEND_BYTES_MAX = 256 << 10
TAIL_BYTES = 64 << 10
"""The end of a stream goes ahead of more waiting bytes than this; it is what a page shows."""
_LINE_SEARCH_BYTES = 4 << 10
UNREACHABLE = "the control plane could not be reached"
TOO_FAST = "they were written faster than they could be sent"
TOO_LATE = "they could not be sent in time"


@dataclass
class UploadChunk:
    """One request: bytes for `offset`, after a gap of `gap_bytes`.

    fills_gap: the bytes belong into a gap that was left before.
    """

    content: bytes
    offset: int
    gap_bytes: int = 0
    fills_gap: bool = False


@dataclass
class UploadQueue:
    """Bytes in their order: `left_out` (a gap's, sent last), `in_flight`, then `waiting`.

    offset: where the next bytes go. left_out_offset: where the gap begins now. agreed: whether the
    control plane has confirmed the offset. dropped_bytes: lost since the last note, because of
    `dropped_why`.
    """

    waiting: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0
    in_flight: bytes = b""
    offset: int = 0
    agreed: bool = False
    left_out: bytes = b""
    left_out_offset: int = 0
    dropped_bytes: int = 0
    dropped_why: str = ""
    gap_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything has been sent."""
        return not (self.waiting or self.in_flight or self.left_out)

    def add(self, content: bytes) -> None:
        """Queue bytes behind all others."""
        for start in range(0, len(content), SEND_BYTES_MAX):
            self.waiting.append(content[start : start + SEND_BYTES_MAX])
        self.waiting_bytes += len(content)

    def next_piece(self) -> UploadChunk | None:
        """What to send now: the stream's own bytes first, then what was left out before."""
        if not self.in_flight:
            self._load()
        if self.in_flight:
            return UploadChunk(self.in_flight, self.offset, self.gap_bytes)
        if self.left_out:
            return UploadChunk(self.left_out[:SEND_BYTES_MAX], self.left_out_offset, fills_gap=True)
        return None

    def answered(self, piece: UploadChunk, taken: bool, next_offset: int) -> None:
        """Go on after an answer; a refusal (`taken` False) says where the stream ends."""
        if piece.fills_gap:
            self._filled(piece, taken, next_offset)
            return
        if taken:
            if next_offset != piece.offset + piece.gap_bytes + len(piece.content):
                self.left_out = b""  # the gap was not made, so nothing can be filled in
            self.in_flight = b""
            self.gap_bytes = 0
        elif self.gap_bytes and next_offset == self._end_behind_gap:
            # The lost answer to the very send that left the gap.
            self.in_flight, self.gap_bytes = b"", 0
        elif self.agreed and self.offset < next_offset:
            # The lost answer to a send that was taken, wholly or in part.
            self._already_taken(next_offset - self.offset)
        self.offset, self.agreed = next_offset, True
        if self.gap_bytes:
            self.left_out_offset = next_offset

    def end_first(self, makes_gaps: bool) -> None:
        """Put the end of what waits ahead of the rest, which is left out.

        makes_gaps: whether the control plane keeps a place for the rest; else the rest is lost,
        and a note in its place says so.
        """
        if self.gap_bytes or self.left_out:
            return
        whole = self.in_flight + self._note() + b"".join(self.waiting)
        if len(whole) <= 2 * TAIL_BYTES:
            return
        cut = len(whole) - TAIL_BYTES
        line_end = whole.find(b"\n", cut, cut + _LINE_SEARCH_BYTES)
        cut = cut if line_end < 0 else line_end + 1
        self.waiting.clear()
        self.waiting_bytes = 0
        if makes_gaps:
            self.left_out, self.left_out_offset = whole[:cut], self.offset
            self.in_flight, self.gap_bytes = whole[cut:], cut
        else:
            self.in_flight = _missing(cut, TOO_LATE) + whole[cut:]

    def drop_oldest(self, why: str) -> int:
        """Lose the oldest waiting piece; how many bytes that were."""
        piece = self.waiting.popleft()
        self.waiting_bytes -= len(piece)
        self.dropped_bytes += len(piece)
        self.dropped_why = why
        return len(piece)

    @property
    def _end_behind_gap(self) -> int:
        return self.offset + self.gap_bytes + len(self.in_flight)

    def _load(self) -> None:
        """Join pieces into one send; the note about lost bytes stands where they were."""
        joined = bytearray(self._note())
        while self.waiting and len(joined) < SEND_BYTES_MAX:
            piece = self.waiting.popleft()
            self.waiting_bytes -= len(piece)
            joined += piece
        self.in_flight = bytes(joined)

    def _note(self) -> bytes:
        note = _missing(self.dropped_bytes, self.dropped_why) if self.dropped_bytes else b""
        self.dropped_bytes = 0
        return note

    def _already_taken(self, count: int) -> None:
        """So many bytes from `offset` on are there already."""
        if self.gap_bytes:
            self.left_out = self.left_out[count:]
            self.gap_bytes = len(self.left_out)
        else:
            self.in_flight = self.in_flight[count:]

    def _filled(self, piece: UploadChunk, taken: bool, next_offset: int) -> None:
        done = next_offset - self.left_out_offset
        if not taken and not 0 < done <= len(piece.content):
            self.left_out = b""  # there is no such gap any more
            return
        self.left_out = self.left_out[len(piece.content) if taken else done :]
        self.left_out_offset = next_offset


def _missing(count: int, why: str) -> bytes:
    return f"\n[lowtide] {count} bytes of log are missing here: {why}\n".encode()
