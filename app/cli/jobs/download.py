"""`lowtide download`: a committed checkpoint's files, every chunk verified, into a folder.

A download that was cut goes on where it was, and what is there already is verified, not fetched
again. Not here: which checkpoints there are (`history`), or what is in one (the trainer).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final
from urllib.parse import quote

import typer

from app.cli.client import wording
from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import JobName, job_path
from app.cli.client.progress_bar import ProgressBar, progress_bar
from app.cli.client.terminal import Terminal
from app.domain.lifecycle.job import JobState
from app.domain.wording.attempt_words import attempt_words
from app.domain.wording.checkpoint_words import why_no_checkpoint
from trainer.protocol.best_score import USUAL_METRIC
from trainer.protocol.checkpoint_manifest import stays_inside

# A chunk that comes damaged is asked for once more: the store's copy may be whole.
_TRIES: Final = 2
_UNFINISHED: Final = ".part"
_STEPS_NAMED_MAX: Final = 10
_ANOTHER: Final = (
    "name a folder that has space and that you may write in: `lowtide download {job} DIR`"
)


@api_command(
    "lowtide download bert-ft",
    "lowtide download bert-ft models/bert --step 4000",
    "lowtide download bert-ft --best --only 'weights*'",
)
def download(
    invocation: Invocation,
    job: JobName,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Target folder; default: JOB-step-N, here."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The checkpoint of this step; default: the newest."),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The checkpoint with the best score, not the newest.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only files with such names: 'weights*'.")
    ] = None,
) -> None:
    """Download a job's newest checkpoint, verified.

    After the end of the job that is the final one. If the download is interrupted, run it again: it
    continues.
    """
    path = job_path(invocation.api, job)
    if best and step is not None:
        raise CommandFailed("give --step or --best, not both")
    rows = invocation.api.get(f"{path}/checkpoints")["items"]
    standing = [row for row in rows if row["pruned_at"] is None and row["size_bytes"] > 0]
    if not standing:
        removed = any(row["pruned_at"] is not None for row in rows)
        raise CommandFailed(_nothing_to_fetch(invocation.api.get(path), removed=removed))
    row = _chosen(standing, step, best)
    base = f"{path}/checkpoints/{row['fence']}/{row['step']}"
    found = invocation.api.get(base)
    files = [entry for entry in found["files"] if only is None or fnmatchcase(entry["name"], only)]
    if not files:
        names = ", ".join(entry["name"] for entry in found["files"])
        raise CommandFailed(f"no file of step {row['step']:,} matches {only!r}; there are: {names}")
    target = folder if folder is not None else Path(f"{Path(job).name}-step-{row['step']}")
    total = sum(entry["size_bytes"] for entry in files)
    try:
        _make_room(target, files, job)
        with progress_bar(invocation.terminal, "Fetching", total, in_bytes=True) as bar:
            for entry in files:
                _fetch(invocation.api, base, entry, target, bar)
    except OSError as error:
        raise CommandFailed(
            f"{error.filename or target}: {_reason(error)}; {_ANOTHER.format(job=job)}"
        ) from error
    _tell(invocation.terminal, row, target, files, total)


def _nothing_to_fetch(job: dict[str, Any], *, removed: bool) -> str:
    """Why there is nothing to fetch; after an end without a checkpoint also how one is kept."""
    told = why_no_checkpoint(job["name"], JobState(job["state"]), removed=removed)
    if removed or job["ended_at"] is None:
        return told
    return (
        f"{told}. Files that a command writes into a folder below $LOWTIDE_CHECKPOINT_DIR are "
        "kept: see docs/trainer-contract.md"
    )


def _chosen(standing: list[dict[str, Any]], step: int | None, best: bool) -> dict[str, Any]:
    """The newest, the newest of a step, or the best."""
    if best:
        marked = [row for row in standing if row["best"]]
        if not marked:
            raise CommandFailed(
                f"no checkpoint of this job has a score ({USUAL_METRIC}, or the trainer's"
                " target_metric); leave --best out for the newest"
            )
        return marked[0]
    if step is None:
        return standing[0]
    for row in standing:
        if row["step"] == step:
            return row
    steps = ", ".join(f"{row['step']:,}" for row in standing[:_STEPS_NAMED_MAX])
    raise CommandFailed(f"there is no checkpoint of step {step:,}; there are: {steps}")


def _reason(error: OSError) -> str:
    """Of a file where the folder should be the system only says that it exists."""
    return "is not a folder" if isinstance(error, FileExistsError) else str(error.strerror)


def _make_room(target: Path, files: list[dict[str, Any]], job: str) -> None:
    """Raises CommandFailed when the disk is too small, before anything is fetched."""
    target.mkdir(parents=True, exist_ok=True)
    there = sum(
        path.stat().st_size
        for entry in files
        for path in (_place(target, entry), _unfinished(_place(target, entry)))
        if path.is_file()
    )
    needed = sum(entry["size_bytes"] for entry in files) - there
    free = shutil.disk_usage(target).free
    if needed > free:
        raise CommandFailed(
            f"{target}: {wording.size(needed)} to download and {wording.size(free)} are free; make "
            f"room, or {_ANOTHER.format(job=job)}"
        )


def _place(target: Path, entry: dict[str, Any]) -> Path:
    if not stays_inside(entry["name"]):
        raise CommandFailed(f"the checkpoint names a file outside of its folder: {entry['name']!r}")
    return target.joinpath(entry["name"])


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}{_UNFINISHED}")


def _fetch(
    api: ApiClient, base: str, entry: dict[str, Any], target: Path, bar: ProgressBar
) -> None:
    """One file; what has the right content already stays as it is."""
    path = _place(target, entry)
    unfinished = _unfinished(path)
    if path.is_file():
        # Under its own name it would look complete while it is verified and mended.
        path.replace(unfinished)
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished.open("r+b" if unfinished.exists() else "w+b") as file:
        for number, digest in enumerate(entry["chunk_sha256"]):
            start = number * entry["chunk_bytes"]
            length = min(entry["chunk_bytes"], entry["size_bytes"] - start)
            if not _is_there(file, start, length, digest):
                chunk = _chunk(api, base, entry["name"], start, length, digest)
                file.seek(start)
                file.write(chunk)
            bar.advance(length)
        file.truncate(entry["size_bytes"])
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _is_there(file: BinaryIO, start: int, length: int, digest: str) -> bool:
    file.seek(start)
    return hashlib.sha256(file.read(length)).hexdigest() == digest


def _chunk(api: ApiClient, base: str, name: str, start: int, length: int, digest: str) -> bytes:
    for _ in range(_TRIES):
        content = b""
        while len(content) < length:
            query = {"offset": start + len(content), "limit": length - len(content)}
            piece = api.get_raw(f"{base}/files/{quote(name)}", query).content
            if not piece:
                break
            content += piece
        if hashlib.sha256(content).hexdigest() == digest:
            return content
    raise CommandFailed(
        f"{name} is damaged in the store from byte {start:,} on; download another step: "
        "`lowtide checkpoints` lists them"
    )


def _tell(
    terminal: Terminal, row: dict[str, Any], target: Path, files: list[dict[str, Any]], total: int
) -> None:
    document = {
        "step": row["step"],
        "attempt": wording.attempt(row),
        "fence": row["fence"],
        "final": row["final"],
        "folder": str(target),
        "files": [entry["name"] for entry in files],
        "size_bytes": total,
    }
    if terminal.to_script(document, [str(target)]):
        return
    final = ", the final one" if row["final"] else ""
    counted = "1 file" if len(files) == 1 else f"{len(files)} files"
    ordinal = wording.attempt(row)
    attempt = attempt_words({} if ordinal is None else {row["fence"]: ordinal}, row["fence"])
    terminal.line(
        f"Step {row['step']:,} of {attempt}{final}: {counted}, {wording.size(total)},"
        f" every byte verified, in {target}"
    )
