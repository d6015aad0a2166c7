"""A local cloud for one test: machines that run a shell script in place of the agent.

Not here: what any provider must do (tests/providers/provider_under_test.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from app.adapters.providers.local.files.cloud_folder import DAEMON_LOCK
from app.adapters.providers.local.files.cloud_settings import LocalSettings
from app.adapters.providers.local.machines.machine_processes import find_processes
from app.adapters.providers.local.price_source import LocalPriceSource
from app.adapters.providers.local.provider import LocalProvider
from app.adapters.providers.local.server.cloud_stop import stop_cloud
from app.domain.market.offer import Market, Pool
from app.ports.cloud_provider import CloudMachine, LaunchOrder, MachineState, PoolBid

SLEEPING_AGENT = ("/bin/sh", "-c", "env; echo that is all; exec sleep 600")
"""Prints its environment and stays."""

SLOTS = 2


def eventually(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until the condition holds; fails the test when it does not in time."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def spot_pool(zone: str) -> Pool:
    """The local spot pool of a zone of the recordings."""
    gce = zone[-2] == "-"
    region = zone.rpartition("-")[0] if gce else zone[:-1]
    return Pool("local", region, zone, "a3-highgpu-1g" if gce else "p3.2xlarge", Market.SPOT)


AWS_POOL = spot_pool("us-west-2a")
GCP_POOL = spot_pool("us-central1-a")


def an_order(
    *pools: Pool, token: str = "token-1", count: int = 1, min_count: int | None = None
) -> LaunchOrder:
    """A launch of `count` in the first of `pools` with room, at any price up to on-demand."""
    pools = pools or (AWS_POOL,)
    return LaunchOrder(
        client_token=token,
        count=count,
        min_count=count if min_count is None else min_count,
        market=pools[0].market,
        bids=tuple(PoolBid(pool, None) for pool in pools),
        user_data={"LOWTIDE_LAUNCH_TOKEN": "one-time"},
        tags={"job": "j-1"},
    )


class LocalCloudForTests:
    """A folder with a cloud in it, and what a test may want to know or do about it."""

    def __init__(self, folder: Path, settings: LocalSettings) -> None:
        self.folder = folder
        self.settings = settings
        self.provider = LocalProvider(folder, settings)
        self.prices = LocalPriceSource(folder, settings)

    def launch(self, order: LaunchOrder | None = None) -> str:
        """Launch one machine: its id."""
        (accepted,) = self.provider.launch(order or an_order()).accepted
        return accepted.provider_instance_id

    def machine(self, machine_id: str) -> CloudMachine:
        """The machine as the cloud shows it now."""
        (found,) = self.provider.describe((machine_id,))
        return found

    def await_end(self, machine_id: str, seconds: float = 60.0) -> CloudMachine:
        """The machine once it is terminated."""
        eventually(
            lambda: self.machine(machine_id).state is MachineState.TERMINATED,
            f"{machine_id} terminated",
            seconds,
        )
        return self.machine(machine_id)

    def console(self, machine_id: str) -> str:
        """What the machine printed."""
        return (self.folder / "machines" / machine_id / "console.log").read_text("utf-8")

    def environment(self, machine_id: str) -> dict[str, str]:
        """The agent's environment, once it has printed it."""
        eventually(lambda: "that is all\n" in self.console(machine_id), "environment on console")
        lines = [line.partition("=") for line in self.console(machine_id).splitlines()]
        return {name: value for name, found, value in lines if found}

    def daemon_pid(self) -> int:
        """The pid of the cloud's daemon."""
        return int((self.folder / DAEMON_LOCK).read_text("ascii"))

    def kill_daemon(self) -> int:
        """SIGKILL the daemon and wait until it is gone: the pid it had."""
        pid = self.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_alive(pid), "the daemon is gone")
        return pid

    def processes(self, machine_id: str) -> tuple[int, ...]:
        """Pids that belong to the machine."""
        return find_processes(machine_id)

    def at(self, **changes: object) -> LocalCloudForTests:
        """Another caller of the same folder, with other settings."""
        return LocalCloudForTests(self.folder, replace(self.settings, **changes))  # type: ignore[arg-type]


@contextmanager
def open_local_cloud(**settings: object) -> Iterator[LocalCloudForTests]:
    """A cloud in a new folder; everything it started is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lowtide-test-"))
    given: dict[str, object] = {
        "agent_command": SLEEPING_AGENT,
        "local_slots": SLOTS,
        "crash_shown_after_seconds": 0.2,
        **settings,
    }
    cloud = LocalCloudForTests(folder, LocalSettings(**given))  # type: ignore[arg-type]
    try:
        yield cloud
    finally:
        left = stop_cloud(folder, 20.0)
        shutil.rmtree(folder)
        assert left == 0, "the cloud left machines behind"


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not, once its last thread has closed its files."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
        return state not in {"Z", "X"} or len(list((process / "task").iterdir())) > 1
    except OSError:
        return False
