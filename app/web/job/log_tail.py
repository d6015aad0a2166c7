"""The end of a job's log streams, as text that a page can show.

Not here: reading from an offset (`app.orchestration.agents.read_logs`), or the markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from app.orchestration.agents.read_logs import list_logs, read_log, stream_names
from app.orchestration.frame.runtime import Runtime
from app.storage.jobs.log_repository import LogStream
from trainer.protocol.error_line import readable_line

TAIL_BYTES: Final = 48 * 1024
_LINES_MAX: Final = 300


@dataclass(frozen=True)
class LogTail:
    """One stream's end. `streams` are all of the job; `version` changes with what is shown.

    names: what people call each of the streams.
    """

    streams: tuple[LogStream, ...]
    names: Mapping[str, str]
    stream: str | None
    text: str
    size_bytes: int
    is_cut: bool

    @property
    def name(self) -> str:
        """What people call the stream that is shown."""
        return self.names[self.stream] if self.stream is not None else ""

    @property
    def version(self) -> str:
        """Equal exactly when nothing new has been written."""
        return _version(self.streams, self.size_bytes)


def log_tail(runtime: Runtime, job_id: UUID, wanted: str | None, seen: str) -> LogTail | None:
    """The end of the wanted stream, else of the one written to last; None if `seen` is that."""
    streams = tuple(list_logs(runtime, job_id))
    shown = next((one for one in streams if one.stream == wanted), None)
    if shown is None:
        shown = max(streams, key=lambda one: (one.updated_at, one.stream), default=None)
    if _version(streams, 0 if shown is None else shown.size_bytes) == seen:
        return None
    if shown is None:
        return LogTail(streams, {}, None, "", 0, False)
    part = read_log(runtime, job_id, shown.stream, -TAIL_BYTES)
    text, is_cut = readable(part.content, cut_at_start=part.byte_offset > 0)
    names = stream_names(runtime, job_id, (one.stream for one in streams))
    return LogTail(streams, names, shown.stream, text, part.size_bytes, is_cut)


def _version(streams: tuple[LogStream, ...], size_bytes: int) -> str:
    return f"{len(streams)}-{size_bytes}"


def readable(content: bytes, *, cut_at_start: bool) -> tuple[str, bool]:
    """Text without terminal codes, at most 300 lines, and whether something is left out before.

    Of a line that was written over with carriage returns, as progress bars do, the last state.
    """
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    lines = text.split("\n")
    if cut_at_start and len(lines) > 1:
        lines = lines[1:]
    kept = lines[-_LINES_MAX:]
    return "\n".join(map(readable_line, kept)), cut_at_start or len(kept) < len(lines)
