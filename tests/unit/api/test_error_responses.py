"""Each kind of error gets one status, one sentence and problem+json, whatever it carries."""

import asyncio
import json
import logging
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg_pool import PoolTimeout
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from app.api.serving.error_responses import PROBLEM_JSON, install_error_responses, problem
from app.domain.lifecycle.job import JOB_TRANSITIONS, JobEvent, JobState
from app.domain.units.errors import (
    CommandRefused,
    InvalidValue,
    NotFound,
    ProblemKind,
    SpecError,
    SpecProblem,
)
from app.ports.cloud_provider import ProviderError, RefusalKind
from app.ports.object_store import ObjectStoreError
from app.storage.session.storage_errors import RowsLocked

_SPEC_ERROR = SpecError(
    [
        SpecProblem("trainer.epochs", "trainer.epochs: must be at least 1, not -1"),
        SpecProblem("modle", "unknown field 'modle'", ProblemKind.UNKNOWN_FIELD),
    ]
)


def _illegal() -> Exception:
    with pytest.raises(CommandRefused) as caught:
        JOB_TRANSITIONS.next_state(JobState.SUCCEEDED, JobEvent.RESUMED)
    return caught.value


def _answer(error: Exception) -> tuple[int, dict[str, Any], dict[str, Any]]:
    app = FastAPI()
    install_error_responses(app)

    @app.get("/broken")
    def broken() -> None:
        raise error

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            return await client.get("/broken")

    answer = asyncio.run(ask())
    assert answer.headers["content-type"] == PROBLEM_JSON
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["instance"] == "/broken"
    assert document["title"]
    return answer.status_code, document, dict(answer.headers)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (_SPEC_ERROR, 422),
        (InvalidValue("after: use the next", "after"), 422),
        (CommandRefused("The job is paused."), 409),
        (_illegal(), 409),
        (NotFound("There is no job 'x'."), 404),
        (HTTPException(413, "too large"), 413),
        (psycopg.errors.LockNotAvailable("x"), 503),
        (RowsLocked("x"), 503),
        (OperationalError("SELECT", {}, psycopg.errors.LockNotAvailable("x")), 503),
        (OperationalError("SELECT", {}, psycopg.errors.QueryCanceled("x")), 503),
        (OperationalError("SELECT", {}, psycopg.OperationalError("server closed")), 503),
        (psycopg.DataError("out of range"), 422),
        (PoolTimeout("x"), 503),
        (ObjectStoreError("disk full"), 503),
        (ProviderError(RefusalKind.REJECTED, "this machine has ended"), 409),
        (ProviderError(RefusalKind.UNAVAILABLE, "no answer"), 503),
        (ZeroDivisionError("secret detail"), 500),
        (psycopg.errors.UndefinedTable("secret detail"), 500),
    ],
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_an_error_has_its_status_and_a_sentence(error: Exception, status: int):
    found, document, _ = _answer(error)
    assert found == status
    assert len(document["detail"]) > 3
    assert "Traceback" not in document["detail"]
    assert "secret" not in json.dumps(document)


def test_a_refused_spec_lists_every_field():
    _, document, _ = _answer(_SPEC_ERROR)
    assert document["errors"] == [
        {
            "field": "trainer.epochs",
            "message": "trainer.epochs: must be at least 1, not -1",
            "kind": "invalid",
        },
        {"field": "modle", "message": "unknown field 'modle'", "kind": "unknown_field"},
    ]


def test_what_may_pass_by_itself_says_when_to_try_again():
    _, _, headers = _answer(psycopg.errors.LockNotAvailable("x"))
    assert headers["retry-after"] == "1"


def test_an_unexpected_error_is_told_to_the_log_alone(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR):
        _, document, _ = _answer(ZeroDivisionError("secret detail"))
    assert "secret detail" in caplog.text
    assert "log" in document["detail"]


def test_text_that_is_no_unicode_is_shown_as_well_as_possible():
    answer = problem(422, "bad \ud800 text")
    assert json.loads(bytes(answer.body))["detail"] == "bad ? text"
