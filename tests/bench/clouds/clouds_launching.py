"""Two hundred machines asked of a cloud that takes five calls a second, one of which never answers.

The production controllers on the worker's own threads, the real SDKs, and the fakes with a token
bucket before the call that starts machines. Not here: sweeps (`clouds_sweeping`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from google.auth.credentials import AnonymousCredentials

from app.adapters.providers.aws.opening import open_aws
from app.adapters.providers.gcp.client.compute_api import ComputeApi
from app.adapters.providers.gcp.client.gcp_settings import GcpSettings
from app.adapters.providers.gcp.prices.price_source import GcpPriceSource
from app.adapters.providers.gcp.provider import GcpProvider
from app.adapters.providers.machine_catalog import shipped_catalog
from app.adapters.system_clock import steady_seconds
from app.adapters.thread_effects import ThreadEffects
from app.domain.spec.job_spec import parse_spec
from app.orchestration.frame.controller_frame import AnyController, run_controller
from app.orchestration.frame.limits import Limits
from app.orchestration.frame.runtime import Runtime
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.market.refresh_prices import RefreshPrices
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.queue.submit_job import submit_job
from app.settings import Settings
from app.storage.session.engine import make_engine
from app.storage.unit_of_work import PostgresUnitOfWorkFactory
from tests.bench import job_rows
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.results import Figure
from tests.support.api.agent_api import BY_PERSON, make_runtime
from tests.support.aws.aws_fake import AwsFake
from tests.support.aws.aws_fake_ec2 import xml_error
from tests.support.aws.aws_parts import a_script, settings_for, shared_session
from tests.support.aws.aws_world import AwsWorld
from tests.support.gce.gce_fake import FakeGce
from tests.support.gce.gce_fake_engine import World
from tests.support.gce.gce_fake_requests import ApiError
from tests.support.gce.gce_fake_state import PROJECT
from tests.support.stories.idle_controllers import run_until_idle
from workers.controller_threads import ControllerThreads
from workers.due_timer import DueTimer

CALLS_PER_SECOND = 5.0
BURST = 5
HANG_SECONDS = 25.0
_PATIENCE_SECONDS = 115.0
_DEPLOYMENT = str(UUID(int=1))


@dataclass
class Bucket:
    """The API's limit on calls that start machines, and what became of those calls.

    The first call hangs: its caller waits and is answered with an error in the end.
    """

    tokens: float = BURST
    at: float = field(default_factory=time.monotonic)
    taken_at: list[float] = field(default_factory=list)
    throttled: int = 0
    hung: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> str:
        """`go`, `hang` or `throttle`."""
        with self.lock:
            now = time.monotonic()
            self.tokens = min(BURST, self.tokens + (now - self.at) * CALLS_PER_SECOND)
            self.at = now
            if self.tokens < 1:
                self.throttled += 1
                return "throttle"
            self.tokens -= 1
            if not self.hung:
                self.hung = True
                return "hang"
            self.taken_at.append(now)
            return "go"


class LimitedGce(FakeGce):
    """Compute Engine with the bucket before inserts."""

    def __init__(self, bucket: Bucket, room: int) -> None:
        self.bucket = bucket
        zones: dict[str, tuple[str, ...]] = {
            "us-central1": ("us-central1-a", "us-central1-b", "us-central1-c")
        }
        super().__init__(World(zones, ("a2-highgpu-1g",), room=room))

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """The bucket first."""
        if method == "POST" and path.endswith(("/instances", "/instances/bulkInsert")):
            what = self.bucket.take()
            if what == "hang":
                self._stopping.wait(HANG_SECONDS)
                raise ApiError(503, "backendError", "took too long")
            if what == "throttle":
                raise ApiError(429, "rateLimitExceeded", "Rate Limit Exceeded")
        return super().answer(method, path, query, body)


class LimitedAws(AwsFake):
    """EC2 with the bucket before CreateFleet."""

    def __init__(self, bucket: Bucket, room: int) -> None:
        self.bucket = bucket
        super().__init__(AwsWorld(spot_room=room, on_demand_room=room))

    def answer(self, region: str, service: str, *rest: Any) -> Any:
        """The bucket first."""
        if service == "ec2" and ("Action", "CreateFleet") in parse_qsl(rest[-1].decode()):
            what = self.bucket.take()
            if what == "hang":
                time.sleep(HANG_SECONDS)
                return xml_error("InternalError", "took too long", 500)
            if what == "throttle":
                return xml_error("RequestLimitExceeded", "Request limit exceeded.", 503)
        return super().answer(region, service, *rest)


def measure(around: BenchEnvironment) -> list[Figure]:
    """Both clouds, one after the other."""
    count = 40 if around.quick else 200
    return [*_on_cloud(around, "gcp", count), *_on_cloud(around, "aws", count)]


def _on_cloud(around: BenchEnvironment, name: str, count: int) -> list[Figure]:
    bucket = Bucket()
    with ExitStack() as stack:
        engine = make_engine(around.postgres.clone(), max_overflow=30)
        stack.callback(engine.dispose)
        project_id = job_rows.make_deployment(engine)
        runtime = make_runtime(engine, around.new_folder("store"), Limits())
        open_cloud = _gcp if name == "gcp" else _aws
        provider, prices = stack.enter_context(open_cloud(bucket, count))
        runtime = replace(runtime, providers={name: provider}, price_sources={name: prices})
        around.say(f"{name}: claiming {count} jobs of one machine")
        _order_launches(runtime, project_id, "A100:1" if name == "gcp" else "A10G:1", count)
        with runtime.begin() as uow:
            waiting = len(uow.launches.due(uow.now, 10 * count))
        if waiting != count:
            raise RuntimeError(f"{waiting} launches wait, not {count}")
        around.say(f"{name}: {count} launches wait; opening the worker's threads")
        began = time.monotonic()
        bucket.tokens, bucket.at = BURST, began
        with _worker(runtime):
            _wait(lambda: len(bucket.taken_at) >= count - 1, began)
            seconds = max(bucket.taken_at) - began
    # The hung call took a token too, and is answered long after the others are through.
    ideal = (count - BURST) / CALLS_PER_SECOND
    detail = {
        "seconds": round(seconds, 1),
        "at_the_limit_seconds": ideal,
        "throttled_calls": bucket.throttled,
        "one_call_hung_seconds": HANG_SECONDS,
    }
    what = f"{name}: {count} launches, one hung, time of the API's own limit"
    return [Figure("launches", what, seconds / ideal, "x", 1.2, True, detail)]


def _order_launches(runtime: Runtime, project_id: UUID, gpu: str, count: int) -> None:
    run_controller(runtime, RefreshPrices(runtime))
    spec = parse_spec({"run": "true", "resources": {"gpu": gpu}})
    for _ in range(count):
        with runtime.begin() as uow:
            submit_job(uow, runtime, project_id, spec, BY_PERSON)
    run_until_idle(runtime, [ClaimJobs(runtime)])


@contextmanager
def _worker(made: Runtime) -> Iterator[None]:
    """The worker's threads and due timer, as `workers.tasks` puts them together."""
    settings = Settings()
    threads = ControllerThreads(settings.worker_quick_threads)
    effects = ThreadEffects(settings.worker_cloud_threads)
    begin = PostgresUnitOfWorkFactory(made.begin._engine, threads)  # type: ignore[attr-defined]
    runtime = replace(made, wakeups=threads, effects=effects, begin=begin)
    controllers: dict[str, AnyController] = {"launch_instances": LaunchInstances(runtime)}
    alarms = DueTimer(runtime.begin, controllers, threads.notify, steady_seconds)
    threads.open(controllers, lambda one: run_controller(runtime, one), alarms.after_run)
    alarms.start()
    try:
        yield
    finally:
        alarms.close(1.0)
        threads.close(HANG_SECONDS + 10)
        effects.close()


def _wait(done: Callable[[], bool], began: float) -> None:
    while not done():
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise RuntimeError(f"not all launches were made within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.05)


@contextmanager
def _gcp(bucket: Bucket, room: int) -> Iterator[tuple[Any, Any]]:
    fake = LimitedGce(bucket, room)
    try:
        settings = GcpSettings(
            project=PROJECT,
            regions=("us-central1",),
            endpoint=fake.endpoint,
            catalog_url=fake.endpoint,
        )
        api = ComputeApi(settings, AnonymousCredentials())
        prices = GcpPriceSource(api, shipped_catalog("gcp"))
        provider = GcpProvider(
            settings,
            api,
            shipped_catalog("gcp"),
            deployment_id=lambda: _DEPLOYMENT,
            render=a_script,
            price_of=prices.price_of,
        )
        yield provider, prices
    finally:
        fake.stop()


@contextmanager
def _aws(bucket: Bucket, room: int) -> Iterator[tuple[Any, Any]]:
    fake = LimitedAws(bucket, room)
    try:
        yield open_aws(
            settings_for(fake, regions=("us-east-1",), queue_url=None),
            shipped_catalog("aws"),
            deployment_id=lambda: _DEPLOYMENT,
            render=a_script,
            session=shared_session(),
        )
    finally:
        fake.close()
