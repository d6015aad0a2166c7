"""What a trial launch would rent, what it may cost at most, and the job that it is submitted as.

Pure, but for reading the script that the job runs. Not here: submitting it (`launch_check`).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.cli.client import wording
from app.cli.client.failures import CommandFailed
from app.cli.jobs.submission_plan import gpu_text, make_plan, plan_sentences
from app.domain.units.errors import SpecError
from app.domain.units.instants import clock_time

if TYPE_CHECKING:
    from app.domain.market.offer import Offer
    from app.domain.placement.placement import RankedOffer
    from app.domain.spec.job_spec import JobSpec

TIMEOUT: Final = "30m"
GRACE_SECONDS: Final = 7_200
"""The job's deadline is so long after `--timeout`: the control plane ends what nobody follows.

Its budget ends it sooner. A nearer one would be refused: the control plane keeps half an hour for
going to on-demand machines.
"""

LABELS: Final = {"lowtide": "doctor"}
SCRIPT: Final = "one_step.py"
SAYS: Final = "doctor: "
"""How the lines begin that the script writes for people."""

_USUAL_SECONDS: Final = 600
"""How long such a machine usually runs: it boots, installs the agent, and ends."""
# What a claim must afford, and what is reserved for a drain and for a late word of the end.
_BEYOND_SECONDS: Final = 1_800
_WAIT_GRACE_SECONDS: Final = 60
# The cheapest may be full: what costs hardly more is tried as well.
_NEARLY_AS_CHEAP: Final = 1.25
_CENT_MICROUSD: Final = 10_000
_LEAST_MICROUSD: Final = 100_000
_WORK_HOURS: Final = 0.01
_SCRIPT_MODULE: Final = "trainer.training.one_step"
_STAND_IN: Final = "sha256:" + "0" * 64

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """What the person asked for. timeout_seconds: from the submission to the machine's end."""

    gpu: str | None = None
    region: str | None = None
    infra: str | None = None
    nodes: int = 1
    on_demand: bool = False
    timeout_seconds: int = 1_800


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The spec without its working folder, the cheapest pool, and the bounds in money.

    pools: those that may be asked now, by their keys.
    """

    fields: Mapping[str, Any]
    offer: Offer
    pools: frozenset[str]
    usual_microusd: int
    most_microusd: int

    def spec(self, workdir: str) -> dict[str, Any]:
        """The job as it is submitted."""
        return {**self.fields, "workdir": workdir}

    def sentences(self) -> list[str]:
        """What is rented, and its price."""
        nodes = int(self.fields["nodes"])
        each = f"${wording.hourly(self.offer.price_microusd_per_hour)} an hour"
        clock = self.offer.billing_speed
        faster = f" Its clock runs {clock} times as fast." if clock > 1 else ""
        return [
            f"{wording.plural(nodes, 'machine')}, the cheapest that fits: "
            f"{wording.pool(self.offer.pool.key)}, {gpu_text(self.offer.hardware)}, {each}"
            f"{' each' if nodes > 1 else ''}.",
            f"About {wording.money(self.usual_microusd)} for ten minutes; at most "
            f"{wording.money(self.most_microusd)}, the job's budget.{faster}",
        ]

    def to_json(self) -> dict[str, Any]:
        """For scripts; money in micro-dollars."""
        return {
            "pool": self.offer.pool.key,
            "machines": self.fields["nodes"],
            "microusd_per_hour": self.offer.price_microusd_per_hour,
            "usual_microusd": self.usual_microusd,
            "most_microusd": self.most_microusd,
        }


def make_launch_plan(
    wish: TrialRequest,
    name: str,
    offers: Sequence[dict[str, Any]],
    now: datetime,
) -> LaunchPlan:
    """The plan over the api's offers. Raises CommandFailed where nothing can be rented now."""
    if not offers:
        raise CommandFailed(
            "no prices are known yet: the worker reads them when it starts; `lowtide doctor` "
            "says what is missing"
        )
    fields = _fields(wish, name, offers)
    plan = make_plan(_parsed(fields), offers, now)
    fitting = sorted(
        (item.offer for item in plan.considered if item.fits),
        key=lambda one: (one.price_microusd_per_hour, one.pool),
    )
    if not fitting:
        rests = _resting(plan.considered, offers, now)
        raise CommandFailed(f"{plan_sentences(plan)[0]}{rests} `lowtide offers` lists all pools")
    # A placement weighs the progress that a dollar buys; one step on the cheapest is enough here.
    near = fitting[0].price_microusd_per_hour * _NEARLY_AS_CHEAP
    tried = [one for one in fitting if one.price_microusd_per_hour <= near]
    fields["instance_types"] = sorted({one.pool.instance_type for one in tried})
    second = fitting[0].price_microusd_per_hour * wish.nodes * fitting[0].billing_speed / 3_600
    most = second * _NEARLY_AS_CHEAP * (wish.timeout_seconds + _BEYOND_SECONDS)
    most_microusd = max(_LEAST_MICROUSD, math.ceil(most / _CENT_MICROUSD) * _CENT_MICROUSD)
    budget = f"{most_microusd / 1_000_000:.2f}"
    return LaunchPlan(
        {**fields, "budget_usd": budget},
        fitting[0],
        frozenset(offer.pool.key for offer in tried),
        round(second * min(_USUAL_SECONDS, wish.timeout_seconds)),
        most_microusd,
    )


def _resting(considered: Iterable[RankedOffer], offers: Iterable[Row], now: datetime) -> str:
    """Until when pools rest that would fit otherwise; "" where none does."""
    able = {item.offer.pool.key for item in considered if item.verdict.passes_by_itself}
    rests = [
        (until, str(row["cool_reason"] or "refused"))
        for row in offers
        if row["pool"] in able
        and (until := wording.instant(row["cool_until_at"])) is not None
        and until > now
    ]
    if not rests:
        return ""
    until, reason = min(rests)
    return (
        f" A pool cools down until {clock_time(until)} after a refusal ({reason}); try again then."
    )


def write_script(folder: Path) -> None:
    """Put the job's script into its working folder."""
    found = importlib.util.find_spec(_SCRIPT_MODULE)
    assert found is not None, "it is part of this package"
    assert found.origin is not None
    (folder / SCRIPT).write_text(Path(found.origin).read_text("utf-8"), "utf-8")


def _fields(wish: TrialRequest, name: str, offers: Iterable[Row]) -> dict[str, Any]:
    limit = f"{wish.timeout_seconds}s"
    fields: dict[str, Any] = {
        "name": name,
        "run": f"exec python3 {SCRIPT}",
        "nodes": wish.nodes,
        "market": "on_demand" if wish.on_demand else "spot",
        # Whoever submitted it may be gone: the control plane ends it by itself.
        "deadline": f"{wish.timeout_seconds + GRACE_SECONDS}s",
        "on_deadline": "stop",
        "max_wait": f"{wish.timeout_seconds + _WAIT_GRACE_SECONDS}s",
        "max_duration": limit,
        "estimate": {"hours": _WORK_HOURS, "nodes": wish.nodes},
        "retries": 0,
        "labels": dict(LABELS),
    }
    places = _places(wish, offers)
    if places:
        fields["infra"] = places
    if wish.gpu is not None:
        fields["resources"] = {"gpu": wish.gpu.split(",")}
    return fields


def _parsed(fields: dict[str, Any]) -> JobSpec:
    from app.domain.spec.job_spec import parse_spec

    try:
        return parse_spec({**fields, "workdir": _STAND_IN})
    except SpecError as error:
        raise CommandFailed.from_domain(error, "the trial job") from error


def _places(wish: TrialRequest, offers: Iterable[Row]) -> list[str]:
    """The places of --infra, narrowed to --region where that is given."""
    named = [] if wish.infra is None else [one.strip() for one in wish.infra.split(",")]
    if wish.region is None:
        return named
    if any("/" in one for one in named):
        raise CommandFailed(f"--infra {wish.infra} names a region already: leave --region out")
    having = {str(row["provider"]) for row in offers if row["region"] == wish.region}
    if named:
        having &= set(named)
    if not having:
        known = sorted({f"{row['provider']}/{row['region']}" for row in offers})
        raise CommandFailed(f"nothing is offered in {wish.region}; there are {', '.join(known)}")
    return [f"{provider}/{wish.region}" for provider in sorted(having)]
