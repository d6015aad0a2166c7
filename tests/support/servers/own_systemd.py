"""A systemd for tests: the real one as process 1 of a namespace, with units of the test alone.

It sees this machine's files and network, a /run of its own, and control groups below one of its
own; it never meets the machine's own systemd. Needs root, as namespaces and mounts do.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.embedded import wait_until
from tests.support.servers.finished_commands import run_command

SYSTEMD = Path("/usr/lib/systemd/systemd")
_TARGETS = ("basic", "network-online", "shutdown", "sysinit")
_DEFAULT = "[Unit]\nDefaultDependencies=no\nWants={unit}\nAfter={unit}\n"

# One hierarchy without controllers is enough for it. argv: group, folder of units.
_HIERARCHY = """
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
"""
_BEGIN = f"""{_HIERARCHY}
mkdir "/sys/fs/cgroup/systemd/$1"
echo $$ > "/sys/fs/cgroup/systemd/$1/cgroup.procs"
exec unshare --cgroup sh -ec '
    umount /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
    mount -t tmpfs tmpfs /run
    mkdir -p /run/systemd/system
    exec env -i PATH="$PATH" container=other SYSTEMD_UNIT_PATH="$1" \\
        {SYSTEMD} --system --unit=default.target
' sh "$2"
"""
_END = f"""{_HIERARCHY}
cd /sys/fs/cgroup/systemd
[ ! -d "$1" ] || find "$1" -depth -type d -exec rmdir {{}} +
"""


class OwnSystemd:
    """One that runs. `pid`: of its process 1, as this process sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def systemctl(self, *words: str) -> str:
        """What the command prints; AssertionError where it fails."""
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--cgroup"]
        done = run_command([*inside, "systemctl", "--no-pager", *words], timeout=180)
        assert done.returncode == 0, f"systemctl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def shown(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        lines = self.systemctl("show", unit, "--property", ",".join(names)).splitlines()
        return dict(line.split("=", 1) for line in lines)


@contextmanager
def own_systemd(units: Path, unit: str) -> Iterator[OwnSystemd]:
    """A systemd that starts `unit` of the folder `units`; what it started ends with it."""
    for target in _TARGETS:
        (units / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    (units / "default.target").write_text(_DEFAULT.format(unit=unit))
    group = f"lowtide-test-{os.getpid()}"
    namespace = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    process = subprocess.Popen([*namespace, "sh", "-ec", _BEGIN, "sh", group, str(units)])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        wait_until(lambda: bool(children.read_text()), "process 1 of the namespace")
        found = OwnSystemd(int(children.read_text()))
        name = Path(f"/proc/{found.pid}/comm")
        wait_until(lambda: name.read_text().strip() == "systemd", "systemd is process 1")
        yield found
    finally:
        process.kill()
        process.wait(60)
        wait_until(lambda: _removed(group), "its control groups are empty")


def _removed(group: str) -> bool:
    """Whether the groups are gone; they stay while a process of them is still ending."""
    clean = ["unshare", "--mount", "sh", "-ec", _END, "sh", group]
    done = subprocess.run(clean, timeout=60, capture_output=True, check=False)
    return done.returncode == 0
