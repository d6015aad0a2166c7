"""People who freeze launches and set limits in a story of controllers.

Not here: the story itself (`orchestration_story`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.domain.access.principal import Principal
from app.domain.access.roles import Role
from app.domain.billing.budget import BudgetOwner
from app.domain.launch_limits.freeze import EVERYTHING, FreezePlace, FreezeScope
from app.domain.launch_limits.launch_limits import parse_limits
from app.domain.launch_limits.monthly_budget import DEPLOYMENT_PAYER, AtFull
from app.domain.spec.job_spec import parse_spec
from app.orchestration.deployment.freeze_launches import freeze_launches, thaw_launches
from app.orchestration.deployment.limit_deployment import limit_deployment
from app.orchestration.money.set_budget import BudgetStanding, budget_standing, set_budget
from app.orchestration.queue.submit_job import submit_job
from app.storage.money.money_repository import LedgerRow
from app.storage.schema import tables
from tests.support.api.agent_api import BY_PERSON
from tests.support.stories.orchestration_story import Story


def admin_of(story: Story) -> Principal:
    """An admin in the story's project."""
    return Principal(None, "root", story.project_id, "alpha", Role.ADMIN)


def places_of(story: Story) -> dict[FreezeScope, FreezePlace]:
    """What can be frozen, each so that the story's jobs get no machines."""
    return {
        FreezeScope.EVERYTHING: EVERYTHING,
        FreezeScope.CLOUD: FreezePlace.of_cloud("local"),
        FreezeScope.PROJECT: FreezePlace(FreezeScope.PROJECT, None, story.project_id, "alpha"),
    }


def freeze(story: Story, scope: FreezeScope = FreezeScope.PROJECT, reason: str = "") -> None:
    with story.runtime.begin() as uow:
        place = places_of(story)[scope]
        freeze_launches(uow, story.runtime.entropy, admin_of(story), place, reason)


def thaw(story: Story, scope: FreezeScope = FreezeScope.PROJECT) -> bool:
    """Whether it was frozen."""
    with story.runtime.begin() as uow:
        place = places_of(story)[scope]
        return thaw_launches(uow, story.runtime.entropy, admin_of(story), place) is not None


def limit(story: Story, **limits: Any) -> None:
    """The deployment's limits, and no others."""
    with story.runtime.begin() as uow:
        wanted = parse_limits(limits)
        limit_deployment(uow, story.runtime.entropy, admin_of(story), wanted)


def limit_project(story: Story, **limits: Any) -> None:
    """The limits of the story's project, and no other rules."""
    story.set(tables.projects, story.project_id, rules={"limits": limits}, rules_version=1)


def budget_of(
    story: Story,
    microusd: int,
    at_full: AtFull = AtFull.BLOCK_NEW,
    owner: BudgetOwner = BudgetOwner.PROJECT,
) -> None:
    """The monthly budget of the story's project, or of the deployment."""
    with story.runtime.begin() as uow:
        set_budget(uow, story.runtime.entropy, admin_of(story), microusd, at_full, owner)


def standing_of(story: Story, owner: BudgetOwner = BudgetOwner.PROJECT) -> BudgetStanding:
    """How the month of the story's project, or of the deployment, stands."""
    payer_id = story.project_id if owner is BudgetOwner.PROJECT else DEPLOYMENT_PAYER
    with story.runtime.begin() as uow:
        found = budget_standing(uow, payer_id)
    assert found is not None
    return found


def book(
    story: Story, machine: UUID, hour: datetime, microusd: int, project_id: UUID | None = None
) -> None:
    """Book what `entry` makes."""
    with story.runtime.begin() as uow:
        uow.money.append_entries([entry(story, machine, hour, microusd, project_id)])


def entry(
    story: Story, machine: UUID, hour: datetime, microusd: int, project_id: UUID | None = None
) -> LedgerRow:
    """For an hour of a machine. project_id: the story's, unless given."""
    return {
        "id": story.runtime.entropy.new_id(),
        "instance_id": machine,
        "component": "compute",
        "assignment_id": None,
        "usage_hour_at": hour,
        "job_id": story.instance(machine).job_id if project_id is None else None,
        "project_id": story.project_id if project_id is None else project_id,
        "attempt_id": None,
        "kind": "adjustment",
        "reason": "price_revised",
        "amount_microusd": microusd,
        "usage_from_at": hour,
        "usage_to_at": hour + timedelta(hours=1),
        "booked_at": story.time,
        "price_source": "test",
        "price_captured_at": None,
        "rule_id": "test",
        "estimated": False,
    }


def submit_to(story: Story, project_id: UUID, **spec: Any) -> UUID:
    """A job of another project."""
    whole = {"run": "python train.py", "resources": {"gpu": "V100:1"}, "nodes": 1, **spec}
    with story.runtime.begin() as uow:
        done = submit_job(uow, story.runtime, project_id, parse_spec(whole), BY_PERSON)
    return done.job_id
