"""Channels and rules of a project: set, remove, test; and send a delivery again.

Lives here: the verbs, each in the caller's transaction. No verb returns where a channel leads. Not
here: who may do what (`app.domain.access`), or sending (`send_notifications`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from app.domain.access.key_rules import require_name
from app.domain.access.may import DEPLOYMENT, Resource, require
from app.domain.access.principal import Principal
from app.domain.access.roles import Action
from app.domain.audit.audit_action import AuditAction, SubjectKind
from app.domain.audit.audit_entry import Subject
from app.domain.notifications.channel_targets import (
    ChannelKind,
    Target,
    WebTarget,
    channel_context,
    shown_destination,
    target_document,
)
from app.domain.notifications.delivery_rules import CHANNEL_REMOVED, UNDONE, DeliveryState
from app.domain.notifications.message import text_of_test
from app.domain.notifications.triggers import OF_DEPLOYMENT, Trigger
from app.domain.units.errors import CommandRefused, InvalidValue, NotFound, SpecError
from app.orchestration.audit.record_action import record_action
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.tell_channels import SENDER, deliver
from app.orchestration.secrets.manage_secrets import encryption_of, require_key
from app.storage.notifications.channel_repository import ChannelRow, RuleRow
from app.storage.notifications.delivery_repository import DeliveryRow
from app.storage.notifications.outbox import ToldChannel
from app.storage.unit_of_work import UnitOfWork

CHANNELS_MAX: Final = 50
RULES_MAX: Final = 200
WAIT_SECONDS_MIN: Final = 60


@dataclass(frozen=True)
class SetChannel:
    """A channel as it is now. signing_key: of a signed webhook, known here alone; else None."""

    row: ChannelRow
    signing_key: str | None


def set_channel(
    uow: UnitOfWork,
    runtime: Runtime,
    principal: Principal,
    name: str,
    kind: ChannelKind,
    target: Target,
) -> SetChannel:
    """Make a channel, or let it lead elsewhere; what waits is sent there.

    A signed webhook gets another key each time. Raises Forbidden, InvalidValue, KeyUnavailable, and
    CommandRefused where the project has too many.
    """
    project_id = principal.project_id
    require(principal, Action.MANAGE_NOTIFICATIONS, Resource(project_id))
    require_name(name, "channel")
    uow.secrets.lock_project(project_id)
    before = uow.channels.of_name(project_id, name)
    if before is None and uow.channels.count(project_id) >= CHANNELS_MAX:
        raise CommandRefused(
            f"The project {principal.project_name!r} has {CHANNELS_MAX} channels, the most that "
            "one may have; remove some (`lowtide notification remove`)."
        )
    key = None
    if kind is ChannelKind.WEBHOOK and isinstance(target, WebTarget):
        key = runtime.entropy.new_token()
        target = WebTarget(target.url, key)
    after = ChannelRow(
        id=runtime.entropy.new_id() if before is None else before.id,
        project_id=project_id,
        name=name,
        kind=kind,
        version=1 if before is None else before.version + 1,
        destination=shown_destination(target),
        changed_at=uow.now,
        changed_by=str(principal.actor),
    )
    encryption = encryption_of(runtime)
    require_key(uow, encryption)
    context = channel_context(project_id, after.id, after.version)
    sealed = encryption.seal(orjson.dumps(target_document(target)), context)
    if before is None:
        uow.channels.add(after, sealed)
    else:
        uow.channels.replace(after, sealed)
    told = None if before is None else _facts(before)
    record_action(
        uow, runtime.entropy, principal, AuditAction.CHANNEL_SET, _subject(after), told,
        _facts(after),
    )  # fmt: skip
    uow.notify_after_commit(SENDER)
    return SetChannel(after, key)


def remove_channel(
    uow: UnitOfWork, runtime: Runtime, principal: Principal, name: str
) -> ChannelRow:
    """Remove a channel with its rules; what waits for it is not sent.

    Raises Forbidden and NotFound.
    """
    require(principal, Action.MANAGE_NOTIFICATIONS, Resource(principal.project_id))
    row = _channel(uow, principal, name)
    uow.channels.remove(row.id, uow.now)
    uow.deliveries.end_of_channel(row.id, uow.now, CHANNEL_REMOVED)
    action, before = AuditAction.CHANNEL_REMOVE, _facts(row)
    after = {**before, "removed_at": uow.now}
    record_action(uow, runtime.entropy, principal, action, _subject(row), before, after)
    return row


def send_test(uow: UnitOfWork, runtime: Runtime, principal: Principal, name: str) -> UUID:
    """Send a message that says that there is nothing to do; the id of its delivery.

    Raises Forbidden and NotFound.
    """
    require(principal, Action.MANAGE_NOTIFICATIONS, Resource(principal.project_id))
    row = _channel(uow, principal, name)
    text = text_of_test(row.name, principal.project_name, principal.name, uow.now)
    told = ToldChannel(row.id, row.id, row.project_id, principal.project_name)
    occasion = f"test/{runtime.entropy.new_id()}"
    made = deliver(uow, runtime.entropy, told, text, occasion, uow.now)
    action, after = AuditAction.CHANNEL_TEST, {"delivery_id": str(made.id)}
    record_action(uow, runtime.entropy, principal, action, _subject(row), after=after)
    return made.id


def add_rule(
    uow: UnitOfWork,
    runtime: Runtime,
    principal: Principal,
    channel: str,
    trigger: Trigger,
    after_seconds: int | None,
) -> RuleRow:
    """Tell a channel of something. after_seconds: of a wait, how long it may be; None for others.

    Raises Forbidden, NotFound, InvalidValue, and CommandRefused for a rule that is there already.
    """
    project_id = principal.project_id
    require(principal, Action.MANAGE_NOTIFICATIONS, Resource(project_id))
    if trigger in OF_DEPLOYMENT:
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    _require_length(trigger, after_seconds)
    uow.secrets.lock_project(project_id)
    row = _channel(uow, principal, channel)
    if uow.channels.count_rules(project_id) >= RULES_MAX:
        raise CommandRefused(
            f"The project {principal.project_name!r} has {RULES_MAX} rules, the most that one may "
            "have; remove some (`lowtide notification unsubscribe`)."
        )
    rule = RuleRow(
        id=runtime.entropy.new_id(),
        project_id=project_id,
        channel_id=row.id,
        trigger=trigger,
        after_seconds=after_seconds or 0,
        created_at=uow.now,
        created_by=str(principal.actor),
    )
    if not uow.channels.add_rule(rule):
        raise CommandRefused(f"The channel {channel!r} is told of this already.")
    action = AuditAction.RULE_ADD
    subject = _subject_of_rule(rule, row.name)
    record_action(uow, runtime.entropy, principal, action, subject, after=_facts_of_rule(rule))
    return rule


def remove_rule(uow: UnitOfWork, runtime: Runtime, principal: Principal, rule_id: UUID) -> RuleRow:
    """End a rule; what it has told already is sent. Raises Forbidden and NotFound."""
    require(principal, Action.MANAGE_NOTIFICATIONS, Resource(principal.project_id))
    rule = uow.channels.rule(principal.project_id, rule_id)
    if rule is None:
        raise NotFound(f"The project {principal.project_name!r} has no rule {rule_id}.")
    if rule.trigger in OF_DEPLOYMENT:
        require(principal, Action.OPERATE_DEPLOYMENT, DEPLOYMENT)
    uow.channels.remove_rule(rule.id)
    action, before = AuditAction.RULE_REMOVE, _facts_of_rule(rule)
    subject = _subject_of_rule(rule, rule.trigger)
    after = {**before, "removed_at": uow.now}
    record_action(uow, runtime.entropy, principal, action, subject, before, after)
    return rule


def resend(
    uow: UnitOfWork, runtime: Runtime, principal: Principal, delivery_id: UUID
) -> DeliveryRow:
    """Try a delivery that has ended again, under the same id, eight times more.

    Raises Forbidden, NotFound, and CommandRefused for one that is still to be tried, or whose
    channel was removed.
    """
    project_id = principal.project_id
    require(principal, Action.MANAGE_NOTIFICATIONS, Resource(project_id))
    row = uow.deliveries.one(project_id, delivery_id, locked=True)
    if row is None:
        raise NotFound(f"The project {principal.project_name!r} has no delivery {delivery_id}.")
    if row.state in UNDONE:
        raise CommandRefused("This delivery has not ended: it is tried by itself.")
    if uow.channels.stored(row.channel_id) is None:
        raise CommandRefused(f"The channel {row.channel!r} of this delivery was removed.")
    uow.deliveries.send_again(row.id, uow.now)
    subject = Subject(SubjectKind.DELIVERY, str(row.id), row.channel, project_id)
    record_action(
        uow, runtime.entropy, principal, AuditAction.DELIVERY_RESEND, subject,
        {"state": row.state, "ended_at": row.ended_at}, {"state": DeliveryState.WAITING},
    )  # fmt: skip
    uow.notify_after_commit(SENDER)
    return row


def require_channels(runtime: Runtime, principal: Principal, names: Sequence[str]) -> None:
    """Raises SpecError for names that are no channels of the principal's project."""
    with runtime.begin() as uow:
        known = uow.channels.known_names(principal.project_id, names)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SpecError.of(
            f"notify: the project {principal.project_name!r} has no channel "
            f"{', '.join(map(repr, unknown))}; `lowtide notification` lists those that it has",
            "notify",
        )


def _require_length(trigger: Trigger, after_seconds: int | None) -> None:
    if trigger is not Trigger.WAITING:
        if after_seconds is not None:
            raise InvalidValue("after: is for `waiting` alone; leave it out", "after")
    elif after_seconds is None or after_seconds < WAIT_SECONDS_MIN:
        raise InvalidValue(
            "after: say how long a job may wait, at least a minute, as 1h or 30m", "after"
        )


def _channel(uow: UnitOfWork, principal: Principal, name: str) -> ChannelRow:
    row = uow.channels.of_name(principal.project_id, name)
    if row is None:
        raise NotFound(f"The project {principal.project_name!r} has no channel {name[:80]!r}.")
    return row


def _subject(row: ChannelRow) -> Subject:
    return Subject(SubjectKind.CHANNEL, str(row.id), row.name, row.project_id)


def _subject_of_rule(rule: RuleRow, name: str) -> Subject:
    return Subject(SubjectKind.RULE, str(rule.id), name, rule.project_id)


def _facts(row: ChannelRow) -> dict[str, object]:
    """Nothing is made of what is secret: even a digest would let who reads it try guesses."""
    return {"name": row.name, "kind": row.kind, "version": row.version, "to": row.destination}


def _facts_of_rule(rule: RuleRow) -> dict[str, object]:
    return {
        "channel_id": str(rule.channel_id),
        "trigger": rule.trigger,
        "after_seconds": rule.after_seconds,
    }
