"""`lowtide demo`: one two-machine job through an interruption, and its bill.

Lives here: the run. The control plane, the agents and the training are the real ones; only the
cloud is the local one. Not here: the lines (`demo_story`) and the judgement (`demo_checks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import BAD_INPUT, JOB_FAILED, CommandFailed
from app.cli.client.local_run import command_on
from app.cli.client.server_address import Server
from app.cli.client.wording import instant
from app.cli.demo.demo_checks import DemoCheck, DemoEvidence, checks
from app.cli.demo.demo_control_plane import DemoControlPlane, free_port
from app.cli.demo.demo_job import DemoJob, DemoNarrator
from app.cli.demo.demo_losses import ProgressRecorder
from app.cli.demo.demo_proof import prove as prove_by_running_again
from app.cli.demo.demo_report import write_report
from app.cli.demo.demo_story import bill, interruption, intro, plan, progress, resumed
from app.domain.units.durations import format_duration
from app.domain.units.percent import percent_fine
from app.settings import load_settings

Document = Mapping[str, Any]

BILLING_SPEED: Final = 60
NOTICE_SECONDS: Final = 6.0
_TAKE_AT_SHARE: Final = 0.4
_SPEC: Final[dict[str, Any]] = {
    "trainer": {
        "model": "cnn",
        "data": "digits",
        "steps": 1000,
        "batch_size": 64,
        "step_delay_seconds": 0.012,
    },
    "nodes": 2,
    "resources": {"gpu": "V100"},
    "infra": ["local"],
    "market": "auto",
    "deadline": "2h",
    "budget_usd": 20,
    "checkpoint": {"interval": "5s", "keep": 3},
}


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("demo")(demo)


def demo(
    state_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where everything is kept; default: as `lowtide up`."),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65_535, metavar="N", help="Port of the pages; another one if taken."
        ),
    ] = 8400,
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the static report is written.")
    ] = Path("demo-report.html"),
    prove: Annotated[
        bool,
        typer.Option(
            "--prove",
            help="Run the job again, uninterrupted, and compare every step's loss bit by bit.",
        ),
    ] = False,
) -> None:
    """Train a model through an interruption, and show its bill.

    Runs everything on this machine: PostgreSQL, Valkey, api, worker, beat and a small local cloud
    that interrupts one of two machines. Exits with 0 only if all of it happened. The state
    is kept: `lowtide up` shows the same job afterwards.
    """
    from app.adapters.embedded.embedded_errors import StateFolderUnusableError
    from app.bootstrap import local_cloud_folder

    folder = (state_dir or load_settings().state_dir).expanduser().absolute()
    settings = {"LOWTIDE_LOCAL_BILLING_SPEED": str(BILLING_SPEED)}
    ok = False
    try:
        with DemoControlPlane(folder, free_port(port), settings) as up:
            key = (folder / "admin.key").read_text().strip()
            machines = local_cloud_folder(folder) / "machines"
            with (
                ApiClient(Server(up.url, key)) as api,
                ProgressRecorder(machines) as recorder,
            ):
                run = DemoRun(api, up.url, folder, DemoNarrator(typer.echo), recorder)
                ok = run.play(report, machines if prove else None)
    except CommandFailed as failure:
        typer.echo("\n".join(["demo: " + failure.message, *failure.lines()[1:]]), err=True)
        raise typer.Exit(failure.exit_code) from failure
    except StateFolderUnusableError as error:
        typer.echo(f"demo: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from error
    if not ok:
        raise typer.Exit(JOB_FAILED)
    typer.echo(
        f"Report: {report}   Keep it running: {command_on('up', folder)}   "
        "Your own script: lowtide submit job.yaml"
    )


class DemoRun:
    """One playing of the story against a running control plane."""

    def __init__(
        self,
        api: ApiClient,
        url: str,
        folder: Path,
        telling: DemoNarrator,
        recorder: ProgressRecorder,
    ) -> None:
        self._api = api
        self._url = url
        self._folder = folder
        self._telling = telling
        self._tell = telling.tell
        self._recorder = recorder
        self._job = DemoJob(api, self._free_name(), telling, recorder)

    def play(self, report: Path, prove_on: Path | None) -> bool:
        """The whole story; True when every check holds.

        `prove_on` is the folder of the cloud's machines; None leaves the proof out.
        """
        run = self._job
        key_file = str(self._folder / "admin.key")
        self._tell(*intro(self._url, run.name, key_file, BILLING_SPEED))
        # The usual start-up of a cloud's machine, billed so much faster, would look like a risk.
        self._api.post("/jobs?accept_risk=true", {"name": run.name, **_SPEC})
        job = run.until(lambda j: _phase(j) == "running", "its machines are up")
        self._tell(*plan(job, run.first_placement()["pools"], "$20.00", "2h"))
        names = " ".join(run.labels[m["id"]] for m in job["machines"])
        zone = job["machines"][0]["zone"]
        clock = self._telling.clock
        self._tell("", f"{clock()}    machines {names} up in {zone} · the trainer starts")
        taken, noticed_at, killed_at = self._interrupt()
        self._recovery(taken, noticed_at, killed_at)
        job = run.until(lambda j: j["ended_at"] is not None, "the job's end", lines=True)
        accuracy = run.accuracy()
        shown = "unknown" if accuracy is None else percent_fine(accuracy)
        self._tell(progress(clock(), job), f"        test accuracy {shown}")
        cost, found = self._settle(job, accuracy, taken)
        if prove_on is not None:
            found.append(self._prove(prove_on))
        failed = [check.what for check in found if not check.holds]
        for what in failed:
            self._tell(f"demo: this did not happen: {what}")
        write_report(report, run.name, self._telling.lines, found, cost)
        return len(failed) == 0

    def _interrupt(self) -> tuple[str, datetime, datetime]:
        """Wait for the share of the work, then have the local cloud take one machine."""

        def far_enough(job: Document) -> bool:
            total = job["progress"]["total_steps"] or 1
            saved = job["progress"]["committed_step"] > 0
            return saved and bool(job["progress"]["step"] >= _TAKE_AT_SHARE * total)

        job = self._job.until(far_enough, "enough progress", lines=True)
        self._tell(progress(self._telling.clock(), job))
        slack = (job["deadline"] or {}).get("slack_seconds")
        if slack is not None:
            ahead = format_duration(slack)
            self._tell(f"        spot is safe for another {ahead} before the deadline")
        machine = job["machines"][-1]
        answer = self._api.post(
            f"/instances/{machine['id']}/interrupt", {"notice_seconds": NOTICE_SECONDS}
        )
        killed_at = _instant(answer["ends_at"])
        label = self._job.labels[machine["id"]]
        self._tell(
            f"{self._telling.clock()}  ⚡ the local cloud takes {label}: interruption notice "
            f"(shortened to {format_duration(NOTICE_SECONDS)})"
        )
        return machine["id"], killed_at - timedelta(seconds=NOTICE_SECONDS), killed_at

    def _recovery(self, taken: str, noticed_at: datetime, killed_at: datetime) -> None:
        """Wait until the next attempt trains, then tell what happened in between."""
        run = self._job

        def trains_again(job: Document) -> bool:
            live = job["attempts"]["live"]
            again = live is not None and live["fence"] == 2 and live["state"] == "running"
            return again and job["progress"]["step"] > (live["parent_step"] or 0)

        run.until(trains_again, "the next attempt")
        run.until(lambda _job: run.is_gone(taken), "the machine to be gone")
        first, second = run.attempts()[:2]
        kept = [
            run.labels[member["instance_id"]]
            for member in first["members"]
            if member["instance_id"] != taken
        ]
        self._tell(*interruption(run.events(), noticed_at, run.labels[taken], kept, killed_at))
        step = second["parent_step"] or 0
        joined = {m["instance_id"] for m in second["members"]}
        joined -= {m["instance_id"] for m in first["members"]}
        names = " ".join(sorted(run.labels[one] for one in joined))
        saved = [p["step"] for p in run.checkpoints() if p["fence"] == 1 and p["step"] < step]
        without = first["best_step"] - max(saved) if saved else None
        redone = first["best_step"] - step
        self._tell(resumed(self._telling.clock(), names, second["parent_step"], redone, without))

    def _settle(
        self, job: Document, accuracy: float | None, taken: str
    ) -> tuple[Document, list[DemoCheck]]:
        """Wait for the books to close, print the bill, and judge."""
        run = self._job
        run.until(lambda j: j["money"]["cost_final_at"] is not None, "the final cost")
        cost = self._api.get(f"/jobs/{run.name}/cost", {"reconcile": True})
        self._tell(*bill(cost))
        evidence = DemoEvidence(
            job=job,
            attempts=run.attempts(),
            instances=run.instances(),
            verification=self._api.get("/costs/verify", {"job": run.name}),
            accuracy=accuracy,
            interrupted_id=taken,
        )
        found = checks(evidence)
        left = cost["budget"]["cap_microusd"] - cost["budget"]["spent_microusd"]
        ledger, leaked = found[-2].holds, found[-1].holds
        self._tell(
            f"        ledger = local cloud's bill to the micro-dollar {'✓' if ledger else '✗'}   "
            f"leaked machines {0 if leaked else 'found'} {'✓' if leaked else '✗'}   "
            f"budget left ${left / 1e6:.2f}"
        )
        return cost, found

    def _prove(self, machines: Path) -> DemoCheck:
        """The job once more without an interruption: the losses must be the same bits."""
        again = prove_by_running_again(
            self._api,
            self._telling,
            machines,
            self._free_name(),
            _SPEC,
            list(self._recorder.losses()),
            int(self._job.attempts()[-1]["parent_step"] or 0),
        )
        return DemoCheck("the losses match bit for bit from the resume on", again.holds)

    def _free_name(self) -> str:
        """`digits`, or the next number when an earlier demo has left its job here."""
        taken = {job["name"] for job in self._api.pages("/jobs", limit=1000)}
        names = ["digits", *(f"digits-{number}" for number in range(2, 1002))]
        return next(name for name in names if name not in taken)


def _phase(job: Document) -> str:
    """The live attempt's state."""
    live = job["attempts"]["live"]
    return "" if live is None else str(live["state"])


def _instant(text: str) -> datetime:
    found = instant(text)
    if found is None:
        raise CommandFailed("the api did not say when the machine ends")
    return found
