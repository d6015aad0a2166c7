"""The limits of the deployment's machines: set them. They are in force from the next launch on.

Nothing that runs is stopped for them. Not here: a project's, which are among its rules
(`access.manage_rules`), or where launches ask for them (`placement.read_launch_room`).
"""

from __future__ import annotations

from app.domain.access.may import DEPLOYMENT, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.launch_limits.launch_limits import LaunchLimits
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.instances.launch_gate import DeploymentLimits
from app.storage.unit_of_work import UnitOfWork


def limit_deployment(
    uow: UnitOfWork, entropy: Entropy, principal: Principal, limits: LaunchLimits
) -> DeploymentLimits:
    """Replace all of them; the same ones again change nothing. Raises Forbidden."""
    require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    uow.launch_gate.close()
    now = uow.launch_gate.deployment_limits()
    document = limits.to_json()
    if document == now.document:
        return now
    changed = DeploymentLimits(document, uow.now, str(principal.actor))
    uow.launch_gate.limit_deployment(changed)
    deployment_id = str(uow.operations.deployment_id())
    record_action(
        uow,
        entropy,
        principal,
        AuditAction.LAUNCHES_LIMIT,
        Subject(SubjectKind.DEPLOYMENT, deployment_id, deployment_id, None),
        {"limits": now.document},
        {"limits": document},
    )
    return changed
