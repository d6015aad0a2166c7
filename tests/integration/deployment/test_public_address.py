"""What `lowtide doctor` says of the public address: TLS as a rented machine would see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.adapters.server_probes import probe_public_url
from app.domain.deployment.check_result import CheckResult
from tests.support.servers.tls_server import Authority, served


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def by_name(found: tuple[CheckResult, ...]) -> dict[str, CheckResult]:
    return {one.name: one for one in found}


@pytest.mark.parametrize(("days", "warns"), [(60, False), (5, True)])
def test_a_valid_certificate_is_told_with_its_days(
    authority: Authority, tmp_path: Path, days: int, warns: bool
) -> None:
    with served(authority.server(tmp_path, "localhost", days + 0.5)) as port:
        found = by_name(probe_public_url(f"https://localhost:{port}", authority.context))
    assert list(found) == ["public URL: TLS", "public URL", "public URL: clock"]
    assert all(one.ok for one in found.values())
    assert f"valid for another {days}d " in found["public URL: TLS"].sentence
    assert found["public URL: TLS"].warns is warns


@pytest.mark.parametrize(
    ("host", "days", "known", "said"),
    [
        ("localhost", -1, True, "it has expired"),
        ("other.example.com", 60, True, "for another host name"),
        ("localhost", 60, False, "not a public authority"),
    ],
)
def test_what_a_machine_would_refuse_is_one_line(
    authority: Authority, tmp_path: Path, host: str, days: int, known: bool, said: str
) -> None:
    """A private authority fails even where this machine trusts it: rented ones do not."""
    with served(authority.server(tmp_path, host, days)) as port:
        context = authority.context if known else None
        (found,) = probe_public_url(f"https://localhost:{port}", context)
    assert (found.name, found.ok) == ("public URL: TLS", False)
    assert said in found.sentence
    assert found.remedy


def test_this_machine_s_own_authorities_do_not_count(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    with served(authority.server(tmp_path, "localhost", 60)) as port:
        (found,) = probe_public_url(f"https://localhost:{port}")
    assert not found.ok


def test_https_on_a_plain_port() -> None:
    with served(None) as port:
        (found,) = probe_public_url(f"https://localhost:{port}")
    assert not found.ok
    assert "does not speak TLS" in found.sentence


def test_plain_http_is_said_unless_it_stays_on_this_machine() -> None:
    with served(None) as port:
        found = by_name(probe_public_url(f"http://127.0.0.1:{port}"))
    assert "public URL: TLS" not in found
    assert found["public URL"].ok
    first = probe_public_url("http://no-such-host.invalid:1")[0]
    assert (first.name, first.ok, first.warns) == ("public URL: TLS", True, True)
    assert "plain http" in first.sentence
