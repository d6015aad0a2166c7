"""The table of a job's machines: what each is doing, what it costs, how long it has left.

Not here: their lanes over time (`time_chart`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.domain.deployment.disk_full import DISK_FULL_SHORT, free_bytes_when_full
from app.domain.lifecycle.entities import Contact, Instance
from app.domain.lifecycle.instance import (
    LIVE_INSTANCE_STATES,
    TERMINAL_INSTANCE_STATES,
    InstanceState,
)
from app.domain.wording.machine_words import ended_words, machine_words
from app.storage.money.cost_figures import InstanceCost, JobCost
from app.storage.reports.job_facts import JobFacts
from app.storage.reports.page_read_models import JobTimeline, MachineLane
from app.web import formats
from app.web.charts.lane_pieces import lane_price


@dataclass(frozen=True)
class MachineRow:
    """One line of the table of machines; `countdown` is until the cloud takes it.

    microusd_per_hour: what it costs now; None for one that is gone, or has no price yet.
    """

    label: str
    provider_id: str
    instance: Instance
    live: bool
    microusd_per_hour: int | None
    doing: str
    step: int | None
    countdown: str
    booked_microusd: int | None
    waived_microusd: int


def machine_rows(
    facts: JobFacts, timeline: JobTimeline, cost: JobCost | None, now: datetime
) -> tuple[MachineRow, ...]:
    """Living machines first, then those that are gone, each in the order of their labels."""
    contacts = {one.instance.id: one.contact for one in facts.machines}
    prices = {one.instance.id: one.price_microusd_per_hour for one in facts.machines}
    costs = {} if cost is None else {one.instance_id: one for one in cost.instances}
    rows = [
        _machine(
            lane, contacts.get(lane.instance.id), prices.get(lane.instance.id),
            costs.get(lane.instance.id), now,
        )
        for lane in timeline.lanes
    ]  # fmt: skip
    return tuple(sorted(rows, key=lambda row: not row.live))


def _machine(
    lane: MachineLane,
    contact: Contact | None,
    price: int | None,
    cost: InstanceCost | None,
    now: datetime,
) -> MachineRow:
    machine = lane.instance
    countdown = ""
    if machine.notice_deadline_at is not None and machine.state in LIVE_INSTANCE_STATES:
        left = (machine.notice_deadline_at - now).total_seconds()
        countdown = (
            f"interrupted in {formats.brief(left)}" if left >= 1 else "interrupted any moment"
        )
    live = machine.state not in TERMINAL_INSTANCE_STATES
    newest = price if price is not None else lane_price(lane)
    return MachineRow(
        label=lane.label or "…",
        provider_id=machine.provider_instance_id or "",
        instance=machine,
        live=live,
        microusd_per_hour=newest if live else None,
        doing=_doing(machine, contact, now),
        step=None if contact is None else contact.step or None,
        countdown=countdown,
        booked_microusd=None if cost is None else cost.booked_microusd,
        waived_microusd=0 if cost is None else cost.waived_microusd,
    )


def _doing(machine: Instance, contact: Contact | None, now: datetime) -> str:
    if machine.state is InstanceState.LAUNCH_FAILED:
        return machine_words(machine.state, None)
    if machine.ended_at is not None or machine.state is InstanceState.TERMINATED:
        gone = formats.since(machine.ended_at, now) if machine.ended_at is not None else ""
        return f"gone {gone}, ended by {ended_words(machine.ended_by)}"
    if machine.unreachable_at is not None:
        return f"no report for {formats.brief((now - machine.unreachable_at).total_seconds())}"
    if contact is not None:
        doing = machine_words(machine.state, contact.phase)
        full = free_bytes_when_full(contact.metrics)
        return doing if full is None else f"{doing}, {DISK_FULL_SHORT} ({full:,} bytes free)"
    return machine_words(machine.state, None)
