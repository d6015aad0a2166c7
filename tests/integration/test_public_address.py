"""What `lowtide doctor` says of the public address: TLS as a rented machine would see it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.adapters.server_probes import probe_public_url
from app.domain.finding import Finding


class Authority:
    """A certificate authority that this test alone trusts."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("a test's authority")
        self.certificate = self._signed(self._name, self._key, 3_650, authority=True)

    @property
    def context(self) -> ssl.SSLContext:
        """Trusts this authority, as machines trust public ones."""
        pem = self.certificate.public_bytes(serialization.Encoding.PEM)
        return ssl.create_default_context(cadata=pem.decode("ascii"))

    def server(self, folder: Path, host: str, days: float) -> ssl.SSLContext:
        """A server's side with a certificate for `host` that ends in so many days."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(_name(host), key, days, host=host)
        held = folder / "server.pem"
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        held.write_bytes(
            signed.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(serialization.Encoding.PEM, form, plain)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(held)
        return context

    def _signed(
        self, subject: x509.Name, key: Any, days: float, *, host: str = "", authority: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=90))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if host:
            made = made.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
            )
        return made.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Healthy(BaseHTTPRequestHandler):
    """Answers as the api does."""

    def do_GET(self) -> None:
        body = b'{"status": "ok"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def served(context: ssl.SSLContext | None) -> Iterator[int]:
    """A server on loopback, with TLS where a context is given: its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def by_name(found: tuple[Finding, ...]) -> dict[str, Finding]:
    return {one.name: one for one in found}


@pytest.mark.parametrize(("days", "warns"), [(60, False), (5, True)])
def test_a_valid_certificate_is_told_with_its_days(
    authority: Authority, tmp_path: Path, days: int, warns: bool
) -> None:
    with served(authority.server(tmp_path, "localhost", days + 0.5)) as port:
        found = by_name(probe_public_url(f"https://localhost:{port}", authority.context))
    assert list(found) == ["public URL: TLS", "public URL", "public URL: clock"]
    assert all(one.ok for one in found.values())
    assert f"valid for another {days} days" in found["public URL: TLS"].sentence
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
    own.write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
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
