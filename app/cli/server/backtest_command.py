"""`lowtide backtest`: placement policies over recorded prices and availability.

Here: options, progress, tables and files. Not here: the replay (`app.backtest`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.backtest.start_ups import NO_START_UPS, StartUps
from app.cli.client.failures import CommandFailed
from app.cli.client.local_command import Quiet, ending_well
from app.cli.client.progress_bar import progress_bar
from app.cli.client.terminal import Column, Terminal
from app.domain.units.percent import percent_fine

if TYPE_CHECKING:
    from app.backtest.cells import PlanOverrides
    from app.backtest.run_cells import CellResults, Conditions

LEFT_OUT: Final = 1
WARM_HOURS: Final = 120.0
"""How much of the recording before a start `--history warm` shows."""

_MOST: Final = {"checkpoint_hours": 10_000.0, "egress_usd": 1e6, "transfer_hours": 24.0}
"""The largest figures of options whose least is 0; more is a slip of the pen."""

Folder = Annotated[
    Path, typer.Option("--traces", metavar="DIR", help="Folder with recordings (.npz).")
]
Groups = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Which jobs to replay. [default: DIR/groups.json]"),
]
SettingName = Annotated[
    str,
    typer.Option(
        "--setting",
        metavar="one-zone|zones",
        help="one-zone: each pool alone; zones: a group's pools together.",
    ),
]
InformationName = Annotated[
    str,
    typer.Option(
        "--information",
        metavar="visible|attempts",
        help="visible: all pools are seen; attempts: only pools tried.",
    ),
]
PolicyNames = Annotated[
    str, typer.Option("--policies", metavar="NAME,…|all", help="NAME,… or all.")
]
HistoryName = Annotated[
    str,
    typer.Option(
        "--history",
        metavar="warm|cold",
        help="warm: policies see up to 120 h before the start; cold: nothing.",
    ),
]
Processes = Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Number of processes.")]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="OUT", help="Write one row per job and policy, and a picture (.svg)."
    ),
]
Slacks = Annotated[
    str | None,
    typer.Option("--slack", metavar="X,…", help="Deadline / job hours; instead of the file's."),
]
Overheads = Annotated[
    str | None,
    typer.Option(
        "--overhead-hours",
        metavar="X,…",
        help="Hours that a launch or a move takes; instead of the file's.",
    ),
]
JobHours = Annotated[
    float | None, typer.Option(metavar="HOURS", help="Hours of work; instead of the file's.")
]
Starts = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Starts per pool or group; instead of the file's."),
]
CheckpointHours = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="HOURS",
        help="Hours between checkpoints; an interruption loses the work since the last one.",
    ),
]
Egress = Annotated[
    float,
    typer.Option("--egress-usd", min=0, metavar="USD", help="Dollars for each move between pools."),
]
TransferHours = Annotated[
    float, typer.Option(min=0, metavar="HOURS", help="Hours for each move between pools.")
]
BillingName = Annotated[
    str | None,
    typer.Option(
        "--billing",
        metavar="ec2|gce",
        help="Apply a cloud's waiver and minimum charge: ec2 or gce.",
    ),
]
StartUpSeconds = Annotated[
    str | None,
    typer.Option(
        "--start-up-seconds",
        metavar="X|X..Y",
        help="Seconds that the trainer adds to each restart; X..Y: drawn for each job.",
    ),
]
LearnsStartUp = Annotated[
    bool,
    typer.Option(
        "--learn-start-up", help="The policy lowtide learns that time at the job's first start."
    ),
]
Calibration = Annotated[
    bool,
    typer.Option("--calibration", help="Also compare Lowtide's estimates with the outcomes."),
]


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("backtest")(backtest)


def backtest(
    traces: Folder,
    groups: Groups = None,
    setting: SettingName = "one-zone",
    information: InformationName = "visible",
    policies: PolicyNames = "all",
    history: HistoryName = "warm",
    processes: Processes = 1,
    json_file: JsonFile = None,
    slack: Slacks = None,
    overhead_hours: Overheads = None,
    job_hours: JobHours = None,
    starts: Starts = None,
    checkpoint_hours: CheckpointHours = 0.0,
    egress_usd: Egress = 0.0,
    transfer_hours: TransferHours = 0.0,
    billing: BillingName = None,
    start_up_seconds: StartUpSeconds = None,
    learn_start_up: LearnsStartUp = False,
    calibration: Calibration = False,
    quiet: Quiet = False,
) -> None:
    """Compare placement policies on recorded spot markets.

    Example: lowtide backtest --traces DIR --setting zones --policies lowtide,uniform_progress

    docs/backtest.md has a groups file for the recordings that Lowtide ships. Exits with 1 if a
    group had to be left out.
    """
    terminal = Terminal(quiet=quiet)
    with ending_well(terminal):
        from app.backtest.cells import PlanOverrides

        overrides = PlanOverrides(
            _numbers(slack, "--slack"),
            _numbers(overhead_hours, "--overhead-hours"),
            job_hours,
            starts,
            _start_ups(start_up_seconds),
        )
        found = _conditions(
            traces=traces,
            policies=policies,
            information=information,
            history=history,
            billing=billing,
            checkpoint_hours=checkpoint_hours,
            egress_usd=egress_usd,
            transfer_hours=transfer_hours,
            calibration=calibration,
            learns_start_up=learn_start_up,
        )
        if json_file is not None:
            _check_files(json_file)
        findings = _run(
            terminal, groups or traces / "groups.json", setting, overrides, found, processes
        )
        for problem in findings.problems:
            terminal.note(f"Left out: {problem}")
        if not findings.rows:
            raise CommandFailed("No job could be replayed; the lines above say why.")
        written = ""
        if json_file is not None:
            written = _write(json_file, findings, f"{setting}, {information}")
        _show(terminal, findings)
        if written:
            terminal.line()
            terminal.line(written)
    if findings.problems:
        raise typer.Exit(LEFT_OUT)


def _conditions(
    *, traces: Path, policies: str, information: str, history: str, billing: str | None, **rest: Any
) -> Conditions:
    from app.backtest.replay import PoolVisibility
    from app.backtest.run_cells import OWN, POLICIES, Conditions
    from app.domain.billing.billing_rules import rules_for

    names = tuple(dict.fromkeys(name.strip() for name in policies.split(",")))
    for name in names:
        _one_of("--policies", name, [*POLICIES, "all"])
    if "all" in names:
        names = tuple(POLICIES)
    _one_of("--information", information, list(PoolVisibility))
    _one_of("--history", history, ["warm", "cold"])
    if rest["calibration"] and OWN not in names:
        raise CommandFailed(f"--calibration needs the policy {OWN}; add it to --policies.")
    if billing is not None:
        _one_of("--billing", billing, ["ec2", "gce"])
    for name, most in _MOST.items():
        if not 0 <= rest[name] <= most:  # what is not a number fails, too
            raise CommandFailed(f"--{name.replace('_', '-')} must be from 0 to {most:g}.")
    return Conditions(
        traces=traces,
        policies=names,
        information=PoolVisibility(information),
        history_hours=WARM_HOURS if history == "warm" else 0.0,
        billing=None if billing is None else rules_for(billing),
        **rest,
    )


def _run(
    terminal: Terminal,
    groups: Path,
    setting: str,
    overrides: PlanOverrides,
    conditions: Conditions,
    processes: int,
) -> CellResults:
    from app.backtest.cells import PoolSetting, read_plan
    from app.backtest.run_cells import run_plan
    from app.backtest.traces import TraceProblem

    _one_of("--setting", setting, list(PoolSetting))
    chosen = PoolSetting(setting)
    try:
        plan = read_plan(groups, chosen, overrides)
    except TraceProblem as problem:
        raise CommandFailed(str(problem)) from problem
    with progress_bar(terminal, "Replaying") as bar:
        return run_plan(plan, chosen, conditions, processes, bar.reach)


def _show(terminal: Terminal, findings: CellResults) -> None:
    from app.backtest.report import cells, summarise, text_chart

    summaries = summarise(findings.rows)
    terminal.table(_COLUMNS, summaries)
    by_cell = cells(findings.rows)
    if by_cell:
        terminal.line()
        terminal.line("Mean cost over optimum by group and slack:")
        names = [summary.policy for summary in summaries]
        columns = [
            Column("group", lambda cell: cell.group),
            Column("slack", lambda cell: f"{cell.slack:g}", right=True),
            *map(_ratio_column, names),
        ]
        terminal.table(columns, by_cell)
        terminal.line()
        terminal.line("Paid above the optimum:")
        for line in text_chart(summaries):
            terminal.line(line)
    _show_calibration(terminal, findings)


def _show_calibration(terminal: Terminal, findings: CellResults) -> None:
    from app.backtest.report import calibration

    lines = calibration(findings.rows)
    if lines:
        terminal.line()
        terminal.line("Share of jobs below their estimate (90 % below P90 is correct):")
        terminal.table(_CALIBRATION_COLUMNS, lines)


def _check_files(json_file: Path) -> None:
    """Before the replay, which may take long: whether its files could be written."""
    if json_file.is_dir():
        raise CommandFailed(f"{json_file} cannot be written: it is a folder.")
    picture = _picture_of(json_file)
    if picture == json_file:
        raise CommandFailed(
            f"--json {json_file}: the picture gets the ending .svg; choose another one."
        )
    for path in (json_file, picture):
        existed = path.exists()
        try:
            path.open("a").close()
            if not existed:
                path.unlink()
        except OSError as error:
            raise CommandFailed(f"{path} cannot be written: {error.strerror}") from error


def _write(json_file: Path, findings: CellResults, title: str) -> str:
    """Write rows and picture; the sentence that names them."""
    from app.backtest.report import cells, svg

    picture = _picture_of(json_file)
    try:
        text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in findings.rows)
        json_file.write_text(f"[\n{text}\n]\n", encoding="utf-8")
        if not cells(findings.rows):
            picture.unlink(missing_ok=True)  # of other rows
            return f"Rows: {json_file}; no picture: with --billing no optimum is known"
        picture.write_text(svg(findings.rows, title), encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{json_file} cannot be written: {error.strerror}") from error
    return f"Rows: {json_file}; picture: {picture}"


def _picture_of(json_file: Path) -> Path:
    return json_file.with_suffix(".svg")


def _numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)):
        raise CommandFailed(f"{option} takes numbers separated by commas, not {text!r}.")
    return numbers


def _start_ups(text: str | None) -> StartUps:
    """From `600` or `60..1200`."""
    if text is None:
        return NO_START_UPS
    least, _, most = text.partition("..")
    try:
        return StartUps(float(least), float(most or least))
    except ValueError as error:
        problem = f"--start-up-seconds takes a number, or a range like 60..1200, not {text!r}."
        raise CommandFailed(problem) from error


def _one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise CommandFailed(f"{option} {value!r} is unknown; choose from {', '.join(known)}.")


def _ratio_column(policy: str) -> Column:
    return Column(policy, lambda cell: _ratio(cell.ratios.get(policy)), right=True)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


_COLUMNS: Final[tuple[Column, ...]] = (
    Column("policy", lambda summary: summary.policy),
    Column("jobs", lambda summary: str(summary.jobs), right=True),
    Column("cost/optimum", lambda summary: _ratio(summary.ratio), right=True),
    Column("worst", lambda summary: _ratio(summary.worst_ratio), right=True),
    Column("cost/on-demand", lambda summary: _ratio(summary.share_of_on_demand), right=True),
    Column("missed", lambda summary: str(summary.missed), right=True),
    Column("launches", lambda summary: f"{summary.launches:.1f}", right=True),
    Column("probes", lambda summary: f"{summary.probes:.1f}", right=True),
)
_CALIBRATION_COLUMNS: Final[tuple[Column, ...]] = (
    Column("group", lambda line: line.group),
    Column("jobs", lambda line: str(line.jobs), right=True),
    Column("cost < P50", lambda line: percent_fine(line.cost_under_p50), right=True),
    Column("cost < P90", lambda line: percent_fine(line.cost_under_p90), right=True),
    Column("finish < P50", lambda line: percent_fine(line.finish_under_p50), right=True),
    Column("finish < P90", lambda line: percent_fine(line.finish_under_p90), right=True),
)
