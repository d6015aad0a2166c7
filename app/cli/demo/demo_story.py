"""The demo's lines: what happened, told from the api's own answers.

Lives here: documents in, lines out; nothing is claimed that no document says. Not here: running
the demo (`demo`) or judging it (`demo_checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from app.cli.client.wording import (
    NOTHING,
    against_on_demand,
    bar,
    hourly,
    instant,
    place,
    plural,
    spread,
)
from app.cli.demo.demo_losses import LossComparison, StepLossPair
from app.domain.units.apportionment import apportion, divide_half_even
from app.domain.units.durations import format_duration, measured_duration
from app.domain.units.money import format_usd
from app.domain.units.percent import saved_size
from app.domain.wording.checkpoint_words import where_it_went_on

Document = Mapping[str, Any]

_BAR_CELLS: Final = 24
_PAIRS_SHOWN: Final = 5
_DIFFERENT_SHOWN: Final = 5
_ACTIVITIES: Final = (
    "useful", "boot", "setup", "idle", "gang_wait", "restore", "checkpoint", "drain", "rework",
    "minimum_charge", "storage", "egress",
)  # fmt: skip
_TENTH_OF_A_CENT: Final = 1_000


def intro(url: str, job: str, key_file: str, billing_speed: int) -> list[str]:
    """What this is, where to look, what is real and what is not."""
    return [
        "Lowtide demo: a 2-machine training job on a replayed AWS spot market.",
        f"Watch: {url}/jobs/{job}   (sign in with the key in {key_file})",
        "Real: Postgres, queue, agents, PyTorch DDP, checkpoints. Simulated: the cloud. "
        f"Clock: 1s = {format_duration(billing_speed)} of billing.",
    ]


def plan(job: Document, offers: Iterable[Document], budget: str, deadline: str) -> list[str]:
    """The job, and the pools that were considered: the cheapest fit, the next, on-demand."""
    nodes, trainer = job["node_count"], job["spec"]["trainer"]
    title = (
        f"{job['name']} · {trainer['model']} on handwritten digits · {nodes} × V100 · "
        f"deadline {deadline} · budget {budget}"
    )
    lines = ["", f"plan    {title}"]
    lines.append(
        f"        {'pool':<30}{'$/h':>7}  {'each':>10}  {'vs on-demand':>12}  "
        f"{'hazard/h each':>13}   decision"
    )
    for offer, decision in _chosen(list(offers)):
        price, full = offer["price_microusd_per_hour"], offer["on_demand_microusd_per_hour"]
        name = place(offer["pool"])
        hazard = offer["hazard_per_hour"]
        risk = NOTHING if hazard is None else f"{hazard:.2f}"
        each = f"{nodes} × {hourly(price)}"
        prices = f"{hourly(nodes * price):>7}  {each:>10}  {against_on_demand(price, full):>12}"
        figures = f"{prices}  {risk:>13}"
        lines.append(f"        {name:<30}{figures}   {decision}")
    return lines


def _chosen(offers: list[Document]) -> list[tuple[Document, str]]:
    """Three telling rows: the pool taken, the next one that fits, and on-demand beside it."""
    fitting = [offer for offer in offers if offer["fits"]]
    rows: list[tuple[Document, str]] = []
    if fitting:
        why = fitting[0]["why"].removeprefix("fits, ").partition(";")[0]
        rows.append((fitting[0], f"✓ cheapest, {why}"))
    dearer = [o for o in fitting[1:] if _zone(o["pool"]) != _zone(fitting[0]["pool"])]
    if dearer:
        rows.append((dearer[0], f"  fits, {_against(dearer[0], fitting[0])}"))
    on_demand = [o for o in offers if o["pool"].endswith("/on_demand")]
    beside = [o for o in on_demand if fitting and _zone(o["pool"]) == _zone(fitting[0]["pool"])]
    if beside or on_demand:
        rows.append(((beside or on_demand)[0], "  not needed while spot is safe"))
    return rows


def _against(offer: Document, taken: Document) -> str:
    """How a pool's price compares with that of the pool taken."""
    difference = offer["price_microusd_per_hour"] - taken["price_microusd_per_hour"]
    return "same price" if difference == 0 else "more expensive" if difference > 0 else "cheaper"


def progress(at: str, job: Document) -> str:
    """One line: bar, step, loss, throughput, money."""
    now = job["progress"]
    total = now["total_steps"] or 0
    share = now["step"] / total if total else None
    loss = "" if now["loss"] is None else f"   loss {now['loss']:.2f}"
    rate = now["samples_per_second"]
    speed = "" if rate is None else f"   {rate:,.0f} img/s"
    spent = format_usd(job["money"]["spent_microusd"], 3)
    steps = f"step {now['step']:,}/{total:,}"
    return f"{at}    {bar(share, _BAR_CELLS)}  {steps}{loss}{speed}   {spent} provisional"


def interruption(
    events: Iterable[Document],
    noticed_at: datetime,
    taken: str,
    kept: Iterable[str],
    killed_at: datetime | None,
) -> list[str]:
    """What followed the notice, each line with its distance from it, in the order it happened."""
    found: list[tuple[datetime, str]] = []
    stopped: list[tuple[datetime, Any]] = []
    for event in events:
        at = instant(event["at"])
        if at is None or at < noticed_at:
            continue
        kind, data = event["kind"], event["data"]
        if kind == "drain_ordered_interruption" and not any("asked" in t for _, t in found):
            found.append((at, "every rank is asked to stop after its current step"))
        elif kind == "replacement_requested":
            names = ", ".join(sorted(kept))
            found.append((at, f"replacement requested in {data['zone']} · {names} kept"))
        elif kind == "checkpoint_committed" and stopped == []:
            found.append((at, f"checkpoint {data['step']:,} saved and verified"))
        elif kind == "member_drained":
            stopped.append((at, data.get("step")))
    if stopped:
        step = stopped[0][1]
        after = "" if step is None else f" after step {step:,}"
        found.append((stopped[-1][0], f"both ranks stopped{after}"))
    if killed_at is not None:
        found.append((killed_at, f"{taken} killed by its cloud"))
    found.sort(key=lambda item: item[0])
    lines = []
    for index, (at, text) in enumerate(found):
        corner = "└" if index == len(found) - 1 else "├"
        lines.append(
            f"        {corner} +{measured_duration((at - noticed_at).total_seconds())}  {text}"
        )
    return lines


def resumed(at: str, joined: str, step: int | None, redone: int, without: int | None) -> str:
    """The next attempt trains: where it went on, and what was saved by saving at the notice.

    without: steps done again from the last periodic save, None where nothing was saved before.
    """
    aside = "" if without is None else f" (without the save at the notice: {without:,})"
    return f"{at}  ↺ {joined} joined · {where_it_went_on(step, 0)} · {redone:,} steps redone{aside}"


def bill(cost: Document) -> list[str]:
    """Each machine, where the money went, and the two figures people compare.

    The machines, less what was waived, add up to the total as printed, and so do the activities.
    """
    statement = cost["statement"]
    paid = tenths_of_a_cent({one["label"]: one["booked_microusd"] for one in cost["instances"]})
    machines = []
    for machine in cost["instances"]:
        label = machine["label"]
        waived = _TENTH_OF_A_CENT * divide_half_even(machine["waived_microusd"], _TENTH_OF_A_CENT)
        text = f"{label} {format_usd(paid[label] + waived, 3)}"
        if waived:
            text += f", waived -{format_usd(waived, 3)} (its cloud ended it in its first hour)"
        machines.append(text)
    spent = statement["by_activity"]
    rounded = tenths_of_a_cent(spent)
    parts = [
        # What is not nothing never looks like it.
        f"{name.replace('_', ' ')} {format_usd(rounded[name], 3) if rounded[name] else '<$0.001'}"
        for name in _ACTIVITIES
        if spent.get(name)
    ]
    lines = ["bill    " + "  ".join(machines), "        where it went: " + " ".join(parts)]
    total = format_usd(statement["total_microusd"], 3)
    compared, saved = statement["on_demand_comparison_microusd"], statement["net_saved_ratio"]
    if compared is not None and saved is not None:
        lines.append(
            f"        total {total}   on-demand, same work, no interruption: "
            f"{format_usd(compared)}  →  {_saving(float(saved))}"
        )
    else:
        lines.append(f"        total {total}")
    return lines


def tenths_of_a_cent(amounts: Mapping[str, int]) -> dict[str, int]:
    """Micro-dollars in whole tenths of a cent, which add up to the sum rounded to these."""
    whole = divide_half_even(sum(amounts.values()), _TENTH_OF_A_CENT)
    shares = apportion(whole, amounts).items()
    return {name: _TENTH_OF_A_CENT * share for name, share in shares}


def _saving(ratio: float) -> str:
    share = saved_size(ratio)
    return f"{share} saved, net" if ratio >= 0 else f"{share} more than on-demand"


def proof(found: LossComparison) -> list[str]:
    """What was compared, a few losses in full precision, and the verdict."""
    after, before = found.after_resume, found.before_resume
    lines = [
        f"        losses as the trainer wrote them (64-bit), at {len(found.pairs):,} of "
        f"{found.total_steps:,} steps:",
        f"        {'step':>8}  {'interrupted':<24}uninterrupted",
    ]
    shown = [*before[-1:], *spread(after, _PAIRS_SHOWN)]
    shown += [pair for pair in found.different[:_DIFFERENT_SHOWN] if pair not in shown]
    for pair in shown:
        sign = "=" if pair.is_equal else "≠"
        lines.append(
            f"        {pair.step:>8,}  {pair.interrupted!r:<24}{pair.uninterrupted!r:<24}{sign}"
        )
    lines.append("        " + _verdict("from the resume on", after))
    lines.append("        " + _verdict("before it", before))
    if found.missing:
        lines.append(f"        {plural(len(found.missing), 'step')} after the resume not found ✗")
    return lines


def _verdict(which: str, pairs: Sequence[StepLossPair]) -> str:
    if not pairs:
        return f"{which}: no step was compared"
    wrong = sum(1 for pair in pairs if not pair.is_equal)
    told = f"{wrong:,} differ ✗" if wrong else "equal bit for bit ✓"
    steps = f"steps {pairs[0].step:,} to {pairs[-1].step:,}"
    return f"{which}: {len(pairs):,} losses compared, {steps}: {told}"


def _zone(key: str) -> str:
    return key.split("/")[2]
