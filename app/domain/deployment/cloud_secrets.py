"""Names of secrets that are in a cloud's own service, and which of them a project may name.

`aws-sm:NAME` is a secret of AWS Secrets Manager, `gcp-sm:NAME` one of Google Secret Manager; with
`aws-sm:REGION:NAME` and `gcp-sm:PROJECT:NAME` it is in another place than the deployment's own.
Pure. Not here: who may allow which (`app.orchestration.access.manage_rules`), or reading a value
(`trainer.agent.secrets.cloud_secrets`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.domain.deployment.secret_rules import require_secret_name
from app.domain.units.errors import InvalidValue
from trainer.protocol.run_config import AWS_SECRETS, GOOGLE_SECRETS

SEPARATORS: Final = "/-_"
"""A prefix that ends with one of these allows every name that begins so; else that name alone."""


@dataclass(frozen=True)
class _Form:
    """How a service writes a name, and the place that it is in."""

    name: re.Pattern[str]
    place: re.Pattern[str]
    characters: str
    place_noun: str


# Sources: Secrets Manager API reference, CreateSecret, `Name` (1 to 512 characters), and the form
# of regions; Secret Manager API, projects.secrets.create, `secretId` (255 characters), and Resource
# Manager, "Creating and managing projects" (ids of projects).
_FORMS: Final = {
    AWS_SECRETS: _Form(
        re.compile(r"[A-Za-z0-9/_+=.@-]{1,512}", re.ASCII),
        re.compile(r"[a-z]{2,3}(?:-[a-z]+)+-[0-9]", re.ASCII),
        "letters, digits and /_+=.@-",
        "a region",
    ),
    GOOGLE_SECRETS: _Form(
        re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII),
        re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", re.ASCII),
        "letters, digits, _ and -",
        "a project's id",
    ),
}
KNOWN: Final = tuple(f"{service}:" for service in _FORMS)


@dataclass(frozen=True, order=True)
class CloudSecretName:
    """One name. place: region of AWS or project of Google; None: the deployment's own."""

    service: str
    place: str | None
    name: str

    def __str__(self) -> str:
        return ":".join(one for one in (self.service, self.place, self.name) if one is not None)

    @property
    def variable(self) -> str | None:
        """What a variable is called that is named after it; None if its last part names none."""
        last = self.name.rpartition("/")[2]
        try:
            require_secret_name(last)
        except InvalidValue:
            return None
        return last


def is_cloud_name(text: str) -> bool:
    """Whether it is meant as the name of a secret in a cloud."""
    return text.startswith(KNOWN)


def read_cloud_name(text: str) -> CloudSecretName:
    """Raises InvalidValue, which repeats nothing of the text: it may be a secret itself."""
    service, _, rest = text.partition(":")
    place, separator, name = rest.rpartition(":")
    form = _FORMS.get(service)
    if form is None:
        raise InvalidValue(f"must begin with {' or '.join(KNOWN)}")
    if separator and form.place.fullmatch(place) is None:
        raise InvalidValue(
            f"must be {service}:NAME, or {service}:PLACE:NAME with {form.place_noun} as its place"
        )
    if form.name.fullmatch(name) is None:
        raise InvalidValue(f"must be {service}:NAME, whose name has {form.characters}")
    return CloudSecretName(service, place if separator else None, name)


def is_allowed(prefixes: Iterable[CloudSecretName], named: CloudSecretName) -> bool:
    """Whether one of a project's prefixes allows a name, or all names of a narrower prefix."""
    return any(
        (one.service, one.place) == (named.service, named.place)
        and (
            one.name == named.name
            or (one.name.endswith(tuple(SEPARATORS)) and named.name.startswith(one.name))
        )
        for one in prefixes
    )
