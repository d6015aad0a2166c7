"""Where setup and trainer run: on the machine itself, or in a container of the job's image.

A container sees the machine's network and processes: signals, ports, the end files' process ids and
the block on metadata (which goes by user) are the same inside and outside. Its variables are in a
file that only its user may read, so that no value stands in a command line. Not here: the image
(`container_image`), what is run (`trainer_command`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainer.agent.attempt.docker_command import ContainerFailed, Docker
from trainer.agent.attempt.trainer_command import CommandContext
from trainer.agent.folders.named_folders import Mount
from trainer.agent.machine.machine_folders import MachineFolders
from trainer.agent.machine.process_group import ATTEMPT_MARK, MACHINE_MARK, user_numbers

PACKAGE_IN_CONTAINER = "/opt/lowtide"
SECRETS_IN_CONTAINER = "/run/lowtide-secrets"
COMMIT_SECONDS = 900.0
CHECK_SECONDS = 180.0
LEFT_SECONDS = 5
"""What a command left running when it ended by itself gets this long to follow, as outside."""

_CHECK = (
    "import sys\n"
    "assert sys.version_info >= (3, 11), 'its Python is ' + sys.version.split()[0]\n"
    "import numpy, torch\n"
)

# The command gets a session of its own, so that a signal reaches all of it, and the shell that
# docker would end everything with lives until the last of it has saved.
_WAITING = r"""
command -v setsid > /dev/null || setsid() {{ "$@"; }}
told= ended=
setsid {command} &
child=$!
trap 'told=1 ended=1; kill -TERM -"$child" 2> /dev/null || kill -TERM "$child"' TERM
trap 'told=1' USR1
code=
while :; do
    told=
    wait "$child"
    now=$?
    if [ "$now" = 127 ] && [ -n "$code" ]; then break; fi
    code=$now
    [ -n "$told" ] || break
done
left=0
while kill -0 -"$child" 2> /dev/null; do
    left=$((left + 1))
    if [ -z "$ended" ] && [ "$left" -gt {left_seconds} ]; then break; fi
    sleep 1
done
exit "$code"
"""


@dataclass(frozen=True)
class Started:
    """What is handed to the operating system; `container` is its name, "" for none."""

    command: Sequence[str]
    environment: Mapping[str, str]
    user: str | None
    container: str = ""


class MachinePlace:
    """On the machine itself. prefix: what switches to the user, with a home in `folders`."""

    def __init__(
        self,
        context: CommandContext,
        user: str | None,
        prefix: Sequence[str] = (),
        folders: MachineFolders | None = None,
    ) -> None:
        self.context = context
        self._user = user
        self._prefix = prefix
        self._folders = folders

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        script: Path,
        keep: bool = False,
    ) -> Started:
        """The command as it is, after the prefix; the rest is for containers."""
        del script, keep
        if self._user is None or self._folders is None or not self._prefix:
            return Started(command, environment, self._user)
        name = f"lowtide-{self._user}"
        own = {"HOME": str(self._folders.make_home()), "USER": name, "LOGNAME": name}
        return Started([*self._prefix, *command], {**environment, **own}, None)

    def keep_setup(self, started: Started, mark: str) -> None:
        """Setup has ended well: what it did is on the machine."""

    def holds_setup(self) -> bool:
        """Whether what an earlier setup did is still there."""
        return True

    def check_trainer(self) -> None:
        """The agent was installed with what the bundled trainer needs."""

    def end(self, started: Started) -> None:
        """Nothing is left besides processes."""


class ContainerPlace:
    """In containers of one image. reference: exactly which; `ensure_image` gives it."""

    def __init__(
        self,
        docker: Docker,
        reference: str,
        context: CommandContext,
        folders: MachineFolders,
        mounts: Sequence[Mount],
        user: str | None,
        gpu_count: int,
        shm_mb: int | None,
        secrets: Path | None = None,
    ) -> None:
        """secrets: a folder in memory for the job's secrets, which the container sees; where there
        is one, the variables lie there, too, and never on a disk.
        """
        self._docker = docker
        self._reference = reference
        self._folders = folders
        self._mounts = mounts
        self._user = user
        self._gpu_count = gpu_count
        self._shm_mb = shm_mb
        self._secrets = secrets
        # Nothing of the machine's own variables means anything in there.
        self.context = replace(
            context, inherited={}, python="python3", package_root=PACKAGE_IN_CONTAINER
        )

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        script: Path,
        keep: bool = False,
    ) -> Started:
        """A container's start. script: a file of the attempt that is written for it.

        keep: leave the container when it ends, for `keep_setup`.
        """
        uid, gid, name, home = self._identity()
        container = f"{self._prefix}-{script.parent.name}-{script.stem}"
        own = {"HOME": home, "USER": name, "LOGNAME": name}
        inside = str(script)
        if self._secrets is not None:
            hidden = f".{script.name}"  # no secret of a job can be called so
            script, inside = self._secrets / hidden, f"{SECRETS_IN_CONTAINER}/{hidden}"
        script.touch(mode=0o600)
        script.write_text(_script(command, {**own, **environment}))
        self._folders.give_away(script)
        marks = {key: environment[key] for key in (MACHINE_MARK, ATTEMPT_MARK)}
        options = [
            *("--name", container, "--label", self._docker.label, "--pull", "never"),
            *("--network", "host", "--pid", "host", "--log-driver", "none"),
            *(("--ipc", "host") if self._shm_mb is None else ("--shm-size", f"{self._shm_mb}m")),
            *("--security-opt", "no-new-privileges", "--user", f"{uid}:{gid}"),
            *("--workdir", str(self._folders.workdir), "--entrypoint", "/bin/sh"),
            *(part for key, value in marks.items() for part in ("--env", f"{key}={value}")),
            *_mount_options(self._all_mounts()),
            *(() if keep else ("--rm",)),
        ]
        if self._gpu_count > 0:
            # NCCL pins memory for its buffers, and RDMA all that it sends.
            options += ["--gpus", "all", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]
        if Path("/dev/infiniband").exists():
            options += ["--device", "/dev/infiniband"]
        self._docker.remove(container)
        # Setup itself begins with the image as it is.
        image = self._reference if keep else self._kept or self._reference
        line = ["docker", "run", *options, image, inside]
        # The command line tool itself carries no mark: a signal meant for the job's own processes
        # would be handed on to the container's first.
        return Started(line, self._docker.environment, None, container)

    def keep_setup(self, started: Started, mark: str) -> None:
        """Setup has ended well: keep what it did to the container's own files, for the trainer.

        Raises ContainerFailed.
        """
        tag = f"lowtide-setup:{hashlib.sha256(mark.encode()).hexdigest()[:16]}"
        self._docker.call("commit", started.container, tag, seconds=COMMIT_SECONDS)
        self._tag_file.write_text(tag)

    def holds_setup(self) -> bool:
        """Whether what an earlier setup did is still there."""
        return self._kept is not None

    def end(self, started: Started) -> None:
        """End and remove the container, whatever it does."""
        self._docker.remove(started.container)

    def check_trainer(self) -> None:
        """Whether the bundled trainer can run in the image, after setup. Raises ContainerFailed."""
        options = ["--rm", "--pull", "never", "--network", "none", "--entrypoint", "python3"]
        image = self._kept or self._reference
        line = ("run", *options, "--label", self._docker.label, image, "-c", _CHECK)
        try:
            self._docker.call(*line, seconds=CHECK_SECONDS)
        except ContainerFailed as error:
            raise ContainerFailed(
                f"the image {self._reference} cannot run the bundled trainer, which needs python3, "
                f"3.11 or newer, with torch and numpy: {error}"
            ) from error

    @property
    def _kept(self) -> str | None:
        """What setup has made of the image; None where there was none, or somebody removed it."""
        tag = self._tag_file.read_text("utf-8", "replace") if self._tag_file.exists() else ""
        return tag if tag and self._docker.inspect_image(tag) else None

    @property
    def _tag_file(self) -> Path:
        return self._folders.agent / "setup-image"

    @property
    def _prefix(self) -> str:
        return f"lowtide-{hashlib.sha256(self._docker.label.encode()).hexdigest()[:12]}"

    def _identity(self) -> tuple[int, int, str, str]:
        """Number, group, name and home of the user inside, who is the same outside."""
        home = str(self._folders.workdir)
        if self._user is None:
            return os.getuid(), os.getgid(), "lowtide", home
        return *user_numbers(self._user), self._user, home

    def _all_mounts(self) -> list[Mount]:
        folders = self._folders
        same = (folders.workdir, folders.attempts, folders.scratch, folders.inputs)
        package = Path(__file__).resolve().parents[2]
        secrets = [] if self._secrets is None else [self._secrets]
        return [
            *(Mount(folder, SECRETS_IN_CONTAINER, read_only=True) for folder in secrets),
            *(Mount(folder, str(folder), folder == folders.inputs) for folder in same),
            Mount(package, f"{PACKAGE_IN_CONTAINER}/trainer", read_only=True),
            *self._mounts,
        ]


RunPlace = MachinePlace | ContainerPlace


def _script(command: Sequence[str], environment: Mapping[str, str]) -> str:
    exports = [f"export {key}={shlex.quote(value)}" for key, value in environment.items()]
    waiting = _WAITING.format(command=shlex.join(command), left_seconds=LEFT_SECONDS)
    return "\n".join([*exports, waiting])


def _mount_options(mounts: Iterable[Mount]) -> list[str]:
    options = []
    for mount in mounts:
        told = f"type=bind,source={mount.source},target={mount.target}"
        options += ["--mount", told + (",readonly" if mount.read_only else "")]
    return options
