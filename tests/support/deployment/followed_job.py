"""One job of a running deployment: submitted, followed, its machines hit by faults, its books read.

Not here: the deployment (`control_plane`), or what is expected of a job (tests/e2e).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from app.adapters.providers.local.files.cloud_settings import LocalSettings
from app.adapters.providers.local.machines.machine_processes import find_processes
from app.adapters.providers.local.provider import LocalProvider
from tests.support.deployment.control_plane import SMALL_TRAINER, ControlPlane, Document
from tests.support.deployment.small_trainer import expected

JOB_SECONDS = 150.0
SAVES_AT_NOTICES = {
    "model": "mlp",
    "data": "digits",
    "steps": 600,
    "step_delay_seconds": 0.01,
    "checkpoint_interval_steps": 100_000,
}
"""The bundled trainer for some seconds of work."""

_POLL_SECONDS = 0.25  # a job's document takes the api and its database 10 ms
_ENDED = ("succeeded", "failed", "cancelled")
_LOG_TAIL_BYTES = 3_000
_ENDLESS = 6_000  # steps: minutes more than any test waits
MOVES = {"moved_to_on_demand", "moved_to_spot", "deadline_unsafe"}


class FollowedJob:
    """One job, by id."""

    def __init__(self, plane: ControlPlane, job_id: str) -> None:
        self.plane = plane
        self.id = job_id
        self.end_mark: Path | None = None

    def end_here(self) -> int:
        """Let a job of `submit_endless` finish, and await it: how many steps it has made."""
        assert self.end_mark is not None, "it ends by itself"
        self.end_mark.touch()
        return int(self.finish()["progress"]["step"])

    def go_on_in(self, fence: int, steps: int = 20) -> None:
        """Once the attempt trains and has made so many steps beyond where it began."""
        self.until(
            lambda job: (
                job["attempts"]["live"] is not None
                and job["attempts"]["live"]["fence"] == fence
                and job["attempts"]["live"]["state"] == "running"
            ),
            f"attempt {fence} trains",
        )
        [attempt] = [one for one in self.attempts() if one["fence"] == fence]
        self.until_step((attempt["parent_step"] or 0) + steps, fence=fence)

    def show(self) -> Document:
        """The job as its page has it."""
        found: Document = self.plane.get(f"/jobs/{self.id}")
        return found

    def has_final_cost(self) -> bool:
        """Whether nothing can be added to its costs any more."""
        return self.show()["money"]["cost_final_at"] is not None

    def until(
        self, met: Callable[[Document], bool], what: str, seconds: float = JOB_SECONDS
    ) -> Document:
        """The job's document once it is so; fails the test when that can never come."""
        deadline = time.monotonic() + seconds
        while True:
            job = self.show()
            if met(job):
                return job
            if job["state"] in _ENDED or time.monotonic() > deadline:
                raise AssertionError(f"never: {what}\n{self.story()}")
            time.sleep(_POLL_SECONDS)

    def until_state(self, state: str, seconds: float = JOB_SECONDS) -> Document:
        """The job's document once it is in the state."""
        return self.until(lambda job: job["state"] == state, state, seconds)

    def until_step(self, step: int, fence: int | None = None) -> Document:
        """Once the live attempt (of that fence) has made this step."""

        def reached(job: Document) -> bool:
            live = job["attempts"]["live"]
            trains = live is not None and live["state"] == "running"
            right = fence is None or (live is not None and live["fence"] == fence)
            return trains and right and job["progress"]["step"] >= step

        return self.until(reached, f"step {step} of attempt {fence or 'any'}")

    def until_committed(self, step: int = 1) -> Document:
        """Once it trains and a checkpoint of this step or a later one is in the store."""
        return self.until(
            lambda job: job["progress"]["committed_step"] >= step and job["state"] == "running",
            f"a committed step from {step} on",
        )

    def attempts(self) -> list[Document]:
        """Every attempt, by fence."""
        return list(self.plane.get(f"/jobs/{self.id}/attempts")["items"])

    def events(self) -> list[Document]:
        """The whole history."""
        return list(self.plane.get(f"/jobs/{self.id}/events", limit=1000)["items"])

    def event(self, kind: str) -> Document:
        """The first event of the kind; fails when there is none."""
        found = [event for event in self.events() if event["kind"] == kind]
        assert found, f"no event {kind}\n{self.story()}"
        return found[0]

    def instances(self) -> list[Document]:
        """Every machine it ever asked for, oldest first."""
        found = self.plane.get("/instances", job=self.id, live=False)["items"]
        return sorted(found, key=lambda one: (one["requested_at"], one["id"]))

    def released(self) -> list[Document]:
        """The same, once its cloud says that every one that it started has ended."""

        def over(one: Document) -> bool:
            return bool(one["ended_at"]) or one["state"] == "launch_failed"

        self.plane.wait(lambda: all(map(over, self.instances())), "the machines are gone")
        return self.instances()

    def machines(self) -> list[Document]:
        """The machines of the live attempt, by rank."""
        [live] = [one for one in self.attempts() if one["ended_at"] is None]
        by_id = {one["id"]: one for one in self.instances()}
        return [by_id[member["instance_id"]] for member in live["members"]]

    def machines_of_attempt(self, fence: int) -> list[Document]:
        """The machines of an attempt, by rank."""
        [attempt] = [one for one in self.attempts() if one["fence"] == fence]
        by_id = {one["id"]: one for one in self.instances()}
        return [by_id[member["instance_id"]] for member in attempt["members"]]

    def interrupt(self, machine: Document, notice_seconds: float | None) -> None:
        """Let the local cloud take the machine."""
        body = {"notice_seconds": notice_seconds}
        self.plane.post(f"/instances/{machine['id']}/interrupt", body)

    def logs(self, last_bytes: int = 1 << 20) -> str:
        """All streams, one after another."""
        parts = []
        for one in self.plane.get(f"/jobs/{self.id}/logs")["items"]:
            query = {"stream": one["stream"], "offset": -last_bytes, "limit": last_bytes}
            answer = self.plane.api.get(f"/jobs/{self.id}/logs", params=query)
            assert answer.status_code == 200, answer.text
            parts.append(f"--- {one['stream']}\n{answer.text}")
        return "\n".join(parts)

    def story(self) -> str:
        """All that is known of the job, for the message of a failed test."""
        job = self.show()
        lines = [f"job {self.id}: {job['state']}, {job['why']}, {job['progress']['step']=}"]
        lines += [
            f"  attempt {a['fence']} {a['state']} {a['end_message']}" for a in self.attempts()
        ]
        lines += [
            f"  {i['provider_instance_id']} {i['state']} {i['ended_by']} {i['pool']}"
            for i in self.instances()
        ]
        lines += [f"  {e['at'][11:23]} {e['kind']}: {e['message']}" for e in self.events()[-40:]]
        consoles = [
            f"--- console of {path.parent.name}\n" + path.read_text("utf-8", "replace")[-800:]
            for path in (
                self.plane.state_dir
                / "cloud"
                / "machines"
                / str(i["provider_instance_id"])
                / "console.log"
                for i in self.instances()
            )
            if path.is_file()
        ]
        return "\n".join([*lines, self.logs(_LOG_TAIL_BYTES), *consoles, self.plane.tails()])

    def folder(self, machine: Document) -> Path:
        """The machine's disk."""
        name = str(machine["provider_instance_id"])
        return self.plane.state_dir / "cloud" / "machines" / name / "disk"

    def is_saving(self, machine: Document) -> bool:
        """Whether a checkpoint is half written on the machine right now."""
        return any(self.folder(machine).glob("attempts/*/checkpoints/step-*.tmp*"))

    def finish(self, *, state: str = "succeeded", seconds: float = JOB_SECONDS) -> Document:
        """The job at its end. Its books are looked at when those of all jobs are, later."""
        return self.until_state(state, seconds)

    def books(self) -> Document:
        """Its bills made again and compared with the ledger and with the cloud's own bill."""
        found: Document = self.plane.get("/costs/verify", job=self.id)
        return found

    def assert_books_close(self) -> None:
        """No machine is left, assignments are gapless and disjoint, ledger = the cloud's bill."""
        living = [i for i in self.instances() if i["state"] not in ("terminated", "launch_failed")]
        assert not living, f"leaked: {living}"
        for machine in self.instances():
            pid_left = find_processes(machine["provider_instance_id"] or "none")
            assert not pid_left, f"processes of {machine['provider_instance_id']}: {pid_left}"
        _assert_assigned_once(self)
        found = self.books()
        assert found["closed"], f"{found}\n{self.story()}"
        ran = [one for one in self.instances() if one["launched_at"] is not None]
        assert found["invoiced"] == len(ran), f"{found}\n{self.story()}"

    def assert_exact(self, steps: int) -> None:
        """Every step was done once, from the state of the one before."""
        assert f"finished {steps} {expected(steps)}" in self.logs(), self.story()

    def assert_undisturbed(self) -> None:
        """One attempt made all of it on spot; nobody moved it, or feared for its deadline."""
        kinds = [event["kind"] for event in self.events()]
        assert not MOVES.intersection(kinds), self.story()
        [attempt] = self.attempts()
        assert (attempt["state"], attempt["end_reason"]) == ("succeeded", "finished"), self.story()
        assert self.show()["deadline"]["missed_at"] is None
        assert {one["market"] for one in self.instances()} == {"spot"}


def submit(plane: ControlPlane, **spec: Any) -> FollowedJob:
    """Submit a job as given."""
    job = FollowedJob(plane, plane.post("/jobs", spec)["id"])
    plane.job_ids.append(job.id)
    return job


def assert_all_books_close(plane: ControlPlane) -> None:
    """Every job submitted so far has ended and is paid for exactly; none is looked at twice."""
    jobs = [FollowedJob(plane, job_id) for job_id in plane.job_ids]
    plane.job_ids.clear()
    for mark in plane.end_marks:  # of a test that has failed: nobody else lets its job end
        mark.touch()
    plane.end_marks.clear()
    for job in jobs:
        final = "the final cost of " + job.id
        plane.wait(job.has_final_cost, final)
        job.assert_books_close()


def submit_small(plane: ControlPlane, steps: int, **changes: Any) -> FollowedJob:
    """Submit the small trainer. UPPERCASE changes are its environment, others spec fields."""
    environment = {"STEPS": str(steps)}
    environment |= {name: str(value) for name, value in changes.items() if name.isupper()}
    fields = {name: value for name, value in changes.items() if not name.isupper()}
    spec = {
        "workdir": plane.upload({"small_trainer.py": SMALL_TRAINER.read_text()}),
        "run": "exec python3 small_trainer.py",
        "resources": {"gpu": "V100"},
        "infra": ["local"],
        "env": environment,
        **fields,
    }
    return submit(plane, **spec)


def submit_endless(plane: ControlPlane, **changes: Any) -> FollowedJob:
    """Submit the small trainer so that it trains until `end_here`, however slow everything is."""
    mark = plane.state_dir / f"job-{time.monotonic_ns()}-may-end"
    plane.end_marks.append(mark)
    job = submit_small(plane, _ENDLESS, ENDS_WITH=mark, **changes)
    job.end_mark = mark
    return job


def processes(machine: Document) -> dict[int, str]:
    """Processes of a machine: pid and command."""
    found = {}
    for pid in find_processes(str(machine["provider_instance_id"])):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        found[pid] = command.replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def kill_agent(_: ControlPlane, machine: Document) -> None:
    """SIGKILL the machine's agent alone."""
    os.kill(_pid(machine, lambda command: "trainer.agent.main" in command), signal.SIGKILL)


def kill_rank(_: ControlPlane, machine: Document) -> None:
    """SIGKILL one training process of the machine, and neither its starter nor the agent."""
    os.kill(rank_pid(machine), signal.SIGKILL)


def rank_pid(machine: Document) -> int:
    """The pid of a training process of the machine."""

    def trains(command: str) -> bool:
        bundled = "trainer.training.train" in command and "torch.distributed.run" not in command
        return bundled or ("small_trainer.py" in command and not command.startswith("/bin/sh"))

    return _pid(machine, trains)


def kill_machine(plane: ControlPlane, machine: Document) -> None:
    """SIGKILL everything on the machine at once; its cloud shows that only after a while."""
    LocalProvider(plane.state_dir / "cloud", LocalSettings()).crash(machine["provider_instance_id"])


def _pid(machine: Document, wanted: Callable[[str], bool]) -> int:
    found = processes(machine)
    pids = [pid for pid, command in found.items() if wanted(command)]
    assert pids, f"no such process on {machine['provider_instance_id']}: {found}"
    return pids[0]


def _assert_assigned_once(job: FollowedJob) -> None:
    for machine in job.instances():
        rows = job.plane.sql(
            "SELECT from_at, to_at FROM assignments WHERE instance_id = :id ORDER BY from_at",
            id=machine["id"],
        )
        if machine["launched_at"] is None:
            assert not rows, f"{machine['id']} never ran and is paid for: {rows}"
            continue
        ends = [row["from_at"] for row in rows[1:]] + [_instant(machine["ended_at"])]
        assert [row["to_at"] for row in rows] == ends, f"{machine}: {rows}"
        assert rows[0]["from_at"] == _instant(machine["launched_at"]), f"{machine}: {rows}"


def _instant(written: str) -> datetime:
    return datetime.fromisoformat(written)
