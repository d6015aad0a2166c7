"""Credentials of AWS for one job's folders: the role of jobs' data, narrowed by a session policy.

`sts:AssumeRole` of a role that the control plane alone may assume. An hour is what a role assumed
by another role may last ("role chaining", IAM user guide). Not here: the policy (`session_policy`),
who is given what and when (`app.api.agents.grant_cache`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.adapters.providers.aws.client.clients import AwsClients
from app.adapters.providers.aws.client.session_policy import policy_problem, session_policy
from app.domain.market.storage_places import StoragePlace
from app.ports.cloud_provider import ProviderError
from app.ports.storage_grants import GrantRefused, IssuedCredential
from trainer.protocol.storage_access import LIFETIME_SECONDS

# In detail it writes whole answers into the log: of this call, the credentials.
logging.getLogger("botocore").setLevel(logging.INFO)

_FIELDS: Final = {
    "access_key_id": "AccessKeyId",
    "secret_access_key": "SecretAccessKey",
    "token": "SessionToken",
}


class JobDataRole:
    """Implements `app.ports.storage_grants.StorageGrantIssuer` for S3."""

    def __init__(
        self, role_arn: str, settings: AwsSettings, clients: AwsClients | None = None
    ) -> None:
        self._role_arn = role_arn
        self._region = settings.regions[0]
        self._clients = clients or AwsClients(settings)

    @property
    def scope_by(self) -> str:
        """The role."""
        return self._role_arn

    def issue(self, places: Sequence[StoragePlace], job_id: UUID) -> IssuedCredential:
        """As the port says. CloudTrail shows the job as the session's name."""
        problem = policy_problem(places)
        if problem is not None:
            raise GrantRefused(problem)
        try:
            reply = self._clients.ask(
                "sts",
                self._region,
                "assume_role",
                RoleArn=self._role_arn,
                RoleSessionName=f"lowtide-{job_id}",
                DurationSeconds=int(LIFETIME_SECONDS),
                Policy=session_policy(places, self._role_arn.split(":")[1]),
            )
        except ProviderError as error:
            raise GrantRefused(f"{self._role_arn} cannot be assumed: {error}") from error
        return IssuedCredential(session_values(reply), LIFETIME_SECONDS)


def session_values(reply: dict[str, Any]) -> dict[str, str]:
    """The credentials in an answer of AssumeRole, in the wire's words. Raises GrantRefused."""
    told = reply.get("Credentials")
    found = {ours: told.get(theirs) for ours, theirs in _FIELDS.items()} if told else {}
    if not found or not all(isinstance(one, str) and one for one in found.values()):
        raise GrantRefused("STS answered without credentials")
    return {name: str(value) for name, value in found.items()}
