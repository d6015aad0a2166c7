"""What is done to whole buckets: ``python -m trainer.training.data.sources.bucket list ADDRESS``.

It must not happen in the training process, whose workers are forked: ``list`` prints one JSON line
[path, size] for each file, ``fill`` copies whole files into the cache until its bound is reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from trainer.training.data.loading.data_parts import BadSampleError
from trainer.training.data.sources.cache import DataCache
from trainer.training.data.sources.remote_files import RemoteFiles
from trainer.training.drain import die_with_launcher
from trainer.training.training_errors import ConfigError, DataError, DataUnavailableError

EXIT_DATA = 2
EXIT_UNAVAILABLE = 1


def fill(address: str, cache: DataCache) -> int:
    """Copies files into the cache, in order, until its bound; returns how many are there now.

    One process of a machine does it; a second one waits, finds them there and goes.
    """
    bucket, folder = RemoteFiles.of(address), cache.folder(address)
    with cache.only_one(f"fill-{folder.parent.name}"):
        used = present = 0
        for path, size in bucket.files():
            if used + size > cache.limit_bytes:
                break
            used += size
            present += 1
            cache.fetched(address, path, bucket.copy_to)
        return present


def main() -> int:
    """The command line; 0, or 2 for what no retry mends, or 1."""
    parser = argparse.ArgumentParser(prog="trainer.training.data.sources.bucket")
    parser.add_argument("work", choices=("list", "fill"))
    parser.add_argument("address")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="bytes")
    options = parser.parse_args()
    die_with_launcher()  # whoever started it has no use for it any more when it is gone
    try:
        if options.work == "list":
            files = list(RemoteFiles.of(options.address).files())
            for file in files:
                print(json.dumps(file))
            if not files:
                raise DataError(f"data: {options.address} has no files, or no such bucket exists")
        else:
            os.nice(5)
            print(fill(options.address, DataCache(options.cache, options.limit)))
    except (ConfigError, BadSampleError) as error:
        print(error, file=sys.stderr)
        return EXIT_DATA
    except (DataUnavailableError, OSError) as error:
        print(error, file=sys.stderr)
        return EXIT_UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
