"""The stages of a trial launch, read from the job's own history: how far it is, what failed, why.

Pure: documents of the api in, values out. What to do about a failure is here as well, one table.
Not here: submitting and following (`launch_check`), or how it is printed (`launch_report`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from app.cli.client import wording
from app.cli.client.job_view import AT_REST
from app.domain.units.durations import format_duration
from app.domain.wording.machine_words import ended_words

Document = Mapping[str, Any]


class LaunchPhase(StrEnum):
    """What happens to a first machine, in this order."""

    RENT = "rent"
    BOOT = "boot"
    REGISTER = "register"
    TRAIN = "train"
    CHECKPOINT = "checkpoint"
    GIVE_BACK = "give back"


ORDER: Final = tuple(LaunchPhase)
_GOES_ON: Final = frozenset({"finished", "spot_interrupted", "no_capacity", "resized", "migrated"})
"""Ends of an attempt after which the control plane tries again and nothing is wrong."""

_NOT_REGISTERED: Final = "registration_timeout"
_DIED_OF_THE_CLOUD: Final = frozenset({"cloud_interruption", "cloud_capacity", "cloud_failure"})

REMEDIES: Final[Mapping[LaunchPhase, str]] = {
    LaunchPhase.RENT: "run `lowtide doctor` where the worker runs: it names missing rights and "
    "quotas; "
    "or try another --gpu or --region, or --on-demand",
    LaunchPhase.BOOT: "correct the machine image: docs/machines.md lists what it must have, and "
    "LOWTIDE_AWS_IMAGE or LOWTIDE_GCP_IMAGE names another one",
    LaunchPhase.REGISTER: "machines must reach LOWTIDE_PUBLIC_URL: check that the subnet has a way "
    "out "
    "(NAT or a public address), that port 443 and DNS are open, and that `lowtide doctor` finds "
    "the certificate valid",
    LaunchPhase.TRAIN: "read the log: the image's driver, Python or PyTorch; docs/machines.md "
    "lists what "
    "a machine must have",
    LaunchPhase.CHECKPOINT: "let the machines' role list, read and write in the bucket: "
    "docs/object-stores.md, What must be allowed",
    LaunchPhase.GIVE_BACK: "look with `lowtide instances`; end what is left in the cloud's own "
    "console",
}
_REMEDY_OF_REFUSAL: Final[Mapping[str, str]] = {
    "quota": "ask the cloud for more GPU quota (docs/aws.md, step 1; docs/gcp.md, step 2), or try "
    "another --gpu or --region",
    "denied": "run `lowtide doctor` where the worker runs: it names the missing right",
    "rejected": "correct the setting that the cloud's sentence names",
    "no_capacity": "no such machine is free: try another --gpu or --region, or --on-demand",
    "unsupported": "the region does not offer it: try another --gpu or --region",
}
_CONSOLES: Final[Mapping[str, str]] = {
    "aws": "aws ec2 get-console-output --latest --output text --region {region} --instance-id {id}",
    "gcp": "gcloud compute instances get-serial-port-output {name} --zone {zone}",
    "local": "cloud/machines/{id}/console.log in the state folder",
}


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Everything the api tells of the job at one moment."""

    job: Document
    events: tuple[Document, ...]
    attempts: tuple[Document, ...]
    instances: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage. ok: None while it runs, or where nothing can be said; seconds: how long it took.

    log: the last lines of the log that belongs to it, oldest first.
    """

    stage: LaunchPhase
    ok: bool | None = None
    seconds: float | None = None
    sentence: str = ""
    remedy: str = ""
    log: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "stage": self.stage.value,
            "ok": self.ok,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "sentence": self.sentence,
            "remedy": self.remedy,
            "log": list(self.log),
        }


@dataclass(frozen=True, slots=True)
class StageFailure:
    """The stage that failed, and the reason as the cloud, the machine or the job gave it."""

    stage: LaunchPhase
    reason: str
    remedy: str


def marks(story: JobHistory) -> dict[LaunchPhase, datetime]:
    """When each stage that is over ended, on the control plane's clock."""
    nodes = int(story.job["node_count"])
    found: dict[LaunchPhase, datetime | None] = {
        LaunchPhase.RENT: _nth(story, "launch_accepted", nodes),
        LaunchPhase.BOOT: _nth(story, "agent_registered", nodes),
        LaunchPhase.REGISTER: _nth(story, "trainer_started", 1),
        LaunchPhase.TRAIN: _first_step_at(story),
        LaunchPhase.CHECKPOINT: _nth(story, "checkpoint_committed", 1),
        LaunchPhase.GIVE_BACK: _given_back_at(story),
    }
    ended: dict[LaunchPhase, datetime] = {}
    for stage in ORDER:
        at = found[stage]
        # A stage is over only when those before it are.
        if at is None:
            break
        ended[stage] = max(at, *ended.values()) if ended else at
    return ended


def running(story: JobHistory) -> LaunchPhase:
    """The first stage that is not over; the last one when all are."""
    over = marks(story)
    return next((stage for stage in ORDER if stage not in over), LaunchPhase.GIVE_BACK)


def views(story: JobHistory) -> tuple[StageView, ...]:
    """Every stage so far: those that are over with their times, others without."""
    over = marks(story)
    began = wording.instant(story.job["submitted_at"])
    told: list[StageView] = []
    for stage in ORDER:
        at = over.get(stage)
        if at is None or began is None:
            told.append(StageView(stage))
            continue
        told.append(StageView(stage, True, (at - began).total_seconds(), _told(stage, story)))
        began = at
    return tuple(told)


def failed_views(
    story: JobHistory, failure: StageFailure, seconds: float, log: tuple[str, ...]
) -> tuple[StageView, ...]:
    """The stages with the failure in its place; `seconds`: since the job was submitted."""
    shown = views(story)
    before = sum(one.seconds or 0.0 for one in shown[: ORDER.index(failure.stage)])
    view = StageView(
        failure.stage, False, max(0.0, seconds - before), failure.reason, failure.remedy, log
    )
    at = ORDER.index(failure.stage)
    # What comes after the stage that failed is left open, whatever was seen of a second attempt.
    after = tuple(StageView(stage) for stage in ORDER[at + 1 : -1])
    return (*shown[:at], view, *after, _end_view(story))


def failure_of(story: JobHistory) -> StageFailure | None:
    """What will not come right by itself; None while it may."""
    job = story.job
    stage = running(story)
    for event in story.events:
        if event["kind"] == "boot_failed":
            return StageFailure(LaunchPhase.BOOT, str(event["message"]), REMEDIES[LaunchPhase.BOOT])
    silent = next((one for one in story.instances if _died_silently(one)), None)
    if silent is not None:
        told = f"{_machine(silent)} powered off before its agent called"
        return StageFailure(
            LaunchPhase.BOOT, told, f"{_console(silent)}; {REMEDIES[LaunchPhase.BOOT]}"
        )
    for attempt in story.attempts:
        reason = attempt["end_reason"]
        if reason is not None and reason not in _GOES_ON:
            return _of_attempt(story, stage, reason, str(attempt["end_message"] or reason))
    if job["state"] in AT_REST - {"succeeded"}:
        return StageFailure(
            stage, str(job["why"] or f"the job {wording.standing(job['state'])}"), REMEDIES[stage]
        )
    return None


def failure_of_pools(
    story: JobHistory, offers: Mapping[str, Document], pools: frozenset[str], now: datetime
) -> StageFailure | None:
    """What the pools' rests tell: a machine that was given up, or refusals of all `pools`.

    `offers`: the api's, by their pool. The control plane would try again; a person must act first.
    """
    for one in story.instances:
        given_up = one["release_ordered_at"] and one["launched_at"] and not one["registered_at"]
        row = offers.get(str(one["pool"]))
        if given_up and row is not None and row["cool_reason"] == _NOT_REGISTERED:
            return _unheard(story, "no agent registered in LOWTIDE_REGISTRATION_TIMEOUT_SECONDS")
    if running(story) is not LaunchPhase.RENT:
        return None
    kind = refused_everywhere(offers, pools, now)
    return None if kind is None else refusal_failure(story, kind)


def may_ask_pools(story: JobHistory) -> bool:
    """Whether something happened of which only the pools' rests tell more."""
    refused = any(event["kind"] == "launch_refused" for event in story.events)
    # Its pools may have begun to rest after the plan was made: then nothing is ever asked.
    waits = running(story) is LaunchPhase.RENT and not story.instances
    return (
        refused
        or waits
        or any(one["release_ordered_at"] and not one["registered_at"] for one in story.instances)
    )


def refused_everywhere(
    offers: Mapping[str, Document], pools: frozenset[str], now: datetime
) -> str | None:
    """The kind of refusal under which every one of the pools rests, if waiting is of no use.

    None while one of them may still be asked, or is only full. `offers`: by their pool.
    """
    if not pools:
        return None
    kinds: list[str] = []
    for pool in sorted(pools):
        row = offers.get(pool)
        rests_until = None if row is None else wording.instant(row["cool_until_at"])
        if row is None or rests_until is None or rests_until <= now:
            return None
        kinds.append(str(row["cool_reason"] or ""))
    if "no_capacity" in kinds:
        return None
    return next((one for one in ("denied", "rejected", "quota") if one in kinds), None)


def refusal_failure(story: JobHistory, kind: str) -> StageFailure:
    """All pools refused: what the cloud said last."""
    said = [str(one["message"]) for one in story.events if one["kind"] == "launch_refused"]
    reason = said[-1] if said else "every pool refused"
    return StageFailure(
        LaunchPhase.RENT, reason, _REMEDY_OF_REFUSAL.get(kind, REMEDIES[LaunchPhase.RENT])
    )


def late(story: JobHistory, timeout_seconds: int) -> StageFailure:
    """The time is up: where it stood, and what that usually means."""
    stage = running(story)
    limit = format_duration(timeout_seconds)
    if stage is LaunchPhase.BOOT:
        return _unheard(story, f"--timeout of {limit} is over")
    why = story.job["why"]
    told = f"--timeout of {limit} is over" + (f": {why}" if why else "")
    return StageFailure(stage, told, REMEDIES[stage])


def still_there(story: JobHistory) -> list[str]:
    """Machines whose end the cloud has not confirmed."""
    return [
        _machine(one) if one["provider_instance_id"] else "one that the cloud has not answered for"
        for one in story.instances
        if one["state"] not in ("terminated", "launch_failed")
    ]


def _of_attempt(story: JobHistory, stage: LaunchPhase, reason: str, message: str) -> StageFailure:
    if reason == _NOT_REGISTERED:
        return _unheard(story, message)
    if reason == "store_unavailable" and stage is not LaunchPhase.CHECKPOINT:
        return StageFailure(stage, message, REMEDIES[LaunchPhase.CHECKPOINT])
    return StageFailure(stage, message, REMEDIES[stage])


def _unheard(story: JobHistory, what: str) -> StageFailure:
    """Machines are up, as far as their cloud knows, and have not called."""
    silent = [one for one in _rented(story) if not one["registered_at"]]
    names = ", ".join(_machine(one) for one in silent)
    reason = f"{what}: nothing was heard from {names}" if names else what
    console = f"{_console(silent[0])} shows how far it booted; " if silent else ""
    return StageFailure(LaunchPhase.REGISTER, reason, console + REMEDIES[LaunchPhase.REGISTER])


def _rented(story: JobHistory) -> list[Document]:
    """Every machine that the cloud gave."""
    return [one for one in story.instances if one["provider_instance_id"]]


def _died_silently(instance: Document) -> bool:
    if instance["registered_at"] or not instance["ended_at"] or not instance["launched_at"]:
        return False
    return instance["ended_by"] not in _DIED_OF_THE_CLOUD and not instance["release_ordered_at"]


def _machine(instance: Document) -> str:
    """ "m1 (i-0abc, aws us-east-1a g4dn.xlarge spot)"."""
    known = f"{wording.cloud_id(instance)}, {wording.pool(instance['pool'])}"
    return f"{instance.get('name') or 'a machine'} ({known})"


def _console(instance: Document) -> str:
    form = _CONSOLES.get(str(instance["provider"]), "the cloud's console")
    return form.format(
        region=instance["region"],
        zone=instance["zone"],
        id=instance["provider_instance_id"],
        name=wording.cloud_id(instance),
    )


def _told(stage: LaunchPhase, story: JobHistory) -> str:
    if stage is LaunchPhase.RENT:
        return ", ".join(_machine(one) for one in _rented(story))
    if stage is LaunchPhase.BOOT:
        return "the agent called the control plane"
    if stage is LaunchPhase.REGISTER:
        return "ready: working folder, checkpoints' place, every machine of the job"
    if stage is LaunchPhase.TRAIN:
        return "one step done"
    if stage is LaunchPhase.CHECKPOINT:
        return "in the store, verified"
    by = sorted({ended_words(one["ended_by"]) for one in story.instances if one["ended_by"]})
    return f"gone, ended by {' and '.join(by)}" if by else "gone"


def _end_view(story: JobHistory) -> StageView:
    """Of a launch that failed: whether its machines are gone."""
    if still_there(story):
        return StageView(LaunchPhase.GIVE_BACK)
    told = _told(LaunchPhase.GIVE_BACK, story) if _rented(story) else "nothing was rented"
    return StageView(LaunchPhase.GIVE_BACK, True, None, told)


def _nth(story: JobHistory, kind: str, count: int) -> datetime | None:
    """The instant of the count-th event of the kind."""
    found = [one["at"] for one in story.events if one["kind"] == kind]
    return wording.instant(found[count - 1]) if len(found) >= count else None


def _first_step_at(story: JobHistory) -> datetime | None:
    found = [one["first_step_at"] for one in story.attempts if one["first_step_at"]]
    return wording.instant(min(found)) if found else _nth(story, "checkpoint_committed", 1)


def _given_back_at(story: JobHistory) -> datetime | None:
    """When the last machine was gone; None while one may live, or before any was rented."""
    ended = [one["ended_at"] for one in _rented(story)]
    if not ended or not all(ended) or still_there(story):
        return None
    if story.job["state"] not in AT_REST:
        return None
    return wording.instant(max(ended))
