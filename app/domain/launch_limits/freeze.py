"""A freeze: no machine is requested for a project, at a cloud or anywhere, until it is thawed.

Lives here: what a freeze stops, and its sentences. Not here: who may freeze
(`orchestration.deployment.freeze_launches`), or what it does to offers (`placement.launch_room`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from app.domain.lifecycle.events import Actor
from app.domain.spec.infra_choice import KNOWN_PROVIDERS
from app.domain.spec.spec_value import nearest
from app.domain.units.errors import InvalidValue
from app.domain.units.instants import format_instant

REASON_MAX: Final = 200
"""Characters of a reason."""


class FreezeScope(StrEnum):
    """What is frozen. Values are stored and shown."""

    EVERYTHING = "everything"
    CLOUD = "cloud"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class FreezePlace:
    """Where machines are not requested. cloud: a provider's name. project: the project's name."""

    scope: FreezeScope
    cloud: str | None = None
    project_id: UUID | None = None
    project: str | None = None

    @classmethod
    def of_cloud(cls, cloud: str) -> FreezePlace:
        """A cloud by its name; raises InvalidValue for one that Lowtide does not know."""
        if cloud not in KNOWN_PROVIDERS:
            known = ", ".join(KNOWN_PROVIDERS)
            hint = nearest(cloud, KNOWN_PROVIDERS)
            raise InvalidValue(f"cloud: {cloud[:40]!r} is not known; use {known}{hint}", "cloud")
        return cls(FreezeScope.CLOUD, cloud)

    @property
    def key(self) -> str:
        """Unique among places: `everything`, `cloud:aws`, `project:<id>`."""
        name = self.cloud if self.scope is FreezeScope.CLOUD else self.project_id
        return f"{self.scope}" if name is None else f"{self.scope}:{name}"

    @property
    def command(self) -> str:
        """How the command line names it, after `lowtide freeze` and `lowtide thaw`."""
        if self.scope is FreezeScope.CLOUD:
            return f"--cloud {self.cloud}"
        return "--everything" if self.project is None else self.project


EVERYTHING: Final = FreezePlace(FreezeScope.EVERYTHING)


@dataclass(frozen=True, slots=True)
class Freeze:
    """One freeze. reason: what its author wrote; "" for nothing."""

    place: FreezePlace
    frozen_at: datetime
    frozen_by: Actor
    reason: str

    def stops(self, project_id: UUID, provider: str) -> bool:
        """Whether it keeps machines of this cloud from being requested for this project."""
        if self.place.scope is FreezeScope.CLOUD:
            return self.place.cloud == provider
        return self.place.project_id in (None, project_id)

    @property
    def sentence(self) -> str:
        """What people read of it, as a part of a sentence."""
        what = {
            FreezeScope.EVERYTHING: "all launches",
            FreezeScope.CLOUD: f"launches at {self.place.cloud}",
            FreezeScope.PROJECT: f"launches of the project {self.place.project!r}",
        }[self.place.scope]
        since = f"{what} are frozen since {format_instant(self.frozen_at)} by {self.frozen_by.name}"
        return f"{since}: {self.reason}" if self.reason else since

    @property
    def headline(self) -> str:
        """The same as a sentence by itself."""
        return f"{self.sentence[:1].upper()}{self.sentence[1:]}."

    @property
    def remedy(self) -> str:
        """What ends it, without a full stop."""
        who = "a maintainer of the project" if self.place.project is not None else "an admin"
        return f"`lowtide thaw {self.place.command}` by {who}"


def read_reason(written: str) -> str:
    """The reason as it is stored: one line without a full stop. Raises InvalidValue."""
    text = written.strip().removesuffix(".")
    if len(text) > REASON_MAX or not text.isprintable():
        raise InvalidValue(f"reason: must be one line of at most {REASON_MAX} characters", "reason")
    return text
