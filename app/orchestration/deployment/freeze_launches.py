"""Freeze launches, and thaw them: from the answer on no machine is requested there, or again.

Machines that run stay, and so do launches that were requested before. Not here: what a freeze stops
(`app.domain.launch_limits.freeze`), or where launches ask for it (`placement.read_launch_room`).
"""

from __future__ import annotations

from app.domain.access.may import DEPLOYMENT, Resource, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.launch_limits.freeze import Freeze, FreezePlace, read_reason
from app.orchestration.audit.record_action import record_action
from app.orchestration.gang.end_attempt import CLAIM_CONTROLLER
from app.ports.entropy import Entropy
from app.storage.unit_of_work import UnitOfWork


def freeze_launches(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, place: FreezePlace, reason: str
) -> Freeze:
    """Freeze a place; the freeze that it has already stays as it is.

    Waits for launches that are being written. Raises Forbidden, and InvalidValue for the reason.
    """
    _require(principal, place)
    told = read_reason(reason)
    uow.launch_gate.close()
    found = uow.launch_gate.freeze_at(place)
    if found is not None:
        return found
    made = Freeze(place, uow.now, principal.actor, told)
    uow.launch_gate.add(made)
    _record(uow, entropy, principal, place, None, made)
    return made


def thaw_launches(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, place: FreezePlace
) -> Freeze | None:
    """Thaw a place; returns the freeze that it had, None where it had none. Raises Forbidden."""
    _require(principal, place)
    uow.launch_gate.close()
    found = uow.launch_gate.freeze_at(place)
    if found is None:
        return None
    uow.launch_gate.remove(place)
    _record(uow, entropy, principal, place, found, None)
    uow.notify_after_commit(CLAIM_CONTROLLER)
    return found


def _require(principal: Principal, place: FreezePlace) -> None:
    """A project's by whoever changes its rules; all else by admins of the deployment."""
    if place.project_id is None:
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    else:
        require(principal, Action.MANAGE_RULES, Resource(place.project_id))


def _record(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    place: FreezePlace,
    before: Freeze | None,
    after: Freeze | None,
) -> None:
    action = AuditAction.LAUNCHES_THAW if after is None else AuditAction.LAUNCHES_FREEZE
    if place.project_id is not None:
        name = place.project or ""
        subject = Subject(SubjectKind.PROJECT, str(place.project_id), name, place.project_id)
    else:
        deployment_id = str(uow.operations.deployment_id())
        subject = Subject(SubjectKind.DEPLOYMENT, deployment_id, place.cloud or place.scope, None)
    facts = (_facts(place, one) for one in (before, after))
    record_action(uow, entropy, principal, action, subject, *facts)


def _facts(place: FreezePlace, freeze: Freeze | None) -> dict[str, object]:
    if freeze is None:
        return {"place": place.key, "frozen": False}
    since = freeze.frozen_at.isoformat()
    return {"place": place.key, "frozen": True, "frozen_at": since, "reason": freeze.reason}
