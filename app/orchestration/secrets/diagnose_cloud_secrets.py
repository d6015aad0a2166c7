"""What `lowtide doctor` says of secrets of clouds: whether machines can be given what opens them.

Asks for credentials as for a job, and for no secret. Not here: secrets that are stored here
(`diagnose_secrets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from app.domain.deployment.check_result import CheckResult
from app.domain.projects.project_rules import ProjectRules
from app.domain.projects.read_rules import parse_rules
from app.ports.entropy import Entropy
from app.ports.secret_grants import GrantIssuers, SecretGrantIssuer
from app.ports.storage_grants import GrantRefused
from app.storage.unit_of_work import UnitOfWorkFactory
from trainer.protocol.run_config import AWS_SECRETS, GOOGLE_SECRETS

_NAME: Final = "secrets of clouds"
_PAGE: Final = "docs/secrets.md says what it needs"
_SETTINGS: Final = {
    AWS_SECRETS: "LOWTIDE_AWS_DATA_ROLE",
    GOOGLE_SECRETS: "LOWTIDE_GCP_DATA_ACCOUNT",
}


def check_cloud_secrets(
    begin: UnitOfWorkFactory, open_issuers: Callable[[], GrantIssuers], entropy: Entropy
) -> Iterator[CheckResult]:
    """One result for each service and account that projects' rules name; none where none does.

    open_issuers: called in the first case alone, as it loads the clients of clouds.
    """
    with begin() as uow:
        lent = {row.project: parse_rules(row.document) for row in uow.rules.lending_secrets()}
    if not lent:
        return
    issuers, probe_id = open_issuers().secrets, entropy.new_id()
    asked: set[tuple[str, str | None]] = set()
    for project, rules in lent.items():
        for service in sorted({one.service for one in rules.secret_prefixes}):
            account = rules.secret_account if service == GOOGLE_SECRETS else None
            if (service, account) not in asked:
                asked.add((service, account))
                yield _tried(issuers.get(service), service, account, project, rules, probe_id)


def _tried(
    issuer: SecretGrantIssuer | None,
    service: str,
    account: str | None,
    project: str,
    rules: ProjectRules,
    probe_id: UUID,
) -> CheckResult:
    whose = f"{service} for {project}" if account is None else f"{service} for {account}"
    if issuer is None:
        told = f"{whose}: machines are given no credentials"
        return CheckResult(_NAME, False, told, f"set {_SETTINGS[service]}; {_PAGE}")
    named = [one for one in rules.secret_prefixes if one.service == service]
    try:
        issuer.issue(named[:1], account, probe_id)
    except GrantRefused as error:
        return CheckResult(_NAME, False, f"{whose}: {error}", _PAGE)
    return CheckResult(_NAME, True, f"{whose}: a credential was issued; no secret was asked for")
