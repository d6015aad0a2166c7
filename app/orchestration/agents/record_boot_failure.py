"""Write down that a machine could not start its agent, or not as it should, for the job's people.

Not here: giving the machine back (it powers itself off, and its cloud says so), or the agents that
did start (`register_agent`).
"""

from __future__ import annotations

import re

from app.domain.deployment.credentials import digest
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.orchestration.agents.register_agent import TokenRefused
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.runtime import Runtime
from app.storage.unit_of_work import UnitOfWork

MESSAGE_CHARACTERS_MAX = 1_000
MACHINE_CHARACTERS_MAX = 100
REPORTS_PER_MACHINE = 4
"""A boot has one failure to tell, and few things that its machine lacks."""
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


class TooManyReports(Exception):
    """The launch's machines have told all that they may; the message is for them."""


def record_boot_failure(
    uow: UnitOfWork, runtime: Runtime, token: str, machine: str, message: str
) -> None:
    """Add it to the history of the job whose launch token was shown.

    `machine` is what the machine calls itself. Raises TokenRefused for an unknown token, or one
    whose time is over: what is said under it can no longer help anybody. Raises TooManyReports.
    """
    sentence = "A machine of {provider} could not start its agent: {said}."
    _record(uow, runtime, JobEventKind.BOOT_FAILED, token, machine, sentence, message)


def record_boot_warning(
    uow: UnitOfWork, runtime: Runtime, token: str, machine: str, message: str
) -> None:
    """The same for a machine that starts its agent all the same."""
    sentence = "A machine of {provider} starts, but {said}."
    _record(uow, runtime, JobEventKind.BOOT_WARNED, token, machine, sentence, message)


def _record(
    uow: UnitOfWork,
    runtime: Runtime,
    kind: JobEventKind,
    token: str,
    machine: str,
    sentence: str,
    message: str,
) -> None:
    launch = uow.launches.by_token_hash(digest(token))
    if launch is None:
        raise TokenRefused("The launch token is unknown.")
    said = _UNSEEN.sub(" ", message).strip()[:MESSAGE_CHARACTERS_MAX]
    name = _UNSEEN.sub(" ", machine).strip()[:MACHINE_CHARACTERS_MAX]
    with open_job(uow, runtime.entropy, launch.job_id, Actor(ActorKind.AGENT, name)) as aggregate:
        if aggregate is None or aggregate.now > launch.token_expires_at:
            raise TokenRefused("The launch token has expired.")
        most = REPORTS_PER_MACHINE * launch.count
        if uow.launches.boot_reports(launch, most) >= most:
            raise TooManyReports(f"This launch has already reported its boot {most} times.")
        aggregate.record(
            kind,
            sentence.format(provider=launch.provider, said=said),
            about=launch,
        )
