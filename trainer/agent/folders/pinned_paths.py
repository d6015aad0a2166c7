"""What all machines of a job must agree on, written once, beside its checkpoints.

The first machine that asks decides, and each later one, replacements included, reads what it
decided: `pins/<name>`, create-only. Not here: what is agreed on (`container_image`,
`input_folders`).
"""

from __future__ import annotations

from collections.abc import Callable

from trainer.agent.checkpoints.storage_root import KeyExists, NoSuchKey, StorageRoot


def agree(store: StorageRoot, name: str, propose: Callable[[], bytes]) -> bytes:
    """What is pinned under the name; `propose` is asked only where nothing is.

    Raises StoreUnavailable, and what `propose` raises.
    """
    key = f"pins/{name}"
    try:
        return store.get(key)
    except NoSuchKey:
        proposed = propose()
    try:
        store.put_new(key, proposed)
    except KeyExists:
        return store.get(key)
    return proposed
