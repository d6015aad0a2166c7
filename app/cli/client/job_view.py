"""One job in lines of text: the same words for `show`, `watch`, `submit` and `jobs`.

Pure: a job as the api describes it and the present go in, text comes out. The columns of a pool
where a job may rent are here, too: $/H and HAZARD/H mean the same in all tables. Not here: when
anything is printed or redrawn.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from app.cli.client import wording
from app.cli.client.terminal import Column, Terminal
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import BudgetKind
from app.domain.units.durations import format_duration
from app.domain.units.numbers import number_text
from app.domain.units.percent import percent_down
from app.domain.wording.machine_words import gang_words, machine_words

ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
AT_REST: Final = ENDED | {"paused"}
_BAR_CELLS: Final = 24
_METRICS_SHOWN: Final = 4
_BY_ITSELF: Final = {
    BudgetKind.PROJECT_MONTH: "It continues by itself once the project's budget of the month has "
    "money again: lowtide budget",
    BudgetKind.DEPLOYMENT_MONTH: "It continues by itself once the deployment's budget of the month "
    "has money again.",
}

Job = dict[str, Any]


def progress_line(job: Job, now: datetime) -> str:
    """One line: bar, step, loss, rate, end, money: "██░ 12 %  step 120/1000  loss 0.21 …"."""
    progress = job["progress"]
    parts = [] if job["state"] == "running" and progress["step"] else [job["state"]]
    parts += [bar(progress, _BAR_CELLS), steps(job)]
    parts += [*measured(progress), eta(progress, now), money(job["money"])]
    return "  ".join(part for part in parts if part)


def bar(progress: dict[str, Any], cells: int) -> str:
    """ "██░ 12 %"; "" before the first step, as on its page, and while the total is not known."""
    percent, step = progress["percent"], progress["step"]
    if percent is None or not (percent or step):
        return ""
    return f"{wording.bar(percent / 100, cells)} {percent_down(percent / 100)}"


def steps(job: dict[str, Any]) -> str:
    """ "step 411/1,000"; before the first one "1,000 steps to do"; "" where nothing is known."""
    total, step = job["progress"]["total_steps"], job["progress"]["step"]
    if step:
        return f"step {step:,}" + (f"/{total:,}" if total else "")
    if not total or job["state"] == "succeeded":
        return ""
    return f"no step of {total:,}" if job["state"] in ENDED else f"{total:,} steps to do"


def measured(progress: dict[str, Any]) -> list[str]:
    """The newest loss and rate, as far as they are reported."""
    parts = []
    if progress["loss"] is not None:
        parts.append(f"loss {number_text(progress['loss'])}")
    if progress["samples_per_second"] is not None:
        parts.append(f"{progress['samples_per_second']:,.0f} samples/s")
    elif progress["steps_per_second"] is not None:
        parts.append(f"{number_text(progress['steps_per_second'])} steps/s")
    return parts


def eta(progress: dict[str, Any], now: datetime) -> str:
    """ "done in 12m 5s"; "" when nothing can be said."""
    if progress["eta_at"] is None:
        return ""
    guess = " by the estimate" if progress["eta_from"] == "estimate" else ""
    return f"done {wording.ahead(progress['eta_at'], now)}{guess}"


def money(figures: dict[str, Any]) -> str:
    """ "$0.37 of $5.00, $1.836/h, $0.460 waived"."""
    spent = wording.money(figures["spent_microusd"])
    cap = figures["budget_microusd"]
    text = spent if cap is None else f"{spent} of {wording.money(cap)}"
    rate, waived = figures["microusd_per_hour"], figures.get("waived_microusd")
    text += f", ${wording.hourly(rate)}/h" if rate else ""
    return f"{text}, {wording.money(waived)} waived" if waived else text


def deadline(job: Job, now: datetime) -> str:
    """ "in 3h 20m, slack 55m", with what is known of the promise; "" without a deadline.

    Of a job that has ended: whether it was met, and by how much.
    """
    promise = job["deadline"]
    if promise is None:
        return ""
    at, ended_at = wording.instant(promise["at"]), wording.instant(job["ended_at"])
    if at is not None and ended_at is not None:
        early = (at - ended_at).total_seconds()
        if early < 0:
            return f"missed by {format_duration(-early)}"
        return f"met with {format_duration(early)} to spare" if job["state"] == "succeeded" else ""
    parts = [wording.ahead(promise["at"], now)]
    if promise["missed_at"] is not None:
        parts.append("missed")
    elif promise["unsafe_since_at"] is not None:
        parts.append(f"not safe since {wording.clock_time(promise['unsafe_since_at'])} UTC")
    elif promise["slack_seconds"] is not None:
        parts.append(f"slack {format_duration(promise['slack_seconds'])}")
    return ", ".join(parts)


def summary(job: Job, now: datetime, terminal: Terminal) -> list[tuple[str, str]]:
    """Names and values of what matters about a job; empty values are left out."""
    progress, attempts = job["progress"], job["attempts"]
    reached = [part for part in (bar(progress, _BAR_CELLS), steps(job)) if part]
    counted = f"{attempts['count']:,}, {attempts['interruptions']:,} interrupted by the cloud"
    saved = ""
    if progress["last_checkpoint_at"] is not None:
        at = wording.ago(progress["last_checkpoint_at"], now)
        # A command that counts no steps saves at step 0.
        at_step = progress["last_checkpoint_step"]
        saved = f"step {at_step:,}, {at}" if at_step else at
    labels = ", ".join(f"{name}={value}" for name, value in sorted(job["labels"].items()))
    return [
        ("id", job["id"]),
        ("project", job["project"]),
        ("state", terminal.state(job["state"]) + (f": {job['why']}" if job["why"] else "")),
        ("next look", _next_look(job, now)),
        ("where", job.get("replacing") or ""),
        ("gang", _gang(job)),
        ("progress", ", ".join(reached)),
        ("measured", "" if job["state"] in AT_REST else ", ".join(measured(progress))),
        ("metrics", metrics(progress["metrics"])),
        ("eta", eta(progress, now)),
        ("deadline", deadline(job, now)),
        ("checkpoint", saved),
        ("cost", money(job["money"])),
        ("attempts", counted if attempts["count"] else ""),
        ("labels", labels),
        ("by project", _given_by_project(job)),
        ("submitted", f"{wording.clock_time(job['submitted_at'])} UTC"),
        ("ended", f"{wording.clock_time(job['ended_at'])} UTC" if job["ended_at"] else ""),
    ]


def _given_by_project(job: Job) -> str:
    """ "budget_usd, infra (rules version 3)": fields of its spec that its author left out."""
    sources = job.get("spec_sources")
    return f"{', '.join(sorted(sources))} (rules version {job['rules_version']})" if sources else ""


def listed_reason(job: Job) -> str:
    """Why a listed job is in its state; "" for one that succeeded, of which that is told enough."""
    return "" if job["state"] == "succeeded" else job.get("why") or ""


def next_commands(job: Job) -> list[str]:
    """What to do about a job that failed or is paused, one command a line; else nothing."""
    name, state = job["name"], job["state"]
    if state == "failed":
        return [
            f"What it wrote: lowtide logs {name}",
            f"Once more, perhaps with changes: lowtide submit --from {name}",
        ]
    # The explanation of a server of the release before tells neither of them.
    budget = job.get("paused_by_budget")
    if state == "paused" and budget in _BY_ITSELF:
        return [_BY_ITSELF[BudgetKind(budget)]]
    is_for_budget = job.get("end_reason") == EndReason.BUDGET_EXHAUSTED
    if state == "paused" and is_for_budget and budget in (None, BudgetKind.JOB):
        return [f"Continue with a larger budget: lowtide resume {name} --budget +50"]
    return [f"Continue: lowtide resume {name}"] if state == "paused" else []


def _gang(job: Job) -> str:
    """ "3 of 2–4 machines" for an elastic job; "" where the number never changes."""
    nodes = job["nodes"]
    return gang_words(job["node_count"], nodes) if isinstance(nodes, str) else ""


def metrics(values: dict[str, Any]) -> str:
    """The first few metrics that have no field of their own."""
    others = [name for name in sorted(values) if name not in ("loss", "samples_per_second")]
    return ", ".join(f"{name} {number_text(values[name])}" for name in others[:_METRICS_SHOWN])


def doing(row: dict[str, Any]) -> str:
    """What a machine does, as its page says it; of another version's states, their names."""
    try:
        return machine_words(InstanceState(row["state"]), row["phase"])
    except ValueError:
        return str(row["state"])


def machine_note(row: dict[str, Any]) -> str:
    """What is out of the ordinary about a machine; "" when nothing is."""
    notice = row.get("notice")
    if notice is not None:
        left = notice["seconds_left"]
        return "notice" if left is None else f"notice: interrupted in {format_duration(left)}"
    if row["unreachable_at"] is not None:
        return f"no report since {wording.clock_time(row['unreachable_at'])} UTC"
    reason = row["release_reason"]
    if row.get("disk_full") and not reason:
        return "disk full"
    return f"being released: {reason}" if reason else ""


def _next_look(job: Job, now: datetime) -> str:
    at = wording.instant(job["next_look_at"])
    if at is None:
        return ""
    return "now" if (at - now).total_seconds() < 1 else wording.ahead(job["next_look_at"], now)


MACHINE_COLUMNS: Final = (
    Column("MACHINE", lambda row: row.get("name") or wording.NOTHING),
    Column("POOL", lambda row: wording.pool(row["pool"])),
    Column("DOING", doing),
    Column("STEP", lambda row: f"{row['step']:,}" if row["step"] else wording.NOTHING, True),
    Column("$/H", lambda row: wording.hourly(row["microusd_per_hour"]), True),
    Column("NOTE", machine_note),
)


def price_columns(count: int, one_machine: Callable[[Any], int]) -> tuple[Column, ...]:
    """$/H is the price of all `count` machines; of several, EACH is that of one: "4 × 1.200".

    one_machine: micro-dollars per hour of one machine, of a row.
    """
    together = Column("$/H", lambda row: wording.hourly(count * one_machine(row)), True)
    if count == 1:
        return (together,)
    each = Column("EACH", lambda row: f"{count} × {wording.hourly(one_machine(row))}", True)
    return together, each


def hazard_head(count: int) -> str:
    """The head of a column of interruptions per hour: of several machines, those of each."""
    return "HAZARD/H" if count == 1 else "HAZARD/H EACH"
