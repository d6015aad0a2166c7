"""How soon a machine's agent sees a notice in its metadata, and what a worker with a cloud holds.

The agent's own watcher against a metadata server as strict as the clouds'; the worker as a process
of its own with nothing to do, its cloud being our fake. Not here: what follows a notice
(`machine_loss`).
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.storage.session.engine import make_engine
from tests.bench import job_rows
from tests.bench.bench_environment import ROOT, BenchEnvironment, api_settings, plain_environment
from tests.bench.process_cost import memory
from tests.bench.results import Figure
from tests.support.agent.fake_metadata import FakeMetadata
from tests.support.aws.aws_fake import IMAGE_PARAMETER, open_aws_fake
from tests.support.aws.aws_parts import ENVIRONMENT
from tests.support.gce.gce_fake import open_fake_gce
from tests.support.gce.gce_fake_state import PROJECT
from trainer.agent.notices.aws import Ec2Notices
from trainer.agent.notices.gcp import GceNotices
from trainer.agent.rules.observations import Observation
from trainer.agent.runtime.notice_watch import NoticeSource, watch_notices

_MB = 1_000_000
_STOP_SECONDS = 15.0
_PATIENCE_SECONDS = 10.0
_SETTLED_SECONDS = 1.2
"""Before a notice: the watcher is in its usual round, at another place in it each time."""


def measure(around: BenchEnvironment) -> list[Figure]:
    """Notices of both clouds, then workers."""
    rounds = 4 if around.quick else 12
    aws = _slowest(rounds, lambda metadata: Ec2Notices(metadata.url), _arm_ec2)
    gcp = _slowest(rounds, lambda metadata: GceNotices(metadata.url), _arm_gce)
    detail = {"rounds": rounds}
    return [
        Figure("notices", "aws: notice → agent, slowest", aws, "s", 2.0, True, detail),
        Figure("notices", "gcp: notice → agent, slowest", gcp, "s", 0.5, True, detail),
        *_workers(around),
    ]


def _slowest(
    rounds: int,
    open_source: Callable[[FakeMetadata], NoticeSource],
    arm: Callable[[FakeMetadata], None],
) -> float:
    found = []
    for number in range(rounds):
        metadata = FakeMetadata()
        stopping, seen = threading.Event(), threading.Event()
        at: list[float] = []

        def observe(_: Observation, at: list[float] = at, seen: threading.Event = seen) -> None:
            at.append(time.monotonic())
            seen.set()

        watching = threading.Thread(
            target=watch_notices, args=(open_source(metadata), observe, stopping), daemon=True
        )
        watching.start()
        try:
            time.sleep(_SETTLED_SECONDS + number / rounds)
            armed = time.monotonic()
            arm(metadata)
            if not seen.wait(_PATIENCE_SECONDS):
                raise RuntimeError("the agent has not seen the notice")
            found.append(at[0] - armed)
        finally:
            stopping.set()
            metadata.stop()
            watching.join(_STOP_SECONDS)
    return max(found)


def _arm_ec2(metadata: FakeMetadata) -> None:
    taken = datetime.now(UTC) + timedelta(seconds=120)
    document = {"action": "terminate", "time": f"{taken:%Y-%m-%dT%H:%M:%SZ}"}
    metadata.arm("spot/instance-action", document)


def _arm_gce(metadata: FakeMetadata) -> None:
    metadata.set_value("preempted", "TRUE")


def _workers(around: BenchEnvironment) -> list[Figure]:
    rest = 8.0 if around.quick else 25.0
    with ExitStack() as stack:
        aws = stack.enter_context(open_aws_fake())
        gce = stack.enter_context(open_fake_gce())
        on_aws = {
            **ENVIRONMENT,
            "LOWTIDE_AWS_REGIONS": "us-east-1",
            "LOWTIDE_AWS_IMAGE": IMAGE_PARAMETER,
            "LOWTIDE_AWS_ENDPOINT_URL": aws.url,
        }
        on_gcp = {
            "LOWTIDE_GCP_PROJECT": PROJECT,
            "LOWTIDE_GCP_ENDPOINT": gce.endpoint,
            "LOWTIDE_GCP_CATALOG_URL": gce.endpoint,
        }
        settings = {
            "aws": on_aws,
            "gcp": on_gcp,
            "aws,gcp": {**on_aws, **on_gcp},
        }
        return [_worker(around, name, rest, more) for name, more in settings.items()]


def _worker(around: BenchEnvironment, clouds: str, rest: float, more: dict[str, str]) -> Figure:
    folder, url = around.new_folder("worker"), around.postgres.clone()
    engine = make_engine(url)
    job_rows.make_deployment(engine)
    environment = {
        **plain_environment(),
        **api_settings(url, around.valkey_url, folder),
        "LOWTIDE_PROVIDERS": clouds,
        "LOWTIDE_PUBLIC_URL": "http://127.0.0.1:8000",
        **more,
    }
    around.say(f"a worker with {clouds} rests {rest:.0f} s")
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.entrypoints", "worker"],
            cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        time.sleep(rest)
        if process.poll() is not None:
            raise RuntimeError(f"the worker ended: {_end_of(folder / 'worker.log')}")
        held = memory([process.pid])
        with engine.connect() as connection:
            pools = connection.exec_driver_sql("SELECT count(*) FROM pools").scalar()
        if not pools:
            raise RuntimeError(f"the worker read no prices: {_end_of(folder / 'worker.log')}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_SECONDS)
        engine.dispose()
    detail = {"pss_mb": round(held.pss_bytes / _MB, 1), "pools": pools}
    what = f"idle worker with {clouds.replace(',', ' and ')}, RSS"
    return Figure("notices", what, held.rss_bytes / _MB, "MB", None, True, detail)


def _end_of(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-1500:]
