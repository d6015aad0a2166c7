"""What is said of an address at which no Lowtide answers, and of a key that it does not take.

The advice names what decides the address: a variable goes over `lowtide login`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import BAD_INPUT, UNREACHABLE, CommandFailed
from app.cli.client.server_address import AddressSource, Server
from tests.support.servers.http_server import QuietHandler, http_server

NOBODY = "http://127.0.0.1:9"
REMEDIES = {
    AddressSource.VARIABLE: "correct LOWTIDE_SERVER_URL, or unset it",
    AddressSource.LOGIN: "run `lowtide login` with another URL, or set LOWTIDE_SERVER_URL",
    AddressSource.NOTHING: "set LOWTIDE_SERVER_URL, or run `lowtide login URL`",
}
REFUSED = b'{"title": "Unauthorized", "status": 401, "instance": "/api/v1/jobs"}'


def failure(server: Server) -> CommandFailed:
    """How a submission to it ends."""
    with pytest.raises(CommandFailed) as failed, ApiClient(server) as api:
        api.post("/jobs/check", {"run": "true"}, only_asks=True)
    return failed.value


def answering(status: int, kind: str, body: bytes) -> type[QuietHandler]:
    """A service that answers whatever is asked alike."""

    class Handler(QuietHandler):
        def serve(self) -> None:
            self.body()
            self.answer(status, body, {"Content-Type": kind})

    return Handler


@pytest.mark.parametrize("status", [404, 405, 501, 505])
@pytest.mark.parametrize("source", list(AddressSource))
def test_another_service_is_told_as_such_with_what_decides_the_address(
    status: int, source: AddressSource
) -> None:
    with http_server(answering(status, "text/html", b"<h1>It works</h1>")) as url:
        failed = failure(Server(url, "lt_key", chosen_by=source))
    assert failed.message == (
        f"{url} answered {status}: it is not the address of a Lowtide api; {REMEDIES[source]}"
    )
    assert (failed.exit_code, failed.status) == (UNREACHABLE, status)


def test_a_proxy_without_its_api_may_be_ours() -> None:
    with http_server(answering(502, "text/html", b"Bad gateway")) as url:
        told = failure(Server(url, "lt_key", chosen_by=AddressSource.VARIABLE)).message
    assert told.startswith(f"{url} failed (502): it gave no reason, as Lowtide does: a proxy ")
    assert "not the address" not in told
    assert told.endswith(f"no Lowtide should be there, {REMEDIES[AddressSource.VARIABLE]}")


@pytest.mark.parametrize("source", list(AddressSource))
def test_where_nothing_listens_the_advice_names_what_decides(source: AddressSource) -> None:
    told = failure(Server(NOBODY, "lt_key", chosen_by=source)).message
    assert "cannot be reached (Connection refused)." in told
    assert told.endswith(f"If another address is meant, {REMEDIES[source]}.")
    assert ("sets this address" in told) is (source is not AddressSource.NOTHING)


@pytest.mark.parametrize("key", [None, "lt_wrong"])
def test_a_key_that_is_not_taken_names_the_variable_of_the_address(key: str | None) -> None:
    with http_server(answering(401, "application/problem+json", REFUSED)) as url:
        named = failure(Server(url, key, chosen_by=AddressSource.VARIABLE))
        kept = failure(Server(url, key, chosen_by=AddressSource.LOGIN))
    another = "LOWTIDE_SERVER_URL names this address; if another is meant, correct LOWTIDE_"
    assert another in named.message
    assert "LOWTIDE_SERVER_URL" not in kept.message
    assert f"run `lowtide login {url}`" in kept.message
    assert named.exit_code == BAD_INPUT


def test_a_wrong_key_of_a_variable_is_not_mended_by_a_login(tmp_path: Path) -> None:
    with http_server(answering(401, "application/problem+json", REFUSED)) as url:
        told = failure(Server(url, "lt_wrong", (tmp_path,), key_in_variable=True)).message
    assert told == (
        f"{url} does not know the key in LOWTIDE_API_KEY, or it has expired or was revoked: "
        f"correct the variable, or unset it and run `lowtide login {url}`"
    )
