"""A `docker` command for machines without one: containers are plain processes, images are names.

It keeps what docker promises and the agent relies on: mounts must exist, signals are handed on to
the container's first process, a container outlives the command that started it, exit codes come
back, what is not here must be pulled. It has no file system of its own: paths that a container
would see by a mount are put in place of the mount's target in the container's script. Not here:
what is expected of it (tests/integration/agent/test_agent_containers.py).

As a program it reads FAKE_DOCKER: a folder with `registry.json` {name: digest} and `state.json`.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class FakeDocker:
    """What a test sees of it: a registry to fill, calls to read, and the variables of an agent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._commands = root / "commands"
        self._commands.mkdir(parents=True)
        command = self._commands / "docker"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} "$@"\n')
        command.chmod(0o755)
        self.push({})

    def push(self, images: dict[str, str]) -> None:
        """What the registry holds from now on: names → digests."""
        (self.root / "registry.json").write_text(json.dumps(images))

    def require(self, host: str, user: str, password: str) -> None:
        """Every pull needs these credentials of this registry."""
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        (self.root / "required").write_text(json.dumps({host: {"auth": auth}}))

    def forget(self, begins: str, machine: str = "one") -> None:
        """Somebody has cleaned up: images of such names are gone from the machine."""
        with _State(self.root / machine).changed() as known:
            images = known["images"]
            known["images"] = {name: images[name] for name in images if not name.startswith(begins)}

    def refuse(self, sentence: str) -> None:
        """Every pull fails with this sentence."""
        (self.root / "refusal").write_text(sentence)

    def environment(self, machine: str = "one") -> dict[str, str]:
        """For the agent of a machine; each has a docker of its own."""
        folder = self.root / machine
        folder.mkdir(exist_ok=True)
        return {
            "PATH": f"{self._commands}:{os.environ['PATH']}",
            "FAKE_DOCKER": str(folder),
        }

    def calls(self, machine: str = "one") -> list[list[str]]:
        """Every call so far, as lists of arguments."""
        path = self.root / machine / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def containers(self, machine: str = "one") -> list[str]:
        """Names of those that run."""
        return sorted(_State(self.root / machine).load()["containers"])


class _State:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "state.json"

    def load(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"images": {}, "containers": {}}
        state: dict[str, Any] = json.loads(self.path.read_text())
        return state

    @contextmanager
    def changed(self) -> Iterator[dict[str, Any]]:
        """The state to change; one call at a time."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.load()
            yield state
            temporary = self.path.with_suffix(".new")
            temporary.write_text(json.dumps(state))
            temporary.replace(self.path)


def main(arguments: list[str]) -> int:
    """One call of the command; its exit code."""
    state = _State(Path(os.environ["FAKE_DOCKER"]))
    with (state.folder / "calls").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    verb, rest = arguments[0], arguments[1:]
    if verb == "version":
        print("20.10")
        return 0
    if verb == "image":
        return _inspect(state, rest[-1])
    work = {"pull": _pull, "run": _run, "rm": _remove, "ps": _list, "commit": _commit}[verb]
    return work(state, rest)


def _fail(sentence: str, code: int = 1) -> int:
    print(f"Error response from daemon: {sentence}", file=sys.stderr)
    return code


def _pull(state: _State, rest: list[str]) -> int:
    (name,) = rest
    registry: dict[str, str] = json.loads((state.folder.parent / "registry.json").read_text())
    refusal = state.folder.parent / "refusal"
    if refusal.exists():
        return _fail(refusal.read_text())
    required, folder = state.folder.parent / "required", os.environ.get("DOCKER_CONFIG")
    if required.exists():
        config = Path(folder, "config.json").read_text() if folder else "{}"
        if json.loads(config).get("auths") != json.loads(required.read_text()):
            return _fail("pull access denied, unauthorized: authentication required")
    repository = name.partition("@")[0].rpartition(":")[0] or name.partition("@")[0]
    digest = registry.get(name)
    if "@" in name and name.partition("@")[2] in registry.values():
        repository, digest = name.partition("@")[0], name.partition("@")[2]
    if digest is None:
        return _fail(f"manifest for {name} not found: manifest unknown: manifest unknown")
    print("0001: Pulling fs layer\n0001: Pull complete")
    reference = f"{repository}@{digest}"
    with state.changed() as known:
        known["images"][name] = known["images"][reference] = reference
    return 0


def _inspect(state: _State, name: str) -> int:
    reference = state.load()["images"].get(name)
    if reference is None:
        print("[]")
        return _fail(f"No such image: {name}")
    print(json.dumps([{"Id": "sha256:" + "1" * 64, "RepoDigests": [reference]}]))
    return 0


def _commit(state: _State, rest: list[str]) -> int:
    with state.changed() as known:
        if rest[0] not in known["containers"]:
            return _fail(f"No such container: {rest[0]}")
        known["images"][rest[1]] = rest[1]
    return 0


def _list(state: _State, rest: list[str]) -> int:
    label = rest[rest.index("--filter") + 1].removeprefix("label=")
    for name, one in state.load()["containers"].items():
        if one["label"] == label:
            print(name)
    return 0


def _remove(state: _State, rest: list[str]) -> int:
    with state.changed() as known:
        for name in rest[1:]:
            one = known["containers"].pop(name, None)
            if one is not None:
                _kill(one["pid"])
    return 0


def _kill(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    for name in ("name", "label", "pull", "network", "pid", "log-driver", "ipc", "shm-size",
                 "security-opt", "user", "workdir", "entrypoint", "gpus", "device"):  # fmt: skip
        parser.add_argument(f"--{name}")
    for name in ("env", "mount", "ulimit"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--rm", action="store_true")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _run(state: _State, rest: list[str]) -> int:
    told = _options().parse_args(rest)
    if told.image not in state.load()["images"]:
        return _fail(f"No such image: {told.image}", 125)
    if told.entrypoint == "python3":
        # An image named bare has a Python without packages.
        bare = ["-S"] if "bare" in told.image else []
        return subprocess.run([sys.executable, *bare, *told.command], check=False).returncode
    mounts = [dict(part.partition("=")[::2] for part in one.split(",")) for one in told.mount]
    for mount in mounts:
        if not Path(mount["source"]).exists():
            return _fail(f"bind source path does not exist: {mount['source']}", 125)
    script = state.folder / f"{told.name}.sh"
    told_script = Path(_as_seen(told.command[0], mounts))
    script.write_text(_as_seen(told_script.read_text(), mounts))
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        **dict(one.split("=", 1) for one in told.env),
    }
    process = subprocess.Popen(
        [told.entrypoint, str(script)], env=environment, cwd=told.workdir, start_new_session=True
    )
    with state.changed() as known:
        known["containers"][told.name] = {"pid": process.pid, "label": told.label}
    for number in _SIGNALS:
        signal.signal(number, lambda got, _frame: os.kill(process.pid, got))
    while process.poll() is None:
        time.sleep(0.02)
    if told.rm:
        with state.changed() as known:
            known["containers"].pop(told.name, None)
    code = process.returncode
    return 128 - code if code < 0 else code


def _as_seen(text: str, mounts: list[dict[str, str]]) -> str:
    """The script with each mount's source in place of its target."""
    for mount in mounts:
        source, target = Path(mount["source"]), Path(mount["target"])
        if source == target:
            continue
        if source.name == target.name and target.parent != Path("/"):
            source, target = source.parent, target.parent
        text = re.sub(rf"(?<![\w/]){re.escape(str(target))}(?!\w)", str(source), text)
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
