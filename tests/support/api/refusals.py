"""What a refusal must be: a status, and a sentence that says why in the form of RFC 9457."""

from __future__ import annotations

import httpx


def assert_refused(
    answer: httpx.Response, status: int, *words: str, field: str | None = None
) -> None:
    """Fails the test unless the request was refused so, with these words, for this field."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    for each in words:
        assert each in told["detail"]
    if field is not None:
        assert told["errors"][0]["field"] == field
