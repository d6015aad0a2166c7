"""`lowtide logs`: what the job's machines wrote, stream by stream, once or as it comes.

A stream is one machine's part of one attempt. Not here: what happened to the job (`history`).
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli.client import job_view, wording
from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import JobName, job_path
from app.cli.client.terminal import Terminal
from app.domain.deployment.sweep_rules import FENCES_SKIPPED
from app.domain.wording.attempt_words import LOG_STREAM, stream_words

_POLL_SECONDS: Final = 1.0
_PIECE_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 256 << 10
_LINE_MAX: Final = 64 << 10
_STREAMS_NAMED_MAX: Final = 10
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
# All control characters but the tab, and those that turn the writing direction.
_CONTROLS: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which streams: None means all ranks, the newest attempt, any time."""

    rank: int | None
    attempt: int | None
    since: datetime | None


@dataclass(slots=True)
class Reader:
    """How far one stream is read, and the beginning of its next line.

    fence: orders attempts. attempt: its count, None where the server has lost its row.
    """

    fence: int
    attempt: int | None
    rank: int
    stream: str
    machine: str | None
    offset: int = 0
    rest: str = ""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def lines(self, content: bytes, *, last: bool = False) -> list[str]:
        """The whole lines that are complete now; with `last` the unfinished one too."""
        text = self.rest + self.decoder.decode(content, last)
        *whole, self.rest = text.split("\n")
        if self.rest and (last or len(self.rest) > _LINE_MAX):
            whole.append(self.rest)
            self.rest = ""
        return whole


@api_command(
    "lowtide logs bert-ft",
    "lowtide logs bert-ft -f --rank 0",
    "lowtide logs bert-ft -n 50",
    quiet="Print only log lines, no remarks.",
)
def logs(
    invocation: Invocation,
    job: JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the job ends or pauses.")
    ] = False,
    rank: Annotated[
        int | None,
        typer.Option(
            "--rank",
            "--node",
            min=0,
            metavar="N",
            help="Only machine N of the gang, 0 for the first: its node rank. All processes of a "
            "machine write into one log.",
        ),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="This attempt, 1 for the first; default: the newest."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only streams written to since: 10m, or a time."),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", "-n", min=1, metavar="N", help="Start with the last N lines of each machine."
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Pass control characters on to the terminal, too.")
    ] = False,
) -> None:
    """Print what a job's machines wrote.

    Colours are removed and other control characters are shown as text.
    """
    api, terminal = invocation.api, invocation.terminal
    path = job_path(api, job)
    at = None if since is None else wording.since(since, datetime.now(UTC))
    wanted = LogFilter(rank, attempt, at)
    if attempt is not None:
        _require_attempt(api, path, attempt)
    found = api.get(path)
    if rank is not None:
        _require_node(api, path, found, wanted)
    several = _is_gang(found) and rank is None
    shown = str if raw else visible
    readers: dict[str, Reader] = {}
    for state in _looks(api, path, follow):
        _open_new(api, path, wanted, readers, tail)
        for reader in sorted(readers.values(), key=lambda one: (one.fence, one.rank)):
            for content in _contents(api, path, reader):
                _print(terminal, reader, reader.lines(content), several, shown)
        if state == "" and not readers:
            terminal.note(_why_nothing(api, path))
    for reader in readers.values():
        _print(terminal, reader, reader.lines(b"", last=True), several, shown)


def visible(line: str) -> str:
    """The line as a terminal may show it: no colours, other control characters spelled out.

    Tabs stay. Of a line that was written over with carriage returns, as progress bars do, the last
    state is shown.
    """
    last = line.rstrip("\r").rpartition("\r")[2]
    return _CONTROLS.sub(_spelled_out, _COLOURS.sub("", last))


def _require_attempt(api: ApiClient, path: str, wanted: int) -> None:
    """Raises CommandFailed, with the attempts that there are, for one that the job never had."""
    counts = [int(row["ordinal"]) for row in api.get(f"{path}/attempts")["items"]]
    if wanted in counts:
        return
    streams = api.get(f"{path}/logs")["items"]
    known = [reader for reader in map(_reader, streams) if reader is not None]
    fence = _wanted_fence(known, wanted)
    if any(reader.fence == fence for reader in known):
        return
    if not counts:
        there = "it has none yet"
    elif len(counts) == 1:
        there = "it has only attempt 1"
    else:
        there = f"it has the attempts 1 to {max(counts):,}"
    lost = [_name(row) for row in streams if row.get("ordinal", 0) is None and _reader(row)]
    others = f"; of attempts that the server lost there are {', '.join(lost)}" if lost else ""
    raise CommandFailed(f"this job has no attempt {wanted:,}: {there}{others}")


def _require_node(api: ApiClient, path: str, job: dict[str, Any], wanted: LogFilter) -> None:
    """Raises CommandFailed, with the machines that there are, for one that no attempt can have had.

    A gang that may grow can have each of its most machines yet, unless one attempt is asked for.
    """
    rows = api.get(f"{path}/attempts")["items"]
    streams = [reader for row in api.get(f"{path}/logs")["items"] if (reader := _reader(row))]
    fence = _wanted_fence(streams, wanted.attempt)
    if wanted.attempt is None:
        of, most = "this job", str(job["nodes"]).rpartition("..")[2]
        counts = [int(most), job["node_count"], *(row["node_count"] for row in rows)]
    else:
        of = f"attempt {wanted.attempt:,} of this job"
        counts = [row["node_count"] for row in rows if row["ordinal"] == wanted.attempt]
    ranks = [one.rank for one in streams if one.fence == fence or wanted.attempt is None]
    last = max([0, *(count - 1 for count in counts), *ranks])
    if wanted.rank is None or wanted.rank <= last:
        return
    there = "it has only node 0" if last == 0 else f"it has the nodes 0 to {last:,}"
    raise CommandFailed(f"{of} has no node {wanted.rank:,}: {there} (a node is a machine)")


def _spelled_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _why_nothing(api: ApiClient, path: str) -> str:
    """The streams there are, where only the options leave none; else the job's state."""
    rows = api.get(f"{path}/logs")["items"]
    known = ", ".join(_name(row) for row in rows[-_STREAMS_NAMED_MAX:])
    if known:
        return f"No log fits these options; there are: {known}"
    found = api.get(path)
    why = f": {found['why']}" if found["why"] else ""
    return f"Nothing was written yet; the job {wording.standing(found['state'])}{why}"


def _looks(api: ApiClient, path: str, follow: bool) -> Iterator[str]:
    """One look, or one each second until the job is at rest, and then a last one."""
    if not follow:
        yield ""
        return
    at_rest = False
    first = True
    while not at_rest:
        state = api.get(path)["state"]
        at_rest = state in job_view.AT_REST
        yield "" if first else state
        first = False
        if not at_rest:
            time.sleep(_POLL_SECONDS)


def _open_new(
    api: ApiClient, path: str, wanted: LogFilter, readers: dict[str, Reader], tail: int | None
) -> None:
    """Begin with streams that appeared since the last look, at their end under `tail`."""
    for row, reader in _chosen(api.get(f"{path}/logs")["items"], wanted):
        if reader.stream in readers:
            continue
        readers[reader.stream] = reader
        if tail is not None:
            reader.offset = _offset_of_tail(api, path, row, tail)


def _chosen(rows: list[dict[str, Any]], wanted: LogFilter) -> list[tuple[dict[str, Any], Reader]]:
    """The wanted streams with a reader at the start of each."""
    known = [(row, reader) for row in rows if (reader := _reader(row)) is not None]
    fence = _wanted_fence([reader for _, reader in known], wanted.attempt)
    chosen = []
    for row, reader in known:
        updated_at = wording.instant(row["updated_at"])
        recent = wanted.since is None or updated_at is None or updated_at >= wanted.since
        if reader.fence == fence and wanted.rank in (None, reader.rank) and recent:
            chosen.append((row, reader))
    return chosen


def _reader(row: dict[str, Any]) -> Reader | None:
    """None of a stream that is no machine's part of an attempt."""
    found = LOG_STREAM.fullmatch(row["stream"])
    if found is None:
        return None
    fence = int(found[1])
    return Reader(
        fence, row.get("ordinal", fence), int(found[2]), row["stream"], row.get("machine")
    )


def _wanted_fence(known: list[Reader], attempt: int | None) -> int | None:
    """The fence of the attempt of this count, or of the newest; None where there is none as yet.

    A number that is no count is a fence if it cannot become a count: it is too large for one, as
    after a gap, or its own attempt has none.
    """
    if attempt is None:
        return max((one.fence for one in known), default=None)
    counted = {one.attempt: one.fence for one in known}
    uncounted = {one.fence for one in known if one.attempt is None}
    is_fence = attempt > FENCES_SKIPPED or attempt in uncounted
    return counted.get(attempt, attempt if is_fence else None)


def _name(row: dict[str, Any]) -> str:
    reader = _reader(row)
    return row["stream"] if reader is None else stream_words(row["stream"], reader.attempt)


def _offset_of_tail(api: ApiClient, path: str, row: dict[str, Any], lines: int) -> int:
    """Where the last `lines` lines begin, looking back at most 256 KiB."""
    start, content = _rest_of(
        api, path, row["stream"], max(0, int(row["size_bytes"]) - _TAIL_BYTES)
    )
    in_gap = len(content) - len(content.lstrip(b"\0"))
    start, content = start + in_gap, content[in_gap:]
    kept = content.removesuffix(b"\n").rsplit(b"\n", lines)
    if len(kept) <= lines:
        return start
    return start + len(kept[0]) + 1


def _rest_of(api: ApiClient, path: str, stream: str, start: int) -> tuple[int, bytes]:
    """A stream from an offset to its end, and where that begins: behind a part that is missing.

    An answer may hold less than was asked for, such as one stored piece.
    """
    content, at = b"", start
    while len(content) < 2 * _TAIL_BYTES:  # what is written meanwhile does not hold this up
        piece, following = _read(api, path, stream, at, _TAIL_BYTES)
        if not piece and following <= at:
            break
        if following > at + len(piece):
            start, content = following, b""
        else:
            content += piece
        at = following
    return start, content


def _contents(api: ApiClient, path: str, reader: Reader) -> Iterator[bytes]:
    """What the stream holds beyond the reader's place, in pieces."""
    while True:
        content, following = _read(api, path, reader.stream, reader.offset, _PIECE_BYTES)
        if not content:
            return
        reader.offset = following
        yield content


def _read(api: ApiClient, path: str, stream: str, offset: int, limit: int) -> tuple[bytes, int]:
    """Bytes from an offset on, and where to read on."""
    query: dict[str, Any] = {"stream": stream, "offset": offset, "limit": limit}
    answer = api.get_raw(f"{path}/logs", query)
    following = answer.headers.get("Lowtide-Next-Offset", "")
    return answer.content, int(following) if following.isdigit() else offset + len(answer.content)


def _print(
    terminal: Terminal,
    reader: Reader,
    lines: list[str],
    several: bool,
    shown: Callable[[str], str],
) -> None:
    for line in lines:
        if terminal.as_json:
            known = {"attempt": reader.attempt, "rank": reader.rank, "machine": reader.machine}
            terminal.json_line({**known, "line": line})
        elif several:
            node = f"node {reader.rank}"
            who = node if reader.machine is None else f"{reader.machine}, {node}"
            mark = terminal.paint(f"{who} |", "cyan" if reader.rank % 2 else "blue")
            terminal.raw(f"{mark} {shown(line)}\n")
        else:
            terminal.raw(f"{shown(line)}\n")


def _is_gang(job: dict[str, Any]) -> bool:
    return bool(job["node_count"] > 1) or isinstance(job["nodes"], str)
