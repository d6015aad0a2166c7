"""What a page says of an error, and what the log, which a terminal shows, gets of it."""

from __future__ import annotations

import logging

import psycopg
import pytest
from sqlalchemy.exc import OperationalError
from starlette.requests import Request

from app.storage.session.storage_errors import RowsLocked
from app.web.page_frame import _told

_SQL = "SELECT jobs.id FROM jobs FOR UPDATE"


@pytest.mark.parametrize(
    "error",
    [
        RowsLocked("its rows were locked by another transaction"),
        OperationalError(_SQL, {}, psycopg.OperationalError("server closed\nDETAIL: gone")),
    ],
)
def test_a_database_that_is_busy_is_told_in_one_line_without_sql(
    error: Exception, caplog: pytest.LogCaptureFixture
):
    request = Request({"type": "http", "method": "GET", "path": "/jobs", "headers": []})
    status, sentence = _told(request, error)
    assert (status, "SELECT" in sentence) == (503, False)
    [line] = caplog.records
    assert (line.levelno, line.exc_info) == (logging.WARNING, None)
    assert "\n" not in line.getMessage()
    assert "SELECT" not in line.getMessage()
