"""From the name in a configuration to a data set. The names themselves: ``DATA_SETS``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

from trainer.protocol.run_config import TRAINING_DATA_INPUT, folder_variable
from trainer.protocol.train_options.data import DataOptions
from trainer.training.data.loading.data_parts import DataSet, require_samples
from trainer.training.data.sources import arrays, builtin
from trainer.training.data.sources.cache import open_cache
from trainer.training.data.sources.data_layout import resized
from trainer.training.data.sources.folders import image_folders
from trainer.training.data.sources.shards import shards
from trainer.training.data.sources.source import BUCKET_SCHEMES, BucketSource, Source, open_source
from trainer.training.training_errors import ConfigError, DataError

DATA_SETS: dict[str, Callable[[DataOptions, int], DataSet]] = {
    "digits": builtin.digits,
    "synthetic": builtin.synthetic,
}
TFRECORD_ENDINGS = (".tfrecord", ".tfrecords")


def load_data(name: str, seed: int, options: DataOptions | None = None) -> DataSet:
    """Opens the data by name, path or URL; samples are read later.

    name: of ``DATA_SETS``, or a folder, a file of tokens, ``s3://bucket/prefix`` or
    ``gs://bucket/prefix`` (image folders and shards only); relative paths count from the working
    folder. Raises ``ConfigError`` in one line, ``DataUnavailableError`` for a silent bucket.
    """
    options = options or DataOptions()
    if name in DATA_SETS:
        return resized(require_samples(DATA_SETS[name](options, seed), name), options.image_size)
    if name.startswith(BUCKET_SCHEMES):
        # On a rented machine the agent has brought it already; its rights are not the trainer's.
        name = os.environ.get(folder_variable("INPUT", TRAINING_DATA_INPUT)) or name
    if not name.startswith(BUCKET_SCHEMES):
        root = Path(name.removeprefix("file://")).expanduser()
        if "/" not in name and not root.exists():
            raise ConfigError(unknown_name(name))
        if root.exists() and arrays.token_files(root):
            return require_samples(arrays.token_windows(root, options, seed), name)
        if root.exists() and arrays.is_image_arrays(root):
            data = require_samples(arrays.image_arrays(root, options, seed), name)
            return resized(data, options.image_size)
    cache = open_cache(options.cache, options.cache_gb)
    source = open_source(name, cache)
    # Millions of files: a Path for each of them costs more than its ending.
    endings = {os.path.splitext(file.path)[1] for file in source.files}  # noqa: PTH122
    if ".tar" in endings:
        return require_samples(shards(source, options, seed, cache), name)
    if endings & set(TFRECORD_ENDINGS):
        raise DataError(
            f"data: {name} holds TFRecord files; convert them once:"
            f" python -m trainer.training.data.convert tfrecord {name} NEW_FOLDER"
        )
    data = require_samples(image_folders(source, options, seed), name)
    _start_filling(source)
    return data


def unknown_name(name: str) -> str:
    """The sentence for a name that is neither known nor a path."""
    near = difflib.get_close_matches(name, DATA_SETS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"data: {name!r} is not known: one of {', '.join(DATA_SETS)}, a folder that is there"
        f" (looked in {Path.cwd()}), s3://bucket/prefix or gs://bucket/prefix{hint}"
    )


def _start_filling(source: Source) -> None:
    """One rank of each machine copies a bucket's images into the cache while training goes on."""
    if isinstance(source, BucketSource) and os.environ.get("LOCAL_RANK", "0") == "0":
        source.start_filling()
