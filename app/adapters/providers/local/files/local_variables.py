"""How the local cloud behaves, as environment variables: part of `Settings`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from app.adapters.providers.local.files.cloud_settings import (
    LocalSettings,
    TermsUnreadable,
    read_terms,
)

_KEPT: Final = ("billing_speed", "market_speed")
"""What the first start of a folder's cloud settles for good."""


class LocalVariables(BaseSettings):
    """`LOWTIDE_LOCAL_…`. Durations are seconds."""

    local_slots: int = Field(
        default=4, ge=1, le=64, description="Machines in each pool of the local cloud"
    )
    local_mode: Literal["scripted", "replay"] = Field(
        default="scripted",
        description="`scripted`: the local cloud interrupts machines only on command; "
        "`replay`: as the recorded market did",
    )
    local_market_speed: float = Field(
        default=1.0, gt=0, description="Seconds of the recorded market in one second"
    )
    local_billing_speed: int = Field(
        default=1, ge=1, le=3600, description="Billed seconds of the local cloud in one second"
    )
    local_notice_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Warning before the local cloud interrupts a machine",
        json_schema_extra={"default": "as the imitated cloud: 120 (EC2), 30 (GCE)"},
    )
    local_boot_seconds: float = Field(
        default=0.0, ge=0, description="How long a machine of the local cloud takes to boot"
    )
    local_first_uid: int = Field(
        default=60_578,
        ge=0,
        le=2_000_000_000,
        description="If Lowtide runs as root: the first of 600 OS user numbers that jobs on "
        "local machines run as, one for each machine; 0: as root",
    )
    local_beside_clouds: bool = Field(
        default=True,
        description="Whether `local` may be used together with other clouds; jobs that run as "
        "Lowtide's own user can read the clouds' keys. docker-compose.yml sets false",
    )


def local_problem(variables: LocalVariables, providers: Collection[str]) -> str | None:
    """Why the local cloud may not be used beside the others of these; None where it may."""
    clouds = sorted(set(providers) - {"local"})
    if variables.local_beside_clouds or "local" not in providers or not clouds:
        return None
    return (
        f"LOWTIDE_PROVIDERS names local together with {' and '.join(clouds)}: local jobs can run "
        "as Lowtide's own user and read the keys to the clouds; leave local out, or set "
        "LOWTIDE_LOCAL_BESIDE_CLOUDS=true if you trust every job"
    )


def local_settings_of(variables: LocalVariables) -> LocalSettings:
    """What the local cloud works with."""
    usual = LocalSettings()
    notice = variables.local_notice_seconds
    return LocalSettings(
        mode=variables.local_mode,
        local_slots=variables.local_slots,
        boot_seconds=variables.local_boot_seconds,
        ec2_notice_seconds=usual.ec2_notice_seconds if notice is None else notice,
        gce_notice_seconds=usual.gce_notice_seconds if notice is None else notice,
        market_speed=variables.local_market_speed,
        billing_speed=variables.local_billing_speed,
        first_uid=variables.local_first_uid,
    )


def kept_speeds(variables: LocalVariables, folder: Path) -> list[str]:
    """One sentence for each speed that was set and that the cloud in `folder` does not take.

    The bills of machines that ran there rest on its own, so that it cannot change. Empty where
    nobody set a speed, before the cloud's first start, and where its terms are damaged, which its
    start says itself.
    """
    try:
        terms = read_terms(folder)
    except TermsUnreadable:
        return []
    if terms is None:
        return []
    sentences = []
    for name in _KEPT:
        kept, variable = float(getattr(terms, name)), f"local_{name}"
        if variable not in variables.model_fields_set:
            continue
        wanted = float(getattr(variables, variable))
        if kept != wanted:
            setting = f"LOWTIDE_{variable.upper()}"
            sentences.append(
                f"this state folder was made with {setting}={kept:g} and keeps it, because its "
                f"bills rest on it; {wanted:g} has no effect here: for that, name a new folder "
                "with --state-dir"
            )
    return sentences
