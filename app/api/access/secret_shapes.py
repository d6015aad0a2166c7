"""The shapes of answers about secrets: everything but their values."""

from __future__ import annotations

from datetime import datetime

from app.api.serving.shapes import Shape


class SecretShape(Shape):
    """A secret without its value. `version` grows with each value. `for_maintainers`: only jobs
    that maintainers submit may name it. `created_by`, `changed_by`: an actor, as in a job's events.

    `removed_at`: null, but in the answer that removed it. `readable`: whether the server has the
    key that the value is encrypted under; false where its key file was lost or is another one.
    """

    name: str
    version: int
    for_maintainers: bool
    created_at: datetime
    created_by: str
    changed_at: datetime
    changed_by: str
    removed_at: datetime | None
    readable: bool


class SecretPage(Shape):
    """Secrets by name. `next` is always null."""

    items: list[SecretShape]
    next: None
