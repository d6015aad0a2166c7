"""The rules of a project: read them, change them. New submissions alone are under the new ones, but
for limits of machines, which every launch asks.

Not here: what rules may say (`app.domain.projects`), or many projects at once (`apply_projects`).
"""

from __future__ import annotations

from app.domain.access.may import DEPLOYMENT, AccessDecision, Resource, may, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.deployment.cloud_secrets import is_allowed
from app.domain.projects.project_rules import ProjectRules
from app.domain.projects.read_rules import parse_rules
from app.domain.units.errors import CommandRefused, Forbidden
from app.orchestration.audit.record_action import record_action
from app.ports.entropy import Entropy
from app.storage.access.rules_repository import RulesRow
from app.storage.unit_of_work import UnitOfWork


def change_rules(
    uow: UnitOfWork,
    entropy: Entropy,
    principal: Principal,
    rules: ProjectRules,
    expected: int | None = None,
) -> RulesRow:
    """Give the principal's project these rules; the same ones again change nothing.

    expected: the version that the change was made from; None for any. Jobs that there are keep
    their specs, and machines that run stay. Waits for launches that are being written. Raises
    Forbidden, also where only an admin may (`_require_lender`), and CommandRefused where another
    version is in force by now.
    """
    project_id = principal.project_id
    require(principal, Action.MANAGE_RULES, Resource(project_id))
    # Launches that are being written have not seen the new limits: later ones count their machines.
    uow.launch_gate.close()
    now = uow.rules.of(project_id, locked=True)
    if expected is not None and expected != now.version:
        raise CommandRefused(
            f"The rules of the project {principal.project_name!r} have version {now.version} by "
            f"now, not {expected}: read them again, and change those."
        )
    document = rules.to_json()
    if document == now.document:
        return now
    _require_lender(principal, parse_rules(now.document), rules)
    changed = RulesRow(now.project, now.version + 1, document, uow.now, str(principal.actor))
    uow.rules.change(project_id, changed)
    record_action(
        uow,
        entropy,
        principal,
        AuditAction.PROJECT_RULES,
        Subject(SubjectKind.PROJECT, str(project_id), now.project, project_id),
        _facts(now),
        _facts(changed),
    )
    return changed


def _require_lender(principal: Principal, before: ProjectRules, after: ProjectRules) -> None:
    """Secrets of clouds are the deployment's to lend: its role and accounts open those of every
    project. So a maintainer may take prefixes and the account away, or choose narrower prefixes.
    Raises Forbidden for a maintainer that allows more.
    """
    wider = [one for one in after.secret_prefixes if not is_allowed(before.secret_prefixes, one)]
    other = after.secret_account not in (None, before.secret_account)
    if may(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT) is AccessDecision.ALLOWED:
        return
    if wider or other:
        what = f"the secrets {wider[0]}" if wider else "another `secret_account`"
        raise Forbidden(
            f"Only an admin may allow a project {what}: the deployment's rights open those of "
            "other projects too. A maintainer may remove prefixes, and choose narrower ones."
        )


def _facts(row: RulesRow) -> dict[str, object]:
    return {"version": row.version, "rules": row.document}
