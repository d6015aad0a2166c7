"""What agents call: registration, reports, logs, working folders, secrets. No inbound port on
machines.

Lives here: HTTP in and out, and which error has which status. Not here: what a report does
(`app.orchestration.agents.receive_agent_report`), or the memory that answers steady ones
(`app.orchestration.directives.agent_report_cache`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Annotated, Any, TypeVar
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi import Path as PathParameter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from app.api.agents.grant_cache import StorageGrants, read_held
from app.api.agents.report_cache_driver import ReportCacheDriver
from app.api.agents.secret_access import AccessNotIssued, SecretAccess
from app.api.serving import shapes
from app.api.serving.error_responses import PROBLEM_JSON
from app.api.serving.json_answers import JSON, as_json
from app.domain.access.principal import Origin
from app.domain.deployment.credentials import digest
from app.orchestration.agents.append_logs import (
    CHUNK_BYTES_MAX,
    GAP_BYTES_MAX,
    LogOffsetRefused,
    LogStreamRefused,
    append_log,
    fill_log_gap,
)
from app.orchestration.agents.read_workdir import read_workdir
from app.orchestration.agents.receive_agent_report import (
    CredentialRefused,
    FenceRefused,
    receive_in_transaction,
)
from app.orchestration.agents.record_refusal import record_refusal
from app.orchestration.agents.register_agent import (
    AgentRefused,
    NotKnownYet,
    TokenRefused,
    register_agent,
)
from app.orchestration.directives.agent_report_cache import CacheSilent
from app.orchestration.directives.read_steady_report import (
    INT_MAX,
    METRICS_MAX,
    PROTOCOLS,
    SECONDS_MAX,
    STEP_MAX,
    TEXT_MAX,
    read_steady,
)
from app.orchestration.secrets.deliver_secrets import AskedSecrets, deliver_secrets
from trainer.protocol.agent_report import FACTS_PER_REPORT_MAX, AgentReport, Pace, Registration
from trainer.protocol.directive import RegistrationReply, ReportReply
from trainer.protocol.run_config import SecretDelivery
from trainer.protocol.storage_access import StorageGrant
from trainer.protocol.wire import WireError, decode, encode

REPORT_BYTES_MAX = 4 << 20
_UPTIME_MS_MAX = 10 * 366 * 24 * 3_600_000
_CREDENTIAL_LENGTH_MAX = 200
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="lowtide agents"'}
_SOON = {"Retry-After": "1"}

log = logging.getLogger(__name__)
router = APIRouter(prefix="/agent/v1", tags=["agents"])
Shape = TypeVar("Shape", AgentReport, Registration)


class AppendedLog(shapes.Shape):
    """Where the stream ends now; `kept` is false when the job's logs are full."""

    next_offset: int
    kept: bool


def _report_cache(request: Request) -> ReportCacheDriver:
    board: ReportCacheDriver = request.app.state.report_cache
    return board


def _grants(request: Request) -> StorageGrants:
    grants: StorageGrants = request.app.state.storage_grants
    return grants


def _secret_access(request: Request) -> SecretAccess:
    access: SecretAccess = request.app.state.secret_access
    return access


def _credential_hash(request: Request) -> str:
    """Digest of the caller's credential; the credential itself goes no further. Raises 401."""
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not 0 < len(credential) <= _CREDENTIAL_LENGTH_MAX:
        raise HTTPException(401, "Send this machine's credential as a Bearer token.", _CHALLENGE)
    return digest(credential)


async def _body(request: Request) -> bytes:
    """The body, at most 4 MiB of it; 413 for more."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > REPORT_BYTES_MAX:
            raise HTTPException(413, "The body is larger than 4 MiB; send fewer facts at once.")
        pieces.append(piece)
    return b"".join(pieces)


async def _chunk(request: Request) -> bytes:
    """A piece of a log; 413 beyond 1 MiB, before more is read."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > CHUNK_BYTES_MAX:
            raise HTTPException(413, "A piece of a log has at most 1 MiB; cut it.")
    return bytes(content)


CredentialHash = Annotated[str, Depends(_credential_hash)]
ReportCache = Annotated[ReportCacheDriver, Depends(_report_cache)]
Body = Annotated[bytes, Depends(_body)]
Chunk = Annotated[bytes, Depends(_chunk)]


@contextmanager
def _refusals() -> Iterator[None]:
    """Give what the rules refuse the status that the protocol has for it."""
    try:
        yield
    except (CredentialRefused, TokenRefused) as error:
        raise HTTPException(401, error.message, _CHALLENGE) from None
    except (FenceRefused, LogStreamRefused) as error:
        raise HTTPException(403, error.message) from None
    except NotKnownYet as error:
        raise HTTPException(425, error.message, _SOON) from None
    except WireError as error:
        raise HTTPException(422, f"{error}") from None


class ArchiveAnswer(StreamingResponse):
    """A packed working folder."""

    media_type = "application/gzip"


@router.post("/register", response_model=None, responses={200: {"model": RegistrationReply}})
def register(board: ReportCache, body: Body) -> Response:
    """Exchange a launch's token for the instance's own credential; a lost answer may be requested
    again with the same nonce.
    """
    runtime = board.runtime
    with _refusals():
        registration = _read(Registration, _document(body))
        try:
            with runtime.begin() as uow:
                reply = register_agent(uow, runtime, registration)
        except AgentRefused:
            machine = registration.provider_instance_id
            log.error("alarm: a second agent tried to register for machine %s", machine)
            with runtime.begin() as uow:
                record_refusal(uow, runtime, registration)
            raise
    return as_json(encode(reply))


@router.post("/reports", response_model=None, responses={200: {"model": ReportReply}})
async def report(request: Request) -> Response:
    """Say how the machine is and what has happened there; the answer is what it should be."""
    board, credential_hash = _report_cache(request), _credential_hash(request)
    document = _document(await _body(request))
    steady = read_steady(document)
    if steady is not None:
        try:
            answer = board.cache.answer(credential_hash, steady)
        except CacheSilent:
            text = "The answer cannot be stored at the moment; try again."
            raise HTTPException(503, text, _SOON) from None
        if answer is not None:
            content, job_id, directive = answer
            held = read_held(document) if "storage" in document else None
            grants = await _grants(request).for_report(job_id, directive, held) if held else ()
            return Response(_with_grants(content, grants) if grants else content, media_type=JSON)
    with _refusals():
        news = _read(AgentReport, document)
        job_id, reply = await _receive(board, credential_hash, news)
    grants = await _grants(request).for_report(job_id, reply.directive, news.storage)
    return Response(orjson.dumps(encode(replace(reply, storage=grants))), media_type=JSON)


def _with_grants(content: bytes, grants: tuple[StorageGrant, ...]) -> bytes:
    return orjson.dumps({**orjson.loads(content), "storage": encode(grants)})


async def _receive(
    board: ReportCacheDriver, credential_hash: str, news: AgentReport
) -> tuple[UUID, ReportReply]:
    """Take a report in under its job's lock, and remember the agent: its job, and the answer."""
    computed = board.cache.now()
    job_id, reply = await run_in_threadpool(
        receive_in_transaction, board.runtime, credential_hash, news
    )
    board.cache.admit(credential_hash, job_id, news, reply, computed)
    return job_id, reply


@router.post("/logs", response_model=None, responses={200: {"model": AppendedLog}})
def append(
    board: ReportCache,
    credential_hash: CredentialHash,
    stream: Annotated[str, Query(max_length=TEXT_MAX)],
    byte_offset: Annotated[int, Query(ge=0, lt=STEP_MAX)],
    content: Chunk,
    gap_bytes: Annotated[int, Query(ge=0, le=GAP_BYTES_MAX)] = 0,
    fills_gap: bool = False,
) -> Response:
    """Append bytes to a log of the machine's job; 409 tells where the stream ends.

    `gap_bytes` leaves a place before them; with `fills_gap` they belong to the beginning of one.
    """
    asked = (board.runtime, credential_hash, stream, byte_offset, content)
    with _refusals():
        try:
            done = fill_log_gap(*asked) if fills_gap else append_log(*asked, gap_bytes)
        except LogOffsetRefused as error:
            refusal = {
                "type": "urn:lowtide:problem:log-offset",
                "title": "The stream does not end there",
                "status": 409,
                "detail": error.message,
                "next_offset": error.next_offset,
            }
            return Response(orjson.dumps(refusal), 409, media_type=PROBLEM_JSON)
    return as_json({"next_offset": done.next_offset, "kept": done.kept})


@router.get(
    "/attempts/{fence}/secrets", response_model=None, responses={200: {"model": SecretDelivery}}
)
async def secrets(
    request: Request,
    board: ReportCache,
    access: Annotated[SecretAccess, Depends(_secret_access)],
    credential_hash: CredentialHash,
    fence: Annotated[int, PathParameter(ge=0, le=INT_MAX)],
) -> Response:
    """The secrets that the machine's job names, by name, and what opens those of clouds: for
    members of the live attempt, until it is told to train. 409 says which are missing, cannot be
    read or are not allowed, or that it has asked too often; 503 that a cloud gave no credential.
    """
    origin: Origin | None = getattr(request.state, "origin", None)

    def ask() -> AskedSecrets:
        with board.runtime.begin() as uow:
            return deliver_secrets(uow, board.runtime, credential_hash, fence, origin)

    with _refusals():
        # What was asked is in the audit before any cloud is, and no lock is held meanwhile.
        asked = await run_in_threadpool(ask)
        try:
            delivery = await access.delivery(asked)
        except AccessNotIssued as error:
            raise HTTPException(503, f"{error}", _SOON) from None
    return as_json(encode(delivery), headers={"Cache-Control": "no-store"})


@router.get("/workdirs/{digest}", response_model=None, response_class=ArchiveAnswer)
def workdir(board: ReportCache, credential_hash: CredentialHash, digest: str) -> Response:
    """The packed working folder (`sha256:…`) of the machine's own job."""
    with _refusals():
        pieces = read_workdir(board.runtime, credential_hash, digest)
    return ArchiveAnswer(pieces)


def _document(body: bytes) -> Any:
    """The JSON of a body; 422 when it is none, 426 when it speaks another protocol."""
    try:
        # The database holds no NUL. One in the output of a user's trainer, which a fact quotes,
        # must not cost the machine its lease: it is replaced, and the document stays as long.
        document = orjson.loads(body.replace(b"\\u0000", b"\\ufffd"))
    except orjson.JSONDecodeError as error:
        raise HTTPException(422, f"The body is not valid JSON: {error}.") from None
    spoken = document.get("protocol") if isinstance(document, dict) else None
    if isinstance(spoken, int) and spoken not in PROTOCOLS:
        text = f"Protocol {spoken} is not supported, only {PROTOCOLS[0]}; start a newer agent."
        raise HTTPException(426, text, {"Upgrade": f"lowtide-agent/{PROTOCOLS[0]}"})
    return document


def _read(shape: type[Shape], document: Any) -> Shape:
    """The document as a shape, within what can be stored; WireError names the field."""
    found = decode(shape, document)
    if isinstance(found, AgentReport):
        _check_report(found)
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, str) and len(value) > TEXT_MAX:
            raise WireError(f"{field.name}: at most {TEXT_MAX} characters")
    if isinstance(found, Registration) and not 0 < found.port_from <= found.port_to <= 65_535:
        raise WireError("port_from: ports are 1 to 65535, the first not above the last")
    return found


def _check_report(found: AgentReport) -> None:
    facts, progress = found.facts, found.progress
    _within("seq", found.seq, INT_MAX)
    _within("fence", found.fence, INT_MAX)
    _within("uptime_ms", found.uptime_ms, _UPTIME_MS_MAX)
    if progress is not None:
        _within("progress.step", progress.step, STEP_MAX)
        _within("progress.total_steps", progress.total_steps, STEP_MAX)
        if len(progress.metrics) > METRICS_MAX:
            raise WireError(f"progress.metrics: at most {METRICS_MAX} of them")
        if progress.pace is not None:
            _check_pace(progress.pace)
    if found.disk_full is not None:
        _within("disk_full.free_bytes", found.disk_full.free_bytes, STEP_MAX)
    for held in found.storage or ():
        if len(held.service) > TEXT_MAX or len(held.grant) > TEXT_MAX:
            raise WireError(f"storage: at most {TEXT_MAX} characters in a name")
    if len(facts) > FACTS_PER_REPORT_MAX:
        raise WireError(f"facts: at most {FACTS_PER_REPORT_MAX} in one report")
    for index, fact in enumerate(facts):
        _within(f"facts[{index}].fact_no", fact.fact_no, INT_MAX)
        _within(f"facts[{index}].fence", fact.fence, INT_MAX)
        _within(f"facts[{index}].uptime_ms", fact.uptime_ms, _UPTIME_MS_MAX)


def _check_pace(pace: Pace) -> None:
    _within("progress.pace.first_step", pace.first_step, STEP_MAX)
    _within("progress.pace.last_step", pace.last_step, STEP_MAX)
    if pace.last_step < pace.first_step:
        raise WireError("progress.pace.last_step: expected no less than first_step")
    for name in ("stepping_seconds", "start_up_seconds"):
        if not 0 <= getattr(pace, name) <= SECONDS_MAX:
            raise WireError(f"progress.pace.{name}: expected 0 to {SECONDS_MAX:.0f} seconds")


def _within(field: str, value: int | None, most: int) -> None:
    if value is not None and not 0 <= value <= most:
        raise WireError(f"{field}: expected a whole number from 0 to {most}")
