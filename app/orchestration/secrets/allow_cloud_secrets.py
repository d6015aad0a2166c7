"""Which secrets of clouds a project's rules allow its jobs: asked at a submission, and again each
time that a machine asks, as rules change.

Not here: the names' form (`app.domain.deployment.cloud_secrets`), or who may set the rules
(`app.orchestration.access.manage_rules`).
"""

from __future__ import annotations

from app.domain.deployment.cloud_secrets import CloudSecretName, is_allowed, read_cloud_name
from app.domain.projects.project_rules import ProjectRules
from trainer.protocol.run_config import GOOGLE_SECRETS, SecretUse


def cloud_name_of(use: SecretUse) -> CloudSecretName:
    """Of a use that has a source, whose form was read when the spec was."""
    return read_cloud_name(str(use.source))


def not_allowed(rules: ProjectRules, project: str, named: CloudSecretName) -> str | None:
    """Why the project's jobs may not name it, and what to do; None if they may."""
    if not is_allowed(rules.secret_prefixes, named):
        known = ", ".join(str(one) for one in rules.secret_prefixes)
        listed = f"it allows {known}" if known else "it allows no secrets of clouds"
        return (
            f"{named} is not within the prefixes that the project {project!r} allows; {listed}: "
            "an admin can add one to the rule `secret_prefixes`"
        )
    if named.service == GOOGLE_SECRETS and rules.secret_account is None:
        return (
            f"{named} cannot be read: the project {project!r} has no account for secrets of "
            "Google; an admin can name one by the rule `secret_account`"
        )
    return None
