"""A control plane for one test of the agent: strict about the protocol, told what to direct.

Not here: any decision of the real control plane; the test plays that part.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.servers.http_server import HttpServer, QuietHandler
from trainer.protocol.agent_report import (
    PROTOCOL_VERSION,
    AgentReport,
    Fact,
    FactKind,
    Registration,
)
from trainer.protocol.directive import (
    Directive,
    DirectiveKind,
    Peer,
    RegistrationReply,
    ReportReply,
)
from trainer.protocol.run_config import CloudSecrets, RunConfig, SecretDelivery
from trainer.protocol.wire import decode, encode


class FakeControlPlane:
    """One job's machines. `told` is every fact of every machine, once, in order of arrival."""

    def __init__(self, config: RunConfig, lease_seconds: float = 60.0) -> None:
        self.config = config
        self.lease_seconds = lease_seconds
        self.told: list[tuple[str, Fact]] = []
        self.reports: list[AgentReport] = []
        self.registrations: list[Registration] = []
        self.logs: dict[str, bytes] = {}
        self.workdirs: dict[str, bytes] = {}
        self.secrets: dict[str, str] = {}
        self.secrets_asked: list[tuple[str, int]] = []
        self.secrets_refusal = ""
        self.cloud_secrets: tuple[CloudSecrets, ...] = ()
        self.secrets_delayed = 0
        self.not_known_yet = 0
        self.report_status = 200
        self.lose_log_answers = 0
        self.log_gaps = True
        self.log_seconds = 0.0
        self._gaps: dict[str, tuple[int, int]] = {}
        self.problems: list[str] = []
        self._directives: dict[str, Directive] = {}
        self._acked: dict[str, int] = {}
        self._nonces: dict[str, str] = {}
        self._lives: dict[str, int] = {}
        self._lock = threading.RLock()
        self._server = HttpServer(self._handler())

    @property
    def url(self) -> str:
        """Where agents find it."""
        return self._server.url

    def stop(self) -> None:
        """Close it; fails the test if an agent broke the protocol."""
        self._server.close()
        assert not self.problems, self.problems

    def direct(
        self,
        kind: DirectiveKind,
        fence: int | None = None,
        machine: str = "i-1",
        peers: tuple[Peer, ...] = (),
        **more: Any,
    ) -> None:
        """What this machine is to be from its next answer on."""
        with self._lock:
            version = self._directives[machine].version + 1 if machine in self._directives else 1
            attempt = f"attempt-of-fence-{fence}" if fence is not None else None
            more.setdefault("node_rank", 0)
            self._directives[machine] = Directive(
                kind, version, fence, attempt, peers=peers, **more
            )

    def forget(self, machine: str = "i-1", refusals: int = 0) -> None:
        """A restored backup lacks the machine's row: its credential is nobody's.

        It may register again after so many refusals, and is a new instance then.
        """
        with self._lock:
            self._nonces.pop(machine, None)
            self._directives.pop(machine, None)
            self._lives[machine] = self._lives.get(machine, 1) + 1
            self.not_known_yet = refusals

    def facts(self, kind: FactKind, machine: str = "i-1", fence: int | None = None) -> list[Fact]:
        """Facts of a kind so far."""
        with self._lock:
            return [
                fact
                for told_by, fact in self.told
                if told_by == machine and fact.kind is kind and fence in (None, fact.fence)
            ]

    def wait_for(
        self, kind: FactKind, machine: str = "i-1", fence: int | None = None, seconds: float = 60.0
    ) -> Fact:
        """The first such fact; fails the test when it does not come."""
        wait_until(
            lambda: bool(self.facts(kind, machine, fence)),
            lambda: f"{kind} of {machine}, fence {fence}; told: {self._summary()}",
            seconds,
        )
        return self.facts(kind, machine, fence)[0]

    def train(self, fence: int, machine: str = "i-1") -> None:
        """Prepare, then train with the port that was answered."""
        self.direct(DirectiveKind.PREPARE, fence, machine)
        prepared = self.wait_for(FactKind.PREPARED, machine, fence)
        self.direct(
            DirectiveKind.TRAIN,
            fence,
            machine,
            master_addr="127.0.0.1",
            master_port=prepared.data["master_port"],
        )

    def log_text(self) -> str:
        """All streams, one after the other."""
        with self._lock:
            return "\n".join(part.decode("utf-8", "replace") for part in self.logs.values())

    def _summary(self) -> list[tuple[str, str, int | None, dict[str, Any]]]:
        hidden = (FactKind.METRICS, FactKind.PHASE)
        return [
            (machine, fact.kind.value, fact.fence, fact.data)
            for machine, fact in self.told
            if fact.kind not in hidden
        ] + [("logs", self.log_text()[-1500:], None, {})]

    # --- the protocol ---

    def _register(self, document: Any) -> tuple[int, Any]:
        registration = decode(Registration, document)
        if registration.protocol != PROTOCOL_VERSION:
            return 426, {}
        if self.not_known_yet > 0:
            self.not_known_yet -= 1
            return 425, {}
        if registration.launch_token != "launch-token":
            return 401, {}
        machine = registration.provider_instance_id
        if self._nonces.setdefault(machine, registration.nonce) != registration.nonce:
            return 409, {}
        self.registrations.append(registration)
        if self._lives.get(machine, 1) > 1:
            self._acked[registration.session_id] = 0
        self._acked.setdefault(registration.session_id, 0)
        reply = RegistrationReply(
            instance_id=self._instance(machine),
            credential=self._credential(machine),
            lease_seconds=self.lease_seconds,
            next_report_seconds=0.2,
            run_config=self.config,
            directive=self._directive(machine),
            log_gaps=self.log_gaps,
        )
        return 200, encode(reply)

    def _report(self, document: Any, machine: str) -> tuple[int, Any]:
        if self.report_status != 200:
            return self.report_status, {}
        report = decode(AgentReport, document)
        self.reports.append(report)
        if report.instance_id != self._instance(machine):
            self.problems.append(f"{report.instance_id} with the credential of {machine}")
        acked = self._acked.setdefault(report.session_id, 0)
        numbers = [fact.fact_no for fact in report.facts]
        if numbers != sorted(set(numbers)):
            self.problems.append(f"facts out of order: {numbers}")
        for fact in report.facts:
            if fact.fact_no > acked:
                self.told.append((machine, fact))
                acked = fact.fact_no
        self._acked[report.session_id] = acked
        return 200, encode(ReportReply(acked, self.lease_seconds, 0.2, self._directive(machine)))

    def _append_log(self, query: dict[str, list[str]], content: bytes) -> tuple[int, Any]:
        stream, offset = query["stream"][0], int(query["byte_offset"][0])
        held = self.logs.setdefault(stream, b"")
        if "fills_gap" in query:
            return self._fill_gap(stream, offset, content)
        if offset != len(held):
            return 409, {"next_offset": len(held)}
        gap = int(query.get("gap_bytes", ["0"])[0])
        if gap and not self.log_gaps:
            self.problems.append("a gap for a control plane that knows none")
        if gap:
            self._gaps[stream] = (offset, offset + gap)
        self.logs[stream] = held + bytes(gap) + content
        return 200, {"next_offset": len(self.logs[stream]), "kept": True}

    def _fill_gap(self, stream: str, offset: int, content: bytes) -> tuple[int, Any]:
        held = self.logs[stream]
        begin, end = self._gaps.get(stream, (len(held), len(held)))
        if offset != begin or begin == end:
            return 409, {"next_offset": begin}
        self._gaps[stream] = (begin + len(content), end)
        self.logs[stream] = held[:begin] + content + held[begin + len(content) :]
        return 200, {"next_offset": begin + len(content), "kept": True}

    def _secrets(self, machine: str, fence: int) -> tuple[int, Any]:
        self.secrets_asked.append((machine, fence))
        directive = self._directive(machine)
        if directive.kind is not DirectiveKind.PREPARE or directive.fence != fence:
            self.problems.append(f"{machine} asks for secrets of {fence} while it is {directive}")
        if self.secrets_refusal:
            return 409, {"detail": self.secrets_refusal}
        if self.secrets_delayed:
            self.secrets_delayed -= 1
            return 503, {"detail": "No credential for aws-sm was issued: injected."}
        return 200, encode(SecretDelivery(self.secrets, self.cloud_secrets))

    def _directive(self, machine: str) -> Directive:
        return self._directives.setdefault(machine, Directive(DirectiveKind.HOLD, 1))

    def _instance(self, machine: str) -> str:
        life = self._lives.get(machine, 1)
        return f"instance-{machine}" if life == 1 else f"instance-{machine}-life-{life}"

    def _credential(self, machine: str) -> str:
        return f"credential-{self._lives.get(machine, 1)}-of-{machine}"

    def _answer(self, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        parts = urlsplit(path)
        if parts.path == "/agent/v1/register":
            return self._register(json.loads(body))
        bearer = str(headers.get("Authorization", "")).removeprefix("Bearer ")
        machine = bearer.partition("-of-")[2]
        if bearer != self._credential(machine) and parts.path == "/agent/v1/reports":
            return 425, {}  # its row is lost, so nothing was revoked
        if bearer != self._credential(machine) or machine not in self._nonces:
            return 401, {}
        if parts.path == "/agent/v1/reports":
            return self._report(json.loads(body), machine)
        if parts.path == "/agent/v1/logs":
            return self._append_log(parse_qs(parts.query), body)
        if parts.path.endswith("/secrets"):
            return self._secrets(machine, int(parts.path.split("/")[-2]))
        digest = parts.path.removeprefix("/agent/v1/workdirs/")
        return (200, self.workdirs[digest]) if digest in self.workdirs else (404, {})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        plane = self

        class Handler(QuietHandler):
            def serve(self) -> None:
                body = self.body()
                with plane._lock:
                    status, answer = plane._answer(self.path, self.headers, body)
                    if "/logs" in self.path and plane.lose_log_answers > 0:
                        plane.lose_log_answers -= 1
                        self.close_connection = True
                        return
                if "/logs" in self.path:
                    time.sleep(plane.log_seconds)
                kind, content = _as_content(status, answer)
                self.answer(status, content, {"Content-Type": kind})

        return Handler


def _as_content(status: int, answer: Any) -> tuple[str, bytes]:
    """Content type and bytes as /openapi.json has them (tests/unit/agent/test_fake_answers.py)."""
    if isinstance(answer, bytes):
        return "application/gzip", answer
    if status < 400:
        return "application/json", json.dumps(answer).encode()
    said = {"title": "Refused", "detail": "This control plane is a test's, which wants it so."}
    problem = {"type": "about:blank", "status": status, **said, **answer}
    return "application/problem+json", json.dumps(problem).encode()


def digest_of(content: bytes) -> str:
    """As a run configuration names a working folder."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def wait_until(
    condition: Callable[[], bool], what: Callable[[], str], seconds: float = 60.0
) -> None:
    """Fails the test when the condition does not hold in time."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"not within {seconds} s: {what()}"
        time.sleep(0.02)
