"""One sweep over ten thousand machines of each cloud, all of them known: what it costs us.

The production controller and the real SDK; Compute Engine is our fake, EC2's pages are one machine
as the fake account shows it, ten thousand times. Processor time is that of the sweeping thread and
of PostgreSQL, so that the fakes, which run beside it, do not count. Not here: launches.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from google.auth.credentials import AnonymousCredentials
from sqlalchemy import Engine, insert

from app.adapters.providers.aws.provider import AwsProvider
from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.domain.spec.job_spec import parse_spec
from app.orchestration.deployment.sweep_deployment import SweepDeployment
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.frame.limits import Limits
from app.orchestration.queue.submit_job import submit_job
from app.ports.cloud_provider import CloudMachine, CloudProvider
from app.storage.schema import tables
from app.storage.session.engine import make_engine
from tests.bench import job_rows
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.results import Figure
from tests.support.api.agent_api import BY_PERSON, make_runtime
from tests.support.aws.aws_fake import AwsFake, open_aws_fake
from tests.support.aws.aws_parts import (
    DEPLOYMENT,
    a_script,
    aws_order,
    provider_for,
    settings_for,
    shared_session,
)
from tests.support.gce.gce_fake import FakeGce
from tests.support.gce.gce_fake_engine import World
from tests.support.gce.gce_fake_state import PROJECT, Vm

_PAGE = 1_000
_ITEM = re.compile(rb"<instancesSet>(.*)</instancesSet>", re.DOTALL)


def measure(around: BenchEnvironment) -> list[Figure]:
    """Each cloud's list and what our rows make of it."""
    count = 1_000 if around.quick else 10_000
    return [_on_cloud(around, "gcp", count), _on_cloud(around, "aws", count)]


def _on_cloud(around: BenchEnvironment, name: str, count: int) -> Figure:
    with ExitStack() as stack:
        engine = make_engine(around.postgres.clone())
        stack.callback(engine.dispose)
        project_id = job_rows.make_deployment(engine)
        runtime = make_runtime(engine, around.new_folder("store"), Limits())
        provider = stack.enter_context((_gcp if name == "gcp" else _aws)(count))
        (region,) = provider.regions()
        around.say(f"{name}: writing the rows of {count} machines")
        machines = provider.list_deployment(region).machines
        if len(machines) != count:
            raise RuntimeError(f"the fake shows {len(machines)} machines, not {count}")
        spec = parse_spec({"run": "true", "resources": {"gpu": "A100:1"}})
        with runtime.begin() as uow:
            job_id = submit_job(uow, runtime, project_id, spec, BY_PERSON).job_id
        _write_rows(engine, job_id, machines)
        job_rows.analyze(engine)
        sweeping = SweepDeployment(replace(runtime, providers={name: provider}))
        around.say(f"{name}: sweeping")
        before, began = around.postgres.cpu_seconds(), time.monotonic()
        thread_before = time.thread_time()
        run_controller(sweeping._runtime, sweeping)
        ours = time.thread_time() - thread_before
        theirs = around.postgres.cpu_seconds() - before
        wall = time.monotonic() - began
        with runtime.begin() as uow:
            (listed,) = uow.sweeps.regions()
            adopted = uow.sweeps.adopted()
    if listed.machines != count or not listed.complete or adopted:
        raise RuntimeError(f"the sweep saw {listed}, and adopted {len(adopted)}")
    detail = {"worker_cpu_s": ours, "postgres_cpu_s": theirs, "wall_s_with_the_fake": wall}
    what = f"{name}: a sweep over {count:,} machines, CPU"
    return Figure("sweeps", what, ours + theirs, "s", 60.0, True, detail)


def _write_rows(engine: Engine, job_id: UUID, machines: tuple[CloudMachine, ...]) -> None:
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = [
        {
            "id": UUID(int=number + 1),
            "job_id": job_id,
            "provider": one.pool.provider,
            "market": one.pool.market,
            "state": "launched",
            "origin": "launch",
            "requested_at": now,
            "updated_at": now,
            "pool": one.pool,
            "billing_speed": 1,
            "provider_instance_id": one.provider_instance_id,
            "launched_at": one.launched_at or now,
            "suspect": False,
            "terminate_calls": 0,
        }
        for number, one in enumerate(machines)
    ]
    with engine.begin() as connection:
        for start in range(0, len(rows), _PAGE):
            connection.execute(insert(tables.instances), rows[start : start + _PAGE])


@contextmanager
def _gcp(count: int) -> Iterator[CloudProvider]:
    zone, kind = "us-central1-a", "a2-highgpu-1g"
    fake = FakeGce(World({"us-central1": (zone,)}, (kind,)))
    try:
        labels = {"lowtide_deployment": DEPLOYMENT, "lowtide_token": "t", "lowtide_notice": "120"}
        for number in range(count):
            name = f"lt-{'a' * 16}{_letters(number)}-0-s-{kind}"
            body = {"labels": labels, "scheduling": {"provisioningModel": "SPOT"}}
            vm = Vm(name, zone, kind, body, 10**12 + number, fake.engine.now())
            vm.status, vm.started_at = "RUNNING", fake.engine.now()
            fake.engine.live[zone, name] = vm
        settings = GcpSettings(project=PROJECT, regions=("us-central1",), endpoint=fake.endpoint)
        yield GcpProvider(
            settings,
            ComputeApi(settings, AnonymousCredentials()),
            shipped_catalog("gcp"),
            deployment_id=lambda: DEPLOYMENT,
            render=a_script,
            price_of=lambda pool: None,
        )
    finally:
        fake.stop()


def _letters(number: int) -> str:
    """Four letters, another four for each number."""
    found = ""
    for _ in range(4):
        number, rest = divmod(number, 26)
        found += chr(ord("a") + rest)
    return found


class _ManyMachines:
    """EC2's pages of DescribeInstances: `item` with other ids."""

    def __init__(self, fake: AwsFake, item: bytes, machine_id: str, count: int) -> None:
        self._answer = fake.answer
        self._item, self._id, self._count = item, machine_id.encode(), count

    def answer(self, region: str, service: str, *rest: Any) -> Any:
        form = dict(parse_qsl(rest[-1].decode()))
        if service != "ec2" or form.get("Action") != "DescribeInstances":
            return self._answer(region, service, *rest)
        start = int(form.get("NextToken", "0"))
        stop = min(self._count, start + _PAGE)
        items = b"".join(
            b"<item><reservationId>r-1</reservationId><instancesSet>%s</instancesSet></item>"
            % self._item.replace(self._id, b"i-%017x" % number)
            for number in range(start, stop)
        )
        more = b"<nextToken>%d</nextToken>" % stop if stop < self._count else b""
        head = b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        body = head + b"<reservationSet>%s</reservationSet>%s" % (items, more)
        return 200, {"Content-Type": "text/xml"}, body + b"</DescribeInstancesResponse>"


@contextmanager
def _aws(count: int) -> Iterator[CloudProvider]:
    with open_aws_fake(spot_room=10) as fake:
        (machine,) = provider_for(fake).launch(aws_order()).accepted
        shown: list[bytes] = []
        answer = fake.answer

        def listen(region: str, service: str, *rest: Any) -> Any:
            reply = answer(region, service, *rest)
            shown.append(reply[2])
            return reply

        fake.answer = listen  # type: ignore[assignment]
        provider_for(fake).describe((machine.provider_instance_id,))
        found = next(filter(None, map(_ITEM.search, shown)), None)
        if found is None:
            raise RuntimeError("the fake account shows no machine")
        fake.answer = answer  # type: ignore[method-assign]
        pages = _ManyMachines(fake, found[1], machine.provider_instance_id, count)
        fake.answer = pages.answer  # type: ignore[assignment]
        yield AwsProvider(
            settings_for(fake, regions=("us-east-1",), queue_url=None),
            deployment_id=lambda: DEPLOYMENT,
            render=a_script,
            catalog=shipped_catalog("aws"),
            session=shared_session(),
        )
