"""The job's image on this machine: pulled with a bound, the same one on every machine.

A tag may move. The first machine of the job pins what it means, and every other one takes that:
`pins/image.json` beside the checkpoints. Not here: running it (`run_place`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from trainer.agent.attempt.docker_command import ContainerFailed, Docker, last_line
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.agent.folders.pinned_paths import agree
from trainer.agent.machine import process_group

PULL_SECONDS_MAX = 3_600.0
SAY_SECONDS = 10.0
_TAIL_BYTES = 4_096

# What docker prints of each layer while it pulls without a terminal.
_LAYER_DONE = (b"Pull complete", b"Already exists")


def ensure_image(
    docker: Docker,
    image: str,
    open_store: Callable[[], StorageRoot],
    say: Callable[[str], None],
    on_start: Callable[[subprocess.Popen[bytes]], None],
) -> str:
    """Have the job's image here; the exact reference to run, the same on every machine.

    Raises ContainerFailed and StoreUnavailable.
    """
    docker.call("version", "--format", "{{.Server.Version}}")

    def propose() -> bytes:
        found = _pulled(docker, image, say, on_start) or docker.inspect_image(image)
        if found is None:
            raise ContainerFailed(f"the image {image} is not on this machine after its pull")
        return json.dumps({"image": image, "reference": _exact(found, image)}).encode()

    pinned = json.loads(agree(open_store(), "image.json", propose))
    reference = str(pinned["reference"])
    if docker.inspect_image(reference) is None:
        _pulled(docker, reference, say, on_start)
        if docker.inspect_image(reference) is None:
            raise ContainerFailed(
                f"the image {image} was {reference} when this job began, which this machine cannot "
                "get"
            )
    say(f"the job's image is {reference}")
    return reference


def _pulled(
    docker: Docker,
    image: str,
    say: Callable[[str], None],
    on_start: Callable[[subprocess.Popen[bytes]], None],
) -> dict[str, Any] | None:
    """Pull; where that fails but the machine brought the image itself, that one is taken."""
    began_at = time.monotonic()
    progress = _Progress(image, say)
    say(f"pulling the image {image}")

    def started(process: subprocess.Popen[bytes]) -> None:
        timer = threading.Timer(
            PULL_SECONDS_MAX, lambda: process_group.signal_group(process.pid, signal.SIGKILL)
        )
        timer.daemon = True
        timer.start()
        progress.timer = timer
        on_start(process)

    code = docker.watch(("pull", image), progress.write, started)
    took = time.monotonic() - began_at
    if progress.timer is not None:
        progress.timer.cancel()
    if code == 0:
        say(f"pulled the image in {took:.0f} s")
        return None
    found = docker.inspect_image(image)
    if found is not None:
        say(f"the image was not pulled ({progress.last}); the one on this machine is taken")
        return found
    if took >= PULL_SECONDS_MAX:
        raise ContainerFailed(f"the image {image} was not pulled within {took:.0f} s")
    raise ContainerFailed(_sentence(image, progress.last))


class _Progress:
    """Counts the layers that are here, and says so now and then; keeps the last line."""

    def __init__(self, image: str, say: Callable[[str], None]) -> None:
        self._image = image
        self._say = say
        self._tail = b""
        self._layers = 0
        self._said_at = time.monotonic()
        self.timer: threading.Timer | None = None

    @property
    def last(self) -> str:
        return last_line(self._tail)

    def write(self, content: bytes) -> None:
        self._layers += sum(content.count(word) for word in _LAYER_DONE)
        self._tail = (self._tail + content)[-_TAIL_BYTES:]
        if time.monotonic() >= self._said_at + SAY_SECONDS:
            self._said_at = time.monotonic()
            self._say(f"pulling {self._image}: {self._layers} layers are here")


def _exact(found: dict[str, Any], image: str) -> str:
    """`name@sha256:…` as the registry has it; the image's own id where no registry has it."""
    name = image.partition("@")[0]
    if ":" in name.rpartition("/")[2]:
        name = name.rpartition(":")[0]
    digests = [str(one) for one in found.get("RepoDigests") or ()]
    same = [one for one in digests if one.partition("@")[0].endswith(name)]
    return (same or digests or [str(found["Id"])])[0]


def _sentence(image: str, said: str) -> str:
    """What docker said of a failed pull, and what to do about it."""
    lower = said.lower()
    if "no space left" in lower:
        what = "the machine's disk is full; ask for a larger one, as in resources: {disk: 500GB}"
    elif "manifest unknown" in lower or "not found" in lower:
        what = "the registry has no such image or tag; correct `image`"
    elif "denied" in lower or "unauthorized" in lower or "authentication" in lower:
        what = "the registry refuses it, or has no such image; name them with `image_secret`"
    elif "toomanyrequests" in lower or "rate limit" in lower:
        what = "the registry refuses so many pulls; use a mirror or credentials"
    else:
        what = "docker could not get it"
    return f"the image {image} cannot be pulled: {what} ({said or 'docker said nothing'})"
