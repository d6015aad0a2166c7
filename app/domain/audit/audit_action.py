"""What people do that is written down, and what they do it to. Stored: never reuse or rename one.

Not here: who may do it (`app.domain.access.roles`).
"""

from __future__ import annotations

from enum import StrEnum

from app.domain.units.errors import InvalidValue


class AuditAction(StrEnum):
    """One kind of change, by the thing that is changed."""

    JOB_SUBMIT = "job.submit"
    JOB_CANCEL = "job.cancel"
    JOB_PAUSE = "job.pause"
    JOB_RESUME = "job.resume"
    MACHINE_INTERRUPT = "machine.interrupt"
    WORKDIR_UPLOAD = "workdir.upload"
    KEY_CREATE = "key.create"
    KEY_ROTATE = "key.rotate"
    KEY_REVOKE = "key.revoke"
    KEY_RECOVER = "key.recover"
    INVITATION_CREATE = "invitation.create"
    INVITATION_REVOKE = "invitation.revoke"
    INVITATION_ACCEPT = "invitation.accept"
    MEMBER_ADD = "member.add"
    MEMBER_ROLE = "member.role"
    MEMBER_REMOVE = "member.remove"
    PERSON_DISABLE = "person.disable"
    PERSON_ENABLE = "person.enable"
    PERSON_ANONYMISE = "person.anonymise"
    MEMBER_GROUP = "member.group"
    MEMBER_KEPT = "member.kept"
    IDENTITY_LINK = "identity.link"
    LOGIN_CONFIRM = "login.confirm"
    LOGIN_FAIL = "login.fail"
    PROJECT_CREATE = "project.create"
    PROJECT_ARCHIVE = "project.archive"
    PROJECT_RESTORE = "project.restore"
    PROJECT_RULES = "project.rules"
    PROJECT_BUDGET = "project.budget"
    SECRET_SET = "secret.set"
    SECRET_REMOVE = "secret.remove"
    SECRET_DELIVER = "secret.deliver"
    CHANNEL_SET = "channel.set"
    CHANNEL_REMOVE = "channel.remove"
    CHANNEL_TEST = "channel.test"
    RULE_ADD = "rule.add"
    RULE_REMOVE = "rule.remove"
    DELIVERY_RESEND = "delivery.resend"
    LAUNCHES_FREEZE = "launches.freeze"
    LAUNCHES_THAW = "launches.thaw"
    LAUNCHES_LIMIT = "launches.limit"
    SESSION_BEGIN = "session.begin"
    SESSION_ISSUER = "session.issuer"
    SESSION_END = "session.end"
    SWEEP_ASK = "sweep.ask"
    SWEEP_CONFIRM = "sweep.confirm"
    DEPLOYMENT_DESTROY = "deployment.destroy"
    DEPLOYMENT_BUDGET = "deployment.budget"


class AuditOutcome(StrEnum):
    """Whether the row is in the transaction of what it tells of."""

    DONE = "done"
    """It is: either both are there or neither is."""
    BEGUN = "begun"
    """What it tells of is outside the database, and began once the row was durable."""


class SubjectKind(StrEnum):
    """What an action is done to."""

    JOB = "job"
    MACHINE = "machine"
    WORKDIR = "workdir"
    KEY = "key"
    INVITATION = "invitation"
    MEMBER = "member"
    PERSON = "person"
    IDENTITY = "identity"
    LOGIN = "login"
    PROJECT = "project"
    SECRET = "secret"
    CHANNEL = "channel"
    RULE = "rule"
    DELIVERY = "delivery"
    SESSION = "session"
    DEPLOYMENT = "deployment"


def read_actions(written: str | None) -> tuple[AuditAction, ...]:
    """Actions with commas between, or the things they are done to (`job`, `key`); none means all.

    Raises InvalidValue.
    """
    found: set[AuditAction] = set()
    for word in (part.strip().lower() for part in (written or "").split(",") if part.strip()):
        meant = {one for one in AuditAction if word in (one, one.partition(".")[0])}
        if not meant:
            known = ", ".join(dict.fromkeys(one.partition(".")[0] for one in AuditAction))
            raise InvalidValue(
                f"action: {word[:40]!r} is no action; use {known}, or one such as job.cancel",
                "action",
            )
        found |= meant
    return tuple(sorted(found))
