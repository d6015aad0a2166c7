"""What access control costs: a decision of `may`, and submissions with many keys beside one key.

Both loads go to one served api in turn: the same body, with 500 keys of 50 projects or with one.
Not here: what a submission costs beside a raw handler (`submit_rate`).
"""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from statistics import median
from time import process_time
from uuid import UUID, uuid4

from app.domain.access.may import AccessDecision, Resource, may
from app.domain.access.principal import Principal
from app.domain.access.roles import Action, Role
from app.storage.session.engine import make_engine
from tests.bench.api.submit_rate import CONNECTIONS, SPEC
from tests.bench.bench_environment import API_APP, BenchEnvironment, api_settings, serve
from tests.bench.load_client import NextRequest, run_load
from tests.bench.results import Figure
from tests.support.api.people_api import make_key, make_project

PROJECTS = 50
KEYS = 500
GOAL_MAY_US = 5.0
GOAL_RATE = 0.9
_BODY = json.dumps({name: value for name, value in SPEC.items() if name != "project"}).encode()


def measure(around: BenchEnvironment) -> list[Figure]:
    """Both figures."""
    times = 20_000 if around.quick else 200_000
    around.say(f"asking may() {times:,} times for each role")
    asked = _may_microseconds(times)
    rounds, seconds = (2, 1.0) if around.quick else (7, 2.5)
    pairs = _submissions(around, rounds, seconds)
    ratio = median(many / one for many, one in pairs)
    detail = {
        "keys": KEYS,
        "projects": PROJECTS,
        "one_key_per_second": round(median(one for _, one in pairs), 1),
    }
    return [
        Figure("access", "may(), of the dearest role", asked, "us", GOAL_MAY_US),
        Figure(
            "access", f"POST /jobs, {KEYS} keys ÷ one key", ratio, "x", GOAL_RATE, False, detail
        ),
    ]


def _may_microseconds(times: int) -> float:
    """Processor time of one answer, of the role for which it takes longest."""
    project_id, key_id = uuid4(), uuid4()
    return max(_of_role(role, project_id, key_id, times) for role in Role)


def _of_role(role: Role, project_id: UUID, key_id: UUID, times: int) -> float:
    principal = Principal(key_id, "bench", project_id, "vision", role)
    own = Resource(project_id, key_id)
    resources = (own, Resource(project_id), Resource(uuid4(), key_id))
    questions = [(action, one) for action in Action for one in resources]
    allowed, began = 0, process_time()
    for action, one in itertools.islice(itertools.cycle(questions), times):
        allowed += may(principal, action, one) is AccessDecision.ALLOWED
    taken = process_time() - began
    if not 0 < allowed < times:
        raise RuntimeError(f"may() gave {role} one answer to every question")
    return taken / times * 1e6


def _submissions(
    around: BenchEnvironment, rounds: int, seconds: float
) -> list[tuple[float, float]]:
    """Submissions a second, with many keys and with one, in rounds side by side."""
    url, folder = around.postgres.clone(), around.new_folder("access")
    engine = make_engine(url)
    projects = [make_project(engine, f"team-{number}") for number in range(PROJECTS)]
    keys = [
        make_key(engine, projects[number % PROJECTS], f"key-{number}") for number in range(KEYS)
    ]
    engine.dispose()
    settings = api_settings(url, around.valkey_url, folder)
    found = []
    with ExitStack() as stack:
        program = stack.enter_context(serve(API_APP, folder, "/readyz", settings))
        many, one = _requests(keys), _requests(keys[:1])
        for requests in (many, one):
            run_load(program.port, requests, CONNECTIONS, 1.0, 201)
        for number in range(rounds):
            rates = [
                run_load(program.port, requests, CONNECTIONS, seconds, 201).per_second
                for requests in (many, one)
            ]
            around.say(f"round {number + 1}/{rounds}: {rates[0]:,.0f}/s, {rates[1]:,.0f}/s")
            found.append((rates[0], rates[1]))
    return found


def _requests(keys: list[str]) -> NextRequest:
    """Submissions with these keys in turn, each with an idempotency key of its own."""
    numbers = itertools.count(1)
    heads = itertools.cycle(
        (
            "POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {key}\r\nContent-Length: {len(_BODY)}\r\nIdempotency-Key: "
        ).encode()
        for key in keys
    )
    of_these = f"{len(keys)}-keys".encode()
    return lambda: b"%b%b-%012d\r\n\r\n%b" % (next(heads), of_these, next(numbers), _BODY)
