"""`lowtide estimate`: what a job would cost and when it would end, before it is submitted.

Also here: the lines of it that a submission shows. Not here: the figures, which the api works out
(`app.domain.estimate.job_estimate`), or the pools that would be taken (`submission_plan`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_view import hazard_head, price_columns
from app.cli.client.terminal import Column, Terminal
from app.cli.jobs.spec_edits import SpecEdits, read_draft
from app.domain.units.durations import format_duration
from app.domain.units.percent import change, percent_down
from app.domain.wording.machine_words import billing_speed_words

if TYPE_CHECKING:
    from app.domain.spec.job_spec import JobSpec

_MARKETS: Final = {"auto": "spot, on-demand in time", "spot": "spot only", "on_demand": "on-demand"}
_BAR_CELLS: Final = 30
_WAITS_NOTE: Final = (
    "finish P90: while the deadline is far, Lowtide waits for cheaper machines, so that the job "
    "may end later than in the simulated runs, and still in time. Replays of recorded markets say "
    "how much later."
)
_POOL: Final = Column("POOL ALONE", lambda row: wording.pool(row["pool"]))
_FIGURES: Final = (
    Column("EMPTY", lambda row: _chance(row["empty_chance"]), True),
    Column("COST MEAN", lambda row: wording.money(row["expected_microusd"]), True),
    Column("FINISH MEAN", lambda row: format_duration(row["expected_seconds"]), True),
    Column("KNOWN", lambda row: format_duration(3_600 * row["lived_hours"]), True),
    Column("SPEED", lambda row: f"{row['speed']:.2f} x, {row['speed_source'].split()[0]}"),
)
_BORNE_COLUMNS: Final = (
    Column("NAME", lambda row: row["job_name"]),
    Column("COST", lambda row: wording.money(row["cost_microusd"]), True),
    Column("COST P50", lambda row: wording.money(row["cost_p50_microusd"]), True),
    Column("COST P90", lambda row: wording.money(row["cost_p90_microusd"]), True),
    Column("TOOK", lambda row: format_duration(row["seconds"]), True),
    Column("FINISH P50", lambda row: _finish(row["finish_p50_seconds"]), True),
    Column("FINISH P90", lambda row: _finish(row["finish_p90_seconds"]), True),
)


Gpu = Annotated[
    str | None, typer.Option(metavar="GPU", help="Like A100:80GB:8; or several, with commas.")
]
Nodes = Annotated[
    str | None, typer.Option(metavar="N|N..M", help="Number of machines, or a range: 2..4.")
]
Infra = Annotated[
    str | None, typer.Option(metavar="PLACES", help="Where to rent: aws,gcp/us-central1.")
]
Deadline = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Finish within 36h, or by a time.")
]
Budget = Annotated[str | None, typer.Option(metavar="USD", help="Dollars that the job may cost.")]


@api_command(
    "lowtide estimate job.yaml",
    "lowtide estimate job.yaml --deadline 36h --budget 200",
    "lowtide estimate job.yaml --gpu A100:8 --set estimate.hours=12 --json",
    "lowtide estimate --calibration",
)
def estimate(
    invocation: Invocation,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A job spec, or - for stdin.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a field: estimate.hours=12; repeatable."
        ),
    ] = None,
    gpu: Gpu = None,
    nodes: Nodes = None,
    infra: Infra = None,
    deadline: Deadline = None,
    budget: Budget = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed, to repeat a result.")] = 0,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="How accurate the estimates have been so far.")
    ] = False,
) -> None:
    """Show cost and finish (P50, P90) for each way to rent.

    Also what other deadlines would cost. Simulates a thousand runs with current prices and recent
    interruptions; rents nothing.
    """
    terminal = invocation.terminal
    if calibration:
        _show_calibration(terminal, invocation.api.get("/estimates/calibration"))
        return
    if file is None:
        raise CommandFailed("name the file with the job spec, as in: lowtide estimate job.yaml")
    edits = SpecEdits(
        settings=setting or (),
        gpu=gpu,
        nodes=nodes,
        infra=infra,
        deadline=deadline,
        budget=budget,
        project=invocation.project,
    )
    found = asked_for(invocation, read_draft(file, edits).spec(), seed)
    if terminal.as_json:
        terminal.json(found)
    else:
        print_estimate(terminal, found)


def asked_for(
    invocation: Invocation, spec: JobSpec, seed: int = 0, *, accept_risk: bool = False
) -> dict[str, Any]:
    """The api's answer about a spec; accept_risk: a refusal then does not advise to accept it."""
    body: dict[str, Any] = {**spec.to_written_json()}
    body.pop("workdir", None)  # it is not uploaded yet, and tells nothing of the cost
    accepted = "&accept_risk=true" if accept_risk else ""
    path = f"/estimates?seed={seed}{accepted}"
    if spec.project is not None:
        invocation.api.enter_project(spec.project)
    found: dict[str, Any] = invocation.api.post(path, body, only_asks=True)
    return found


def print_estimate(terminal: Terminal, found: dict[str, Any]) -> None:
    """All of it, for people."""
    if not found["estimates"]:
        terminal.line(
            "No pool fits this job now: it would wait. `lowtide submit --dry-run` says why."
        )
        return
    work = format_duration(found["work_seconds"])
    terminal.line(f"work: {work}, by {found['work_source']}")
    if found["scaling"] is not None:
        terminal.line(f"gang: {found['scaling']}")
    terminal.table(_columns(), found["estimates"])
    if assumed := on_demand_assumed(found):
        terminal.line(f"every figure {assumed}")
    if any(map(_counts_waits, found["estimates"])):
        terminal.line(_WAITS_NOTE)
    if found["earliest_seconds"] is not None:
        reserve = found.get("acquire_seconds", 0)
        if reserve:
            terminal.line(
                f"reserve: {format_duration(reserve)} to get on-demand machines count in DEADLINE "
                "MET and in the shortest deadline, not in FINISH"
            )
        terminal.line(_shortest_deadline(found["earliest_seconds"], reserve))
    if found["risk"] is not None:
        terminal.line(f"risk: {found['risk']}")
    terminal.line()
    pools = [*found["pools"], *([found["on_demand"]] if found["on_demand"] else [])]
    count = found.get("node_count", 1)
    prices = price_columns(count, lambda row: row["microusd_per_hour"] // count)
    terminal.table((_POOL, *prices, *_hazard_columns(count), *_FIGURES), pools)
    if count > 1:
        terminal.line(
            "HAZARD/H EACH is that of one machine over its life, as in `lowtide explain`; "
            f"JOB INTERRUPTED/H is that of the job, which any of its {count} machines interrupts. "
            "It is more than the sum, as each interruption leaves young machines, which are taken "
            "most often."
        )
    speed = max((row.get("billing_speed", 1) for row in pools), default=1)
    if faster := billing_speed_words(speed):
        terminal.line(faster)
    curve = found["curve"]
    if curve:
        terminal.line()
        terminal.line(
            "what a deadline costs (P50 ▓, P90 ░), by other simulated runs than the table: "
            "figures may differ a little"
        )
        most = max(point["cost_p90_microusd"] for point in curve) or 1
        for point in curve:
            terminal.line(_curve_line(point, most))


def on_demand_assumed(found: dict[str, Any]) -> str:
    """What every simulated run assumed where only on-demand machines fit; else ""."""
    row = found["on_demand"]
    if found["pools"] or row is None:
        return ""
    count = found.get("node_count", 1)
    machines = "1 on-demand machine is" if count == 1 else f"{count:,} on-demand machines are"
    where = wording.place(row["pool"]).rsplit(" ", 1)[0]
    return f"assumes that {machines} available in {where}; the cloud does not say how many it has"


def _shortest_deadline(seconds: float, acquire_seconds: float) -> str:
    """No run's finish: it counts a reserve that most runs do not need."""
    reserve = format_duration(acquire_seconds)
    counted = f"; {reserve} of it are reserved to get them" if acquire_seconds else ""
    return f"shortest deadline that on-demand machines keep: {format_duration(seconds)}{counted}"


def _counts_waits(row: dict[str, Any]) -> bool:
    """Whether the P90 of the finish was moved towards the deadline."""
    return bool(row["finish_p90_seconds"] != row["simulated_finish_p90_seconds"])


def _show_calibration(terminal: Terminal, found: dict[str, Any]) -> None:
    if terminal.as_json:
        terminal.json(found)
        return
    if not found["jobs"]:
        terminal.line("No job with an estimate has succeeded with a final bill yet.")
        return
    terminal.table(_BORNE_COLUMNS, found["items"])
    for word, judged in (("cost", "jobs"), ("finish", "finish_jobs")):
        under, error = found[f"{word}_under_p90"], found[f"{word}_error"]
        if under is not None and error is not None:
            share, jobs = wording.percent(under), wording.plural(found[judged], "job")
            terminal.line(
                f"{word}: {share} of {jobs} stayed under P90 (90 % is right); "
                f"median {change(error)} against P50"
            )


def _columns() -> tuple[Column, ...]:
    return (
        Column("MARKET", lambda row: _MARKETS.get(row["market"], row["market"])),
        Column("COST P50", lambda row: wording.money(row["cost_p50_microusd"]), True),
        Column("P90", lambda row: wording.money(row["cost_p90_microusd"]), True),
        Column("FINISH P50", lambda row: _finish(row["finish_p50_seconds"]), True),
        Column("P90", lambda row: _finish(row["finish_p90_seconds"]), True),
        Column("P90 SIMULATED", lambda row: _finish(row["simulated_finish_p90_seconds"]), True),
        Column("INTERRUPTED", lambda row: f"{row['interruptions_mean']:.1f}", True),
        Column("DEADLINE MET", lambda row: _chance(row["deadline_chance"]), True),
        Column("IN BUDGET", lambda row: _chance(row["budget_chance"]), True),
    )


def _hazard_columns(count: int) -> tuple[Column, ...]:
    """Interruptions per hour: of each machine, as all tables have it; of several, also the job's,
    which any of them interrupts.
    """
    each = Column(hazard_head(count), lambda row: _hazard(row.get("hazard_per_hour")), True)
    if count == 1:
        return (each,)
    of_job = Column("JOB INTERRUPTED/H", lambda row: _hazard(row["interruptions_per_hour"]), True)
    return each, of_job


def _curve_line(point: dict[str, Any], most: int) -> str:
    p50 = round(_BAR_CELLS * point["cost_p50_microusd"] / most)
    p90 = round(_BAR_CELLS * point["cost_p90_microusd"] / most)
    bar = ("▓" * p50 + "░" * (p90 - p50)).ljust(_BAR_CELLS)
    deadline = format_duration(point["deadline_seconds"]).rjust(8)
    cost = f"{wording.money(point['cost_p50_microusd'])} … "
    return f"  {deadline}  {bar}  {cost}{wording.money(point['cost_p90_microusd'])}"


def _hazard(per_hour: float | None) -> str:
    return wording.NOTHING if per_hour is None else f"{per_hour:.2f}"


def _finish(seconds: float | None) -> str:
    return "never" if seconds is None else format_duration(seconds)


def _chance(share: float | None) -> str:
    return wording.NOTHING if share is None else percent_down(share)
