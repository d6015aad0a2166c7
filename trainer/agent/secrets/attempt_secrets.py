"""The secrets of one attempt: asked for once it prepares, then variables and files of its commands.

Not here: the folder of the files (`secret_folder`), what hides values (`secret_mask`), or reading
those that are in a cloud (`cloud_secrets`).
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.agent.machine.control_plane_client import ControlPlaneClient, SecretsDelayed
from trainer.agent.secrets.cloud_secrets import CloudSecretReader
from trainer.agent.secrets.secret_folder import SecretFolder
from trainer.agent.secrets.secret_requests import SecretUnreadable
from trainer.protocol.run_config import RunConfig, SecretDelivery

VARIABLES_BYTES_MAX = 512 << 10
"""What the kernel takes for all variables and arguments is 2 MiB at the usual size of a stack, and
processes are found by marks in the first MiB (execve(2); `process_group`)."""


PAUSES_SECONDS = (1.0, 4.0)
"""Before each further time that the control plane is asked, where a cloud gave it no credential."""
REGISTRY_FOLDER = ".registry"
"""What its name begins with. Each attempt has its own: a cancelled pull removes the one that it
had, perhaps when the next attempt has begun."""
DOCKER_HUB = "https://index.docker.io/v1/"


class SecretsRefused(Exception):
    """The job's secrets cannot be given to its commands; the message is for a person."""


@dataclass(frozen=True)
class GivenSecrets:
    """What an attempt was given. folder: of its files; None where its job names no secrets.

    registry: a folder with docker's configuration for the image's registry, for its pull alone.
    """

    variables: dict[str, str] = field(repr=False)
    folder: Path | None = None
    registry: Path | None = None


class AttemptSecrets:
    """What every attempt of a machine uses. hide: is told each value, before anything can be sent
    that holds it.
    """

    def __init__(
        self,
        client: ControlPlaneClient,
        folder: SecretFolder,
        hide: Callable[[Iterable[str]], None],
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._wait = wait
        self._reader = CloudSecretReader(wait=wait)
        self._hide = hide
        self._folder = folder
        self._lock = threading.Lock()
        self._fence = 0
        """Of the latest attempt: one that was cancelled may still wait for its answer."""

    def fetch(self, fence: int, config: RunConfig, inside: str) -> GivenSecrets:
        """What the attempt's commands get, with its files in their place.

        inside: the folder's path as a container's commands see it. Raises SecretsNotGiven,
        SecretsRefused, CredentialRevoked, ProtocolRefused, ControlPlaneUnreachable and OSError.
        """
        names = {use.name for use in config.secrets} | {config.image_secret} - {None}
        with self._lock:
            self._fence = max(self._fence, fence)
            self._require_latest(fence)
            self._folder.clear()
        if not names:
            return GivenSecrets({})
        values = self._values(fence)
        missing = sorted(str(name) for name in names - values.keys())
        if missing:
            raise SecretsRefused(f"the control plane did not send {', '.join(missing)}")
        with self._lock:
            self._require_latest(fence)
            return self._put(fence, config, values, inside)

    def _values(self, fence: int) -> dict[str, str]:
        """All values by name, each hidden before anything is made of it."""
        delivery = self._ask(fence)
        self._hide(delivery.values.values())
        self._hide(one for secrets in delivery.cloud for one in secrets.credential.values())
        try:
            of_clouds = self._reader.read(delivery.cloud)
        except SecretUnreadable as error:
            raise SecretsRefused(str(error)) from error
        self._hide(of_clouds.values())
        return {**delivery.values, **of_clouds}

    def _ask(self, fence: int) -> SecretDelivery:
        for pause in PAUSES_SECONDS:
            try:
                return self._client.fetch_secrets(fence)
            except SecretsDelayed:
                self._wait(pause)
            with self._lock:
                self._require_latest(fence)
        return self._client.fetch_secrets(fence)

    def clear(self, fence: int) -> None:
        """Remove the files of an attempt, unless a later one has its own there."""
        with self._lock:
            if fence == self._fence:
                self._folder.clear()

    def _require_latest(self, fence: int) -> None:
        if fence != self._fence:
            raise SecretsRefused(f"attempt {self._fence} has begun on this machine")

    def _put(
        self, fence: int, config: RunConfig, values: Mapping[str, str], inside: str
    ) -> GivenSecrets:
        self._folder.open()
        variables = {}
        for use in config.secrets:
            if use.file is None:
                variables[use.name] = values[use.name]
            else:
                path = self._folder.write(use.file, values[use.name])
                variables[use.name] = f"{inside}/{use.file}" if config.image else str(path)
        size = sum(len(name) + len(value.encode()) for name, value in variables.items())
        if size > VARIABLES_BYTES_MAX:
            raise SecretsRefused(
                f"the job's secrets have {size:,} bytes as variables, and at most "
                f"{VARIABLES_BYTES_MAX:,} fit; write `{{name: NAME, file: NAME}}` to get files"
            )
        registry = None
        if config.image_secret is not None:
            registry = self._registry(fence, config.image or "", values[config.image_secret])
        self._folder.hand_over()
        return GivenSecrets(variables, self._folder.path, registry)

    def _registry(self, fence: int, image: str, value: str) -> Path:
        """The folder of a docker configuration with the image's credentials."""
        user, separator, password = value.strip().partition(":")
        if not (user and separator and password):
            raise SecretsRefused("the secret of the image must be user:password, of its registry")
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._hide([password, auth])
        folder = self._folder.path / f"{REGISTRY_FOLDER}-{fence}"
        folder.mkdir(mode=0o700)
        config = {"auths": {registry_of(image): {"auth": auth}}}
        self._folder.write(f"{folder.name}/config.json", json.dumps(config))
        return folder


def registry_of(image: str) -> str:
    """As docker's configuration names it: a first part with a dot or a port is a host.

    Source: `docker login` and reference.ParseNormalizedNamed of distribution/reference.
    """
    first, separator, _ = image.partition("/")
    is_host = "." in first or ":" in first or first == "localhost"
    return first if separator and is_host else DOCKER_HUB
