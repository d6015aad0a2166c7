"""The daemon: `python -m app.adapters.providers.local.server.cloud --dir DIR [--settings JSON]`.

One process per folder. It outlives the service's workers and is started again on demand; machines
outlive it. It idles at no cost: whatever it waits for wakes it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from app.adapters.providers.local.files.cloud_folder import (
    DAEMON_LOCK,
    forget_address,
    new_address,
    prepare_folder,
    try_lock,
)
from app.adapters.providers.local.files.cloud_settings import LocalSettings, settle_terms
from app.adapters.providers.local.market.market import recorded_pools
from app.adapters.providers.local.server.control_api import ControlApi
from app.adapters.providers.local.server.http_server import protocol_for
from app.adapters.providers.local.server.local_cloud import LocalCloud, now_us


async def serve(folder: Path, settings: LocalSettings, on_ready: Callable[[], None]) -> None:
    """Run the cloud of a folder until it is told to stop."""
    recorded_pools()  # read before the market begins, as that takes a while on a busy machine
    cloud = LocalCloud(folder, settings, settle_terms(folder, settings, now_us()))
    await cloud.recover()
    control = ControlApi(cloud)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(protocol_for(control.answer), new_address(folder))
    on_ready()
    async with server:
        await control.stopped.wait()
    forget_address(folder)


def main() -> int:
    """0 once the cloud answers in the background, or when it runs already; 1 when it failed."""
    parser = argparse.ArgumentParser(prog="local cloud")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--settings", type=LocalSettings.from_json, default=LocalSettings())
    arguments = parser.parse_args()
    folder: Path = arguments.dir.absolute()
    os.umask(0o077)
    prepare_folder(folder)
    lock = try_lock(folder / DAEMON_LOCK)
    if lock is None:
        return 0
    ready, tell = os.pipe()
    if os.fork() != 0:
        # The caller waits for this process alone, and the cloud is nobody's child.
        # Nothing is taken down here that the cloud still uses, and the caller waits no longer.
        os.close(tell)
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    with contextlib.suppress(OSError):  # for people; a full disk is no reason not to run
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())

    def say_ready() -> None:
        os.write(tell, b"!")
        os.close(tell)

    asyncio.run(serve(folder, arguments.settings, say_ready))
    return 0


if __name__ == "__main__":
    sys.exit(main())
