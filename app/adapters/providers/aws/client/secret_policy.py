"""The session policy that narrows the role of jobs' data to the secrets that one job names.

The session has no right to a bucket, as that of `session_policy` has none to a secret. Imports no
SDK: submissions are checked with it.

Sources: Secrets Manager user guide, "Permissions policy examples" (`NAME-??????`: it adds a dash
and six characters to each name in its ARN, which `*` would not bound) and "Authentication and
access control" (`kms:Decrypt` for a secret under a key of one's own); STS API reference,
AssumeRole, `Policy`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from app.adapters.providers.aws.client.session_policy import POLICY_CHARACTERS_MAX
from app.domain.deployment.cloud_secrets import CloudSecretName

_SUFFIX: Final = "-??????"


def secret_policy_problem(
    named: Sequence[CloudSecretName], role_arn: str, region: str
) -> str | None:
    """Why no session policy can name these secrets; None if one can."""
    size = len(secret_policy(named, role_arn, region))
    if size <= POLICY_CHARACTERS_MAX:
        return None
    return (
        f"the job's {len(named)} secrets of AWS need a policy of {size:,} characters, and AWS "
        f"takes {POLICY_CHARACTERS_MAX:,}: name fewer, or put several values into one secret"
    )


def secret_policy(named: Sequence[CloudSecretName], role_arn: str, region: str) -> str:
    """The document. role_arn: tells the partition and the account. region: of names without one."""
    _, partition, _, _, account, _ = role_arn.split(":", 5)
    secrets = sorted(
        f"arn:{partition}:secretsmanager:{one.place or region}:{account}:secret:{one.name}{_SUFFIX}"
        for one in named
    )
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secrets},
        {
            "Effect": "Allow",
            "Action": "kms:Decrypt",
            "Resource": "*",
            "Condition": {"StringLike": {"kms:ViaService": "secretsmanager.*"}},
        },
    ]
    told = {"Version": "2012-10-17", "Statement": statements}
    return json.dumps(told, separators=(",", ":"))
