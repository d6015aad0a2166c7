"""Where things are stored if no setting says so: defaults that follow from other settings.

Not here: the settings themselves (`app.settings`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def absolute_folder(data: Mapping[str, Any]) -> Path:
    """The state folder, whole."""
    return Path(data.get("state_dir", Path())).expanduser().absolute()


def local_folder(store_uri: str) -> frozenset[Path]:
    """The folder of a store on this machine; none for a bucket."""
    if not store_uri.startswith("file://"):
        return frozenset()
    return frozenset({Path(unquote(urlsplit(store_uri).path))})


def checkpoint_places(data: Mapping[str, Any]) -> frozenset[str]:
    """Where a job's own checkpoints may be."""
    roots = (root.absolute().as_uri() for root in data.get("checkpoint_roots", ()))
    return frozenset({*data.get("checkpoint_buckets", ()), *roots})


def seal_place(data: Mapping[str, Any]) -> str:
    """In the bucket, if the deployment keeps things in one: who loses the disk keeps the seals."""
    store = str(data.get("object_store_uri", ""))
    root = absolute_folder(data).as_uri() if store.startswith("file://") else store
    return f"{root}/audit-seals"
