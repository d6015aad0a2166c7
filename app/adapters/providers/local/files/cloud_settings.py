"""How a local cloud behaves: settings of this start, and the terms its folder keeps for ever.

Terms (epoch, speeds) decide prices and bills of machines that already ran, so the first start
writes them into the folder and every later one uses those. Everything else may change by a restart.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from app.adapters.providers.local.files.durable_files import replace_durably

SCRIPTED: Final = "scripted"
REPLAY: Final = "replay"
_TERMS_FILE: Final = "terms.json"
_ATTACHED: Final = ("disk_gb", "disk_microusd_per_gb_month", "public_ip_microusd_per_hour")


@dataclass(frozen=True)
class LocalSettings:
    """One local cloud. Durations are wall seconds.

    mode: `scripted` (nothing is taken unless told) or `replay` (the recording decides).
    local_slots: machines per spot pool; in replay, where a recording knows only yes or no.
    machines_max: all machines of the cloud at once; beyond it launches meet a quota.
    ec2_notice_seconds, gce_notice_seconds: warning before an interruption.
    crash_shown_after_seconds: how long a machine that died silently is still shown as running.
    terminated_shown_seconds: how long an ended machine is still shown.
    agent_command: what a machine runs; empty means the agent of this installation.
    market_offset_seconds: where in each recording the market starts.
    market_speed: market seconds per wall second; prices and availability only.
    billing_speed: billed seconds per wall second, a whole number.
    disk_gb, disk_microusd_per_gb_month, public_ip_microusd_per_hour: what each machine has beside
    itself, at a price; nothing unless it is set.
    deployment_tag: only machines carrying it are listed; None: all, the cloud is this deployment's.
    call_timeout_seconds: upper bound of one call to the cloud, its start included.
    first_uid: of the users that machines' jobs run as (`job_accounts`); 0: as the cloud itself.
    """

    mode: str = SCRIPTED
    local_slots: int = 4
    machines_max: int = 64
    boot_seconds: float = 0.0
    ec2_notice_seconds: float = 120.0
    gce_notice_seconds: float = 30.0
    crash_shown_after_seconds: float = 2.0
    terminated_shown_seconds: float = 3600.0
    agent_command: tuple[str, ...] = ()
    market_offset_seconds: int = 0
    market_speed: float = 1.0
    billing_speed: int = 1
    disk_gb: int = 0
    disk_microusd_per_gb_month: int = 0
    public_ip_microusd_per_hour: int = 0
    deployment_tag: tuple[str, str] | None = None
    call_timeout_seconds: float = 15.0
    first_uid: int = 0

    def notice_seconds(self, *, is_gce: bool) -> float:
        """The warning that a machine of Google's, or else Amazon's, gets before it is taken."""
        return self.gce_notice_seconds if is_gce else self.ec2_notice_seconds

    def __post_init__(self) -> None:
        if self.mode not in (SCRIPTED, REPLAY):
            raise ValueError(f"local mode is {SCRIPTED} or {REPLAY}, not {self.mode!r}")
        for name in ("local_slots", "machines_max", "market_speed", "billing_speed"):
            if getattr(self, name) <= 0:
                raise ValueError(f"local {name} must be above 0, not {getattr(self, name)}")
        if self.call_timeout_seconds <= 0:
            raise ValueError("local call_timeout_seconds must be above 0")
        for name in (
            "boot_seconds",
            "market_offset_seconds",
            "terminated_shown_seconds",
            "disk_gb",
            "disk_microusd_per_gb_month",
            "public_ip_microusd_per_hour",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"local {name} must not be negative")

    @property
    def agent_argv(self) -> tuple[str, ...]:
        """The command that runs on a machine."""
        return self.agent_command or (sys.executable, "-m", "trainer.agent.main")

    def to_json(self) -> str:
        """Text for the daemon's command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> LocalSettings:
        """Settings from that text. Raises ValueError or TypeError."""
        fields: dict[str, Any] = json.loads(text)
        tag = fields.pop("deployment_tag")
        command = tuple(fields.pop("agent_command"))
        return LocalSettings(
            **fields, agent_command=command, deployment_tag=tuple(tag) if tag else None
        )


@dataclass(frozen=True)
class CloudTerms:
    """What never changes in a folder. `epoch_us`: microseconds since 1970, UTC.

    disk_gb and the two prices: as in `LocalSettings`.
    """

    epoch_us: int
    market_offset_seconds: int
    market_speed: Fraction
    billing_speed: Fraction
    disk_gb: int = 0
    disk_microusd_per_gb_month: int = 0
    public_ip_microusd_per_hour: int = 0


class TermsUnreadable(Exception):
    """The folder's terms are damaged; prices and bills of its machines cannot be told any more."""


def read_terms(folder: Path) -> CloudTerms | None:
    """The terms of the cloud in `folder`; None before its first start.

    Raises TermsUnreadable.
    """
    path = folder / _TERMS_FILE
    try:
        found = json.loads(path.read_text("utf-8"))
        return CloudTerms(
            epoch_us=int(found["epoch_us"]),
            market_offset_seconds=int(found["market_offset_seconds"]),
            market_speed=Fraction(found["market_speed"]),
            billing_speed=Fraction(found["billing_speed"]),
            **{name: int(found.get(name, 0)) for name in _ATTACHED},
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TermsUnreadable(
            f"{path} is damaged ({error}): it holds what the local cloud's bills rest on. Put it "
            f"back from a copy, or remove the folder {folder}, and with it the record of its "
            "machines"
        ) from error


def settle_terms(folder: Path, settings: LocalSettings, now_us: int) -> CloudTerms:
    """The folder's terms, written now from `settings` when it has none."""
    known = read_terms(folder)
    if known is not None:
        return known
    # Through the decimal text, so that 0.1 means a tenth and both bills use the same fraction.
    terms = CloudTerms(
        now_us,
        settings.market_offset_seconds,
        Fraction(str(settings.market_speed)),
        Fraction(str(settings.billing_speed)),
        **{name: getattr(settings, name) for name in _ATTACHED},
    )
    text = json.dumps(
        {
            "epoch_us": terms.epoch_us,
            "market_offset_seconds": terms.market_offset_seconds,
            "market_speed": str(terms.market_speed),
            "billing_speed": str(terms.billing_speed),
            **{name: getattr(terms, name) for name in _ATTACHED},
        }
    )
    replace_durably(folder / _TERMS_FILE, text + os.linesep)
    return terms
