"""Another machine's side of a checkpoint that a gang saves together: uploads its share.

Lives here: files first, then the record that says that they are all there. It makes nothing
count: that is machine 0's manifest (`checkpoint_sync`). Not here: when (`share_sender`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from pathlib import Path

from trainer.agent.checkpoints.checkpoint_sync import PlaceTaken, files_of, upload_file
from trainer.agent.checkpoints.storage_root import KeyExists, StorageRoot
from trainer.protocol.checkpoint_manifest import FileEntry, data_key
from trainer.protocol.checkpoint_shares import ShareOrder, ShareRecord, record_key
from trainer.protocol.wire import encode

Uploaded = MutableMapping[str, FileEntry]


def send_share(
    store: StorageRoot,
    folder: Path,
    optional: frozenset[str],
    order: ShareOrder,
    machine: int,
    uploaded: Uploaded,
    leaves_out: Callable[[], bool],
    is_abandoned: Callable[[], bool],
) -> None:
    """Upload a share, what may be left out last, and record it; the same again changes nothing.

    uploaded: by key what this machine has in the store already, kept up to date. leaves_out: asked
    when all but the optional files are there. Raises Abandoned, PlaceTaken (recorded, too),
    StoreUnavailable and OSError.
    """
    names = {path.relative_to(folder).as_posix(): path for path in files_of(folder)}
    required = [name for name in names if name not in optional]
    entries: list[FileEntry] = []
    try:
        for name in [*required, *(each for each in names if each in optional)]:
            if name in optional and len(entries) == len(required):
                _record(store, order, machine, entries, frozenset(), required_only=True)
                if leaves_out():
                    return
            key = data_key(order.fence, order.step, name)
            if key not in uploaded:
                uploaded[key] = upload_file(store, key, names[name], name, is_abandoned)
            entries.append(uploaded[key])
    except PlaceTaken:
        taken = ShareRecord(order.fence, order.step, order.save, machine, place_taken=True)
        _put(store, record_key(order, machine), taken)
        raise
    _record(store, order, machine, entries, optional)


def record_loss(store: StorageRoot, order: ShareOrder, machine: int, problem: str) -> None:
    """Say for good that this machine has no such share. Raises StoreUnavailable."""
    lost = ShareRecord(order.fence, order.step, order.save, machine, problem=problem)
    _put(store, record_key(order, machine), lost)


def _record(
    store: StorageRoot,
    order: ShareOrder,
    machine: int,
    entries: list[FileEntry],
    optional: frozenset[str],
    required_only: bool = False,
) -> None:
    record = ShareRecord(
        order.fence,
        order.step,
        order.save,
        machine,
        tuple(entries),
        tuple(sorted(optional)),
    )
    _put(store, record_key(order, machine, required_only), record)


def _put(store: StorageRoot, key: str, record: ShareRecord) -> None:
    try:
        store.put_new(key, json.dumps(encode(record), sort_keys=True).encode())
    except KeyExists:
        pass  # of this machine and this save: it says the same
