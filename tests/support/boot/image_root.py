"""The root of a machine, dressed after an image's release notes, in which the real script boots.

Lives here: an overlay of this Debian machine's own root in a mount namespace of its own, with what
an image adds, hides and answers. So paths, mounts, users and disks (loop devices) are real; the
programs are Debian's, and Python is the one that runs the tests. Not here: what an image has
(`tests.support.boot.image_notes`), or what is expected of a boot.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.adapters.providers.boot_script import render
from tests.support.boot.booted_machine import boot_process, metadata_service
from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}

# iptables(8): -C "checks whether a rule matching the specification does exist", else ends with 1.
_FIREWALL = """asked="{name} $*"
case " $* " in
    *" -C "*) grep -qxF -e "${{asked%% -C *}} -I ${{asked#* -C }}" /calls 2>/dev/null ;;
    *) echo "$asked" >> /calls ;;
esac"""


class ImageRoot:
    """One machine's disk. `written` holds what differs from this machine's own root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = folder / "written"
        self.written.mkdir(parents=True)
        self._links: dict[str, str] = {}
        self._loops: list[str] = []
        self._mounts: dict[str, str] = {}
        self.hide("curl", "wget", "docker", "mdadm", "vgchange")
        for place in PATH.split(":"):
            self.hide(*(one.name for one in Path(place).glob("python3*")))
        # Whatever would leave the machine, or end it, is the image's own answer.
        own = ("systemctl", "poweroff", "shutdown", "reboot", "iptables", "ip6tables", "nvidia-smi")
        self.hide(*own)
        for name in own:
            self.command(name, f'echo "{name} $*" >> /calls')
        for name in ("iptables", "ip6tables"):
            self.command(name, _FIREWALL.format(name=name))
        self.command("systemctl", 'echo "systemctl $*" >> /calls; [ "$1" != is-enabled ]')

    def file(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file of the image, by its absolute path."""
        target = self.written / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() or target.is_symlink():
            target.unlink()
        target.write_text(text)
        target.chmod(mode)

    def command(self, name: str, script: str) -> None:
        """A command of the image in shell code; `/calls` collects what was asked for."""
        self.file(f"/usr/local/sbin/{name}", f"#!/bin/sh\n{script}\n", 0o755)

    def hide(self, *names: str) -> None:
        """Commands of this machine that the image does not have."""
        for name in names:
            for place in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"):
                target = self.written / place.lstrip("/") / name
                if os.path.lexists(f"{place}/{name}") and not os.path.lexists(target):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.mknod(target, stat.S_IFCHR | 0o600, os.makedev(0, 0))  # overlay's "gone"

    def show(self, *names: str) -> None:
        """Commands of this machine that the image has, too."""
        for name in names:
            for target in self.written.glob(f"usr/*bin/{name}"):
                target.unlink()

    def python(
        self, version: str, *, pip: bool = True, torch: bool = True, at: str = "/usr/bin/python3"
    ) -> None:
        """A Python that says it has this version; in truth it is the one of the tests."""
        script = ["#!/bin/sh"]
        if tuple(map(int, version.split("."))) < (3, 11):
            script.append("case $2 in *version_info*) exit 1 ;; esac")
        if not pip:
            script.append('case $2 in "import pip") exit 1 ;; esac')
        if not torch:
            script.append("""case $2 in *'find_spec("torch")'*) exit 1 ;; esac""")
        script.append(f'exec {shlex.quote(sys.executable)} "$@"')
        self.file(at, "\n".join(script) + "\n", 0o755)

    def disk(self, link: str, megabytes: int = 24) -> str:
        """A local disk, a loop device, under this name in /dev/disk/by-id; its own name."""
        image = self.folder / f"disk-{len(self._loops)}"
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        done = _run("losetup", "--find", "--show", str(image))
        self._loops.append(done)
        self._links[link] = done
        return done

    def mounted(self, loop: str, path: str) -> None:
        """The image has mounted the disk before the script comes."""
        self._mounts[loop] = path

    def format(self, loop: str, *files: str) -> None:
        """Make a file system on a disk, with these empty files in it."""
        _run("mkfs.ext4", "-q", "-F", loop)
        make = " && ".join(f"touch {shlex.quote(f'/mnt/{one}')}" for one in files) or "true"
        _run("unshare", "--mount", "sh", "-c", f"mount {loop} /mnt && {make}")

    def on_disk(self, loop: str) -> set[str]:
        """The paths on a disk that was formatted, the agent's folder's content aside."""
        found = _run("unshare", "--mount", "sh", "-c", f"mount {loop} /mnt && cd /mnt && find .")
        return {one.removeprefix("./") for one in found.splitlines()} - {".", "lost+found"}

    def uuid(self, loop: str) -> str:
        """Of the disk's file system."""
        return _run("blkid", "-p", "-o", "value", "-s", "UUID", loop)

    def give_back_disks(self) -> None:
        """Nothing of the machine uses them any more."""
        for loop in self._loops:
            _run("losetup", "--detach", loop)
        self._loops.clear()

    @property
    def calls(self) -> list[str]:
        """What the image's own commands were asked for."""
        path = self.written / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def text(self, path: str) -> str:
        """What a file of the machine holds."""
        return (self.written / path.lstrip("/")).read_text("utf-8", "replace")

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on the machine."""
        root = shlex.quote(str(self.folder / "root"))
        (self.folder / "root").mkdir(exist_ok=True)
        (self.folder / "work").mkdir(exist_ok=True)
        layers = f"lowerdir=/,upperdir={self.written},workdir={self.folder / 'work'}"
        steps = [
            "set -e",
            f"mount -t overlay image -o {shlex.quote(layers)} {root}",
            f"mount --rbind /proc {root}/proc",
            f"mount --rbind /sys {root}/sys",
            f"mount -t tmpfs dev {root}/dev",
            f"mkdir -p {root}/dev/disk/by-id {root}/dev/shm",
        ]
        for place in sorted({str(ROOT), sys.prefix, sys.base_prefix}):
            steps.append(f"mount --bind {shlex.quote(place)} {root}{shlex.quote(place)}")
        for name, (major, minor) in _DEVICES.items():
            steps.append(f"mknod -m 666 {root}/dev/{name} c {major} {minor}")
        for link, loop in self._links.items():
            minor = os.minor(Path(loop).stat().st_rdev)
            steps.append(f"mknod {root}{loop} b 7 {minor}")
            steps.append(f"ln -s {loop} {root}/dev/disk/by-id/{shlex.quote(link)}")
        for loop, path in self._mounts.items():
            steps.append(f"mkdir -p {root}{path} && mount {loop} {root}{path}")
        steps.append(f"exec chroot {root} {shlex.join(command)}")
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(steps)]


@contextmanager
def image_root(folder: Path) -> Iterator[ImageRoot]:
    """A machine's disk with nothing on it; its loop devices are released."""
    root = ImageRoot(folder)
    try:
        yield root
    finally:
        root.give_back_disks()


class ImageBoot:
    """One boot of the script on a dressed root."""

    def __init__(self, root: ImageRoot, process: subprocess.Popen[bytes]) -> None:
        self.root = root
        self.process = process

    def output(self) -> str:
        """All that was printed, and the boot's log."""
        console = (self.root.folder / "console").read_text("utf-8", "replace")
        log = self.root.written / "var/log/lowtide-boot.log"
        return console + ("\n--- log\n" + log.read_text() if log.exists() else "")

    def wait(self, seconds: float = 120.0) -> int:
        """The exit code of the script."""
        return self.process.wait(seconds)

    def failure(self) -> str:
        """The one line in which the script says why it gave up."""
        assert self.wait() == 1, self.output()
        console = (self.root.folder / "console").read_text("utf-8", "replace")
        (line,) = [one for one in console.splitlines() if "boot failed" in one]
        assert (self.root.written / "is-off").exists(), "a machine that cannot work must end"
        return line


@contextmanager
def booting_image(
    root: ImageRoot, variables: dict[str, str], machine: str, cloud: str, stage: str = ""
) -> Iterator[ImageBoot]:
    """Boot the script by the machine's /bin/sh, as cloud-init would. machine: the provider's id."""
    given = {
        "LOWTIDE_BOOT_WAIT_SECONDS": "30",
        "LOWTIDE_PRIVATE_ADDRESS": "127.0.0.1",
        "LOWTIDE_INTERFACE": "lo",
        "LOWTIDE_POWEROFF_COMMAND": "touch /is-off",
        "LOWTIDE_GPU_COUNT": "0",
        "LOWTIDE_MACHINE_ID": f"machine-{os.getpid()}-{root.folder.name}",
        "PIP_NO_INDEX": "1",
        **variables,
    }
    with metadata_service(machine) as endpoint:
        root.file("/user-data", render({**endpoint, **given}, cloud), 0o700)
        command = root.enter(["/bin/sh", "/user-data", *([stage] if stage else [])])
        console = root.folder / "console"
        with boot_process(command, console, {"PATH": PATH}, Path("/"), root.written) as process:
            yield ImageBoot(root, process)


def _run(*command: str) -> str:
    done = run_command(command, timeout=60, check=True)
    return done.stdout.strip()
