"""`lowtide demo`: one two-machine job through an interruption, and its bill.

Lives here: the run. The control plane, the agents and the training are the real ones; only the
cloud is the local one. Not here: the lines (`demo_story`) and the judgement (`demo_checks`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from app.cli.api_client import ApiClient
from app.cli.demo_checks import Evidence, checks
from app.cli.demo_control_plane import DemoControlPlane, free_port
from app.cli.demo_report import write_report
from app.cli.demo_story import bill, interruption, intro, plan, progress, resumed
from app.cli.failures import JOB_FAILED, CommandFailed
from app.cli.server_address import Server
from app.cli.wording import instant

Document = Mapping[str, Any]

BILLING_SPEED: Final = 60
NOTICE_SECONDS: Final = 6.0
_TAKE_AT_SHARE: Final = 0.4
_LIMIT_SECONDS: Final = 240.0
_LOOK_SECONDS: Final = 0.3
_LINE_SECONDS: Final = 6.0
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
    "budget_usd": 5,
    "checkpoint": {"interval": "5s", "keep": 3},
}


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("demo")(demo)


def demo(
    state_dir: Annotated[
        Path | None, typer.Option(help="Where everything is kept; default: as `lowtide up`.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the pages; another one if taken.")] = 8400,
    report: Annotated[Path, typer.Option(help="Where the static report is written.")] = Path(
        "demo-report.html"
    ),
) -> None:
    """Train a model through an interruption, and account for every cent.

    Runs everything on this machine: PostgreSQL, Valkey, api, worker, beat and a small local cloud
    that takes one of two machines away. Ends with status 0 only if all of it happened. The state
    is kept: `lowtide up` shows the same job afterwards.
    """
    from app.settings import load_settings

    folder = (state_dir or load_settings().state_dir).expanduser().absolute()
    settings = {"LOWTIDE_LOCAL_BILLING_SPEED": str(BILLING_SPEED)}
    ok = False
    try:
        with DemoControlPlane(folder, free_port(port), settings) as up:
            key = (folder / "admin.key").read_text().strip()
            with ApiClient(Server(up.url, key)) as api:
                ok = DemoRun(api, up.url, folder, typer.echo).play(report)
    except CommandFailed as failure:
        typer.echo(f"demo: {failure.message}", err=True)
        raise typer.Exit(failure.exit_code) from failure
    if not ok:
        raise typer.Exit(JOB_FAILED)
    typer.echo(
        f"Report: {report}   Keep it running: lowtide up   Your own script: lowtide submit job.yaml"
    )


class DemoRun:
    """One playing of the story against a running control plane."""

    def __init__(self, api: ApiClient, url: str, folder: Path, say: Callable[[str], None]) -> None:
        self._api = api
        self._url = url
        self._folder = folder
        self._say = say
        self._began = time.monotonic()
        self._labels: dict[str, str] = {}
        self._last_line = 0.0
        self._lines: list[str] = []
        self._name = "digits"

    def play(self, report: Path) -> bool:
        """The whole story; True when every check holds."""
        self._name = self._free_name()
        key_file = str(self._folder / "admin.key")
        self._tell(*intro(self._url, self._name, key_file, BILLING_SPEED))
        self._api.post("/jobs", {"name": self._name, **_SPEC})
        job = self._until(lambda j: _phase(j) == "running", "its machines are up")
        claimed = next(e for e in self._events() if e["kind"] == "claimed")
        self._tell(*plan(job, claimed["data"]["considered"], "$5.00", "2h"))
        names = " ".join(self._labels[m["id"]] for m in job["machines"])
        zone = job["machines"][0]["zone"]
        self._tell("", f"{self._clock()}    machines {names} up in {zone} · training")
        taken, noticed_at, killed_at = self._interrupt()
        self._recovery(taken, noticed_at, killed_at)
        job = self._until(lambda j: j["ended_at"] is not None, "the job's end", lines=True)
        accuracy = self._accuracy()
        shown = "unknown" if accuracy is None else f"{accuracy:.1%}".replace("%", " %")
        self._tell(progress(self._clock(), job), f"        test accuracy {shown}")
        return self._settle(job, accuracy, taken, report)

    def _interrupt(self) -> tuple[str, datetime, datetime]:
        """Wait for the share of the work, then have the local cloud take one machine."""

        def far_enough(job: Document) -> bool:
            total = job["progress"]["total_steps"] or 1
            saved = job["progress"]["committed_step"] > 0
            return saved and bool(job["progress"]["step"] >= _TAKE_AT_SHARE * total)

        job = self._until(far_enough, "enough progress", lines=True)
        self._tell(progress(self._clock(), job))
        slack = (job["deadline"] or {}).get("slack_seconds")
        if slack is not None:
            self._tell(f"        spot is safe for another {slack / 60:.0f}m before the deadline")
        machine = job["machines"][-1]
        answer = self._api.post(
            f"/instances/{machine['id']}/interrupt", {"notice_seconds": NOTICE_SECONDS}
        )
        killed_at = _instant(answer["ends_at"])
        label = self._labels[machine["id"]]
        self._tell(
            f"{self._clock()}  ⚡ AWS takes {label}: interruption notice "
            f"(shortened to {NOTICE_SECONDS:.0f} s)"
        )
        return machine["id"], killed_at - timedelta(seconds=NOTICE_SECONDS), killed_at

    def _recovery(self, taken: str, noticed_at: datetime, killed_at: datetime) -> None:
        """Wait until the next attempt trains, then tell what happened in between."""

        def trains_again(job: Document) -> bool:
            live = job["attempts"]["live"]
            again = live is not None and live["fence"] == 2 and live["state"] == "running"
            return again and job["progress"]["step"] > (live["parent_step"] or 0)

        self._until(trains_again, "the next attempt")
        self._until(lambda j: self._gone(taken), "the machine to be gone")
        first, second = self._attempts()[:2]
        kept = [
            self._labels[member["instance_id"]]
            for member in first["members"]
            if member["instance_id"] != taken
        ]
        self._tell(*interruption(self._events(), noticed_at, self._labels[taken], kept, killed_at))
        step = second["parent_step"] or 0
        joined = {m["instance_id"] for m in second["members"]}
        joined -= {m["instance_id"] for m in first["members"]}
        names = " ".join(sorted(self._labels[one] for one in joined))
        periodic = [
            p["step"]
            for p in self._api.get(f"/jobs/{self._name}/checkpoints")["items"]
            if p["fence"] == 1 and p["step"] < step
        ]
        aside = step - max(periodic) if periodic else None
        redone = first["best_step"] - step
        self._tell(resumed(self._clock(), names, step, redone, aside))

    def _settle(self, job: Document, accuracy: float | None, taken: str, report: Path) -> bool:
        """Wait for the books to close, print the bill, and judge."""
        self._until(lambda j: j["money"]["cost_final_at"] is not None, "the final cost")
        cost = self._api.get(f"/jobs/{self._name}/cost", {"reconcile": True})
        self._tell(*bill(cost))
        evidence = Evidence(
            job=job,
            attempts=self._attempts(),
            instances=self._instances(),
            verification=self._api.get("/costs/verify", {"job": self._name}),
            accuracy=accuracy,
            interrupted_id=taken,
        )
        found = checks(evidence)
        left = cost["budget"]["cap_microusd"] - cost["budget"]["spent_microusd"]
        ledger, leaked = found[-2].holds, found[-1].holds
        self._tell(
            f"        ledger = provider's bill to the micro-dollar {'✓' if ledger else '✗'}   "
            f"leaked machines {0 if leaked else 'found'} {'✓' if leaked else '✗'}   "
            f"budget left ${left / 1e6:.2f}"
        )
        failed = [check.what for check in found if not check.holds]
        for what in failed:
            self._tell(f"demo: this did not happen: {what}")
        write_report(report, self._name, self._lines, found, cost)
        return len(failed) == 0

    def _until(
        self, met: Callable[[Document], bool], what: str, *, lines: bool = False
    ) -> Document:
        """The job's document once `met`; bounded, and ended early when the job fails."""
        while time.monotonic() - self._began < _LIMIT_SECONDS:
            job: Document = self._api.get(f"/jobs/{self._name}")
            for machine in sorted(job["machines"], key=lambda m: (m["requested_at"], m["id"])):
                self._labels.setdefault(machine["id"], f"m{len(self._labels) + 1}")
            if met(job):
                return job
            if job["state"] in ("failed", "cancelled", "paused"):
                raise CommandFailed(f"the job is {job['state']}: {job['why']}", JOB_FAILED)
            due = time.monotonic() - self._last_line > _LINE_SECONDS
            if lines and due and job["progress"]["step"]:
                self._tell(progress(self._clock(), job))
                self._last_line = time.monotonic()
            time.sleep(_LOOK_SECONDS)
        raise CommandFailed(f"waited {_LIMIT_SECONDS:.0f} s in vain for {what}", JOB_FAILED)

    def _gone(self, instance_id: str) -> bool:
        return any(i["id"] == instance_id and i["ended_at"] for i in self._instances())

    def _events(self) -> list[Document]:
        return self._api.pages(f"/jobs/{self._name}/events", limit=2000, turn="after")

    def _attempts(self) -> list[Document]:
        return list(self._api.get(f"/jobs/{self._name}/attempts")["items"])

    def _instances(self) -> list[Document]:
        query = {"job": self._name, "live": False}
        return list(self._api.get("/instances", query)["items"])

    def _accuracy(self) -> float | None:
        for point in self._api.get(f"/jobs/{self._name}/checkpoints")["items"]:
            if point["final"]:
                return dict(point["metrics"]).get("test_accuracy")
        return None

    def _free_name(self) -> str:
        """`digits`, or the next number when an earlier demo has left its job here."""
        taken = {job["name"] for job in self._api.pages("/jobs", limit=1000)}
        names = ["digits", *(f"digits-{number}" for number in range(2, 1002))]
        return next(name for name in names if name not in taken)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def _tell(self, *lines: str) -> None:
        for line in lines:
            self._lines.append(line)
            self._say(line)


def _phase(job: Document) -> str:
    """The live attempt's state."""
    live = job["attempts"]["live"]
    return "" if live is None else str(live["state"])


def _instant(text: str) -> datetime:
    found = instant(text)
    if found is None:
        raise CommandFailed("the api did not say when the machine ends")
    return found
