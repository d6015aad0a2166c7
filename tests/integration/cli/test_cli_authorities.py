"""Whom the command line trusts: an authority of one's own over https, nobody over plain http."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed
from app.cli.client.server_address import Server
from tests.support.servers.tls_server import Authority, served


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def ask(url: str) -> object:
    with ApiClient(Server(url, None)) as api:
        return api.get("/health")


def test_an_authority_of_one_s_own_counts_also_on_this_machine(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(authority.pem)
    with served(authority.server(tmp_path, "localhost", 60)) as port:
        url = f"https://localhost:{port}"
        with pytest.raises(CommandFailed, match="certificate verify failed"):
            ask(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        assert ask(url) == {"status": "ok"}


def test_authorities_that_cannot_be_read_are_a_sentence_and_no_matter_without_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/authorities.pem")
    with pytest.raises(CommandFailed, match="SSL_CERT_FILE or SSL_CERT_DIR cannot be read"):
        ask("https://localhost:1")
    with served(None) as port:
        assert ask(f"http://localhost:{port}") == {"status": "ok"}
        assert ask(f"http://127.0.0.1:{port}") == {"status": "ok"}
