"""A process of its own for what touches a bucket, as a rank is one.

Reading forks workers, and a bucket's client that was opened before cannot be used behind a fork:
the tests' own process may have opened one long ago.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def upload(folder: str, address: str) -> None:
    """Every file below the folder, under the address."""
    import obstore

    from trainer.training.data.sources.remote_files import RemoteFiles

    bucket = RemoteFiles(address)
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            obstore.put(bucket._store, path.relative_to(folder).as_posix(), path.read_bytes())


def read(*wanted: str) -> None:
    """Prints a JSON list: what was found for each {"data": address, ...other options}."""
    print(json.dumps([_found(**json.loads(each)) for each in wanted]))


def _found(data: str, **options: Any) -> dict[str, Any]:
    """The parts' sizes and a digest of three steps' tensors, or the error."""
    from trainer.protocol.train_options.data import DataOptions
    from trainer.training.data import SampleOrder, load_data
    from trainer.training.training_errors import DataError, DataUnavailableError

    checked = DataOptions(**options)
    seen = hashlib.sha256()
    try:
        opened = load_data(data, 0, checked)
        # Only now: most of this process's time goes into importing torch.
        import torch

        from trainer.training.data.loading.loader import Loader

        order = SampleOrder(0, len(opened.train), 6)
        device = torch.device("cpu")
        loader = Loader(opened, order, rank=0, world_size=1, device=device, seed=0, options=checked)
        loader.start(0)
        for _ in range(3):
            (batch,) = loader.next()
            seen.update(batch.inputs.numpy().tobytes() + batch.labels.numpy().tobytes())
        loader.close()
    except (DataError, DataUnavailableError) as error:
        return {"error": str(error), "kind": type(error).__name__}
    sizes = [len(opened.part(name)) for name in ("train", "validation", "test")]
    return {"sizes": sizes, "digest": seen.hexdigest()}


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"upload": upload, "read": read}
    programs[sys.argv[1]](*sys.argv[2:])
