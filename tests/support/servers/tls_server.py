"""A certificate authority of a test's own, and a server on loopback with its certificate."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.servers.http_server import QuietHandler


class Authority:
    """A certificate authority that this test alone trusts."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("a test's authority")
        self.certificate = self._signed(self._name, self._key, 3_650, authority=True)

    @property
    def pem(self) -> bytes:
        """Its certificate, as SSL_CERT_FILE holds it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def context(self) -> ssl.SSLContext:
        """Trusts this authority, as machines trust public ones."""
        return ssl.create_default_context(cadata=self.pem.decode("ascii"))

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


class Healthy(QuietHandler):
    """Answers as the api does."""

    def serve(self) -> None:
        self.answer(200, b'{"status": "ok"}')


@contextmanager
def served(context: ssl.SSLContext | None, handler: type[QuietHandler] = Healthy) -> Iterator[int]:
    """A server on loopback, with TLS where a context is given: its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
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
