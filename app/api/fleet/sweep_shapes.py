"""The shapes of answers about the whole deployment: its regions, its machines, its orders."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from app.api.serving.shapes import Shape
from app.domain.lifecycle.instance import InstanceState


class RemainShape(Shape):
    """Something besides machines. `idle_since_at`: nothing was seen to use it since then."""

    kind: str
    id: str
    note: str
    idle_since_at: datetime | None
    microusd_per_day: int | None


class RegionShape(Shape):
    """The last list of a region. `fresh`: it is newer than the last order to list.

    `machines`: how many had not ended. `remains`: as seen at `remains_at`.
    """

    provider: str
    region: str
    swept_at: datetime
    complete: bool
    machines: int
    fresh: bool
    remains_at: datetime | None
    remains: list[RemainShape]


class SweptMachineShape(Shape):
    """A machine that may exist. `kept`: for its job. `would_reap`: released once confirmed."""

    id: UUID
    provider: str
    provider_instance_id: str | None
    pool: str | None
    state: InstanceState
    origin: str
    job_id: UUID | None
    job_name: str | None
    launched_at: datetime | None
    microusd_per_hour: int | None
    verdict: Literal["owned", "kept", "would_reap", "leaving"]


class DeploymentEventShape(Shape):
    """Something that happened to the deployment as a whole."""

    at: datetime
    kind: str
    message: str
    data: dict[str, Any]


class SweepShape(Shape):
    """What is known of the deployment. `mode`: what happens to machines that no row knows.

    `since_at` and `reason`: of a mode `adopt`, in which they are kept until a person confirms.
    """

    deployment_id: UUID
    mode: Literal["reap", "adopt", "destroy"]
    since_at: datetime | None
    reason: str | None
    asked_at: datetime | None
    destroy_ordered_at: datetime | None
    regions: list[RegionShape]
    machine_count: int
    live_job_count: int
    machines: list[SweptMachineShape]
    events: list[DeploymentEventShape]


class SweepOrderedShape(SweepShape):
    """The same, and how many machines were ordered to be released."""

    released: int
