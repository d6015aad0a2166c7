"""boto3's clients with bounds, and the one way in which the provider calls them.

Lives here: credentials' chain (boto3's own), time limits, attempts. Not here: what is asked.
"""

from __future__ import annotations

import json
import re
import threading
from typing import Any, Final
from xml.etree import ElementTree

import boto3
import botocore.exceptions
from botocore.config import Config
from botocore.parsers import ResponseParserError

from app.adapters.providers.aws.client.aws_errors import typed
from app.adapters.providers.aws.client.aws_settings import AwsSettings
from app.ports.cloud_provider import ProviderError, RefusalKind

UNREADABLE: Final = (ResponseParserError, ElementTree.ParseError, ValueError, KeyError)
"""What the SDK, and this check, raise of an answer that cannot be read."""


_XML_OF_ACTION: Final = ("ec2", "query")


_JSON: Final = "json"


# What AWS tells whenever it answers, though its models call it optional ("Response Elements" of
# each action in its API reference). Nothing received is no member at all: no ReceiveMessage here.
_ALWAYS_TOLD: Final[dict[str, tuple[str, ...]]] = {
    "DescribeKey": ("KeyMetadata",),
    "GetParameter": ("Parameter",),
    "GetProducts": ("FormatVersion",),
    "GetQueueAttributes": ("Attributes",),
    "ListServiceQuotas": ("Quotas",),
}


_OTHER_ROOTS: Final = {"GetBucketLocation": "LocationConstraint"}


# The first element's name, past the declaration, without its namespace.
_ROOT: Final = re.compile(rb"\s*(?:<\?[^>]*\?>\s*)?<(?:[\w.-]+:)?([\w.-]+)")


def watch(client: Any) -> None:
    """Let every answer to this client be checked; its calls raise one of `UNREADABLE`."""
    client.meta.events.register("after-call", _check, unique_id="lowtide-reply-check")


def _check(http_response: Any, model: Any, **_: Any) -> None:
    if http_response.status_code >= 300:
        return
    protocol = model.service_model.resolved_protocol
    if protocol == _JSON:
        told = json.loads(http_response.content) if http_response.content else {}
        shape = model.output_shape
        required = [] if shape is None else shape.required_members
        always = (*required, *_ALWAYS_TOLD.get(model.name, ()))
        missing = [name for name in always if name not in told]
        if missing:
            raise ResponseParserError(f"the answer of {model.name} lacks {', '.join(missing)}")
        return
    wanted = _OTHER_ROOTS.get(model.name)
    if protocol in _XML_OF_ACTION:
        wanted = f"{model.name}Response"
    found = _ROOT.match(http_response.content)
    if wanted is not None and (found is None or found.group(1).decode() != wanted):
        raise ResponseParserError(f"the answer is no {wanted}: {http_response.content[:120]!r}")


CONNECT_SECONDS: Final = 4
READ_SECONDS: Final = 15
LAUNCH_READ_SECONDS: Final = 40
_READ_ATTEMPTS: Final = 2
_CONNECTIONS: Final = 32

# Only questions are repeated by the SDK. It would also repeat a 5xx of a launch, which is how EC2
# says that it has no capacity: another pool is the better answer to that.
_READ: Final = Config(
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    retries={"mode": "standard", "total_max_attempts": _READ_ATTEMPTS},
    max_pool_connections=_CONNECTIONS,
    user_agent_extra="lowtide",
)
_WRITE: Final = _READ.merge(
    Config(
        read_timeout=LAUNCH_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 1},
    )
)
_ANSWERS: Final = (
    botocore.exceptions.BotoCoreError,
    botocore.exceptions.ClientError,
    *UNREADABLE,
)
LAUNCH_SECONDS: Final = CONNECT_SECONDS + LAUNCH_READ_SECONDS
QUESTION_SECONDS: Final = _READ_ATTEMPTS * (CONNECT_SECONDS + READ_SECONDS) + 2
"""Longest time of one question, the wait before its second attempt included."""


class AwsClients:
    """Clients by service and region, made when first needed; safe for threads."""

    def __init__(self, settings: AwsSettings, session: Any = None) -> None:
        """session: a boto3 session; without one it is made when first needed, in boto3's way."""
        self._settings = settings
        self._lock = threading.Lock()
        self._session: Any = session
        self._clients: dict[tuple[str, str, bool], Any] = {}

    def ask(self, service: str, region: str, operation: str, **asked: Any) -> dict[str, Any]:
        """Ask a question; raises ProviderError."""
        return self._call(service, region, operation, False, False, asked)

    def change(
        self,
        service: str,
        region: str,
        operation: str,
        *,
        starts_machines: bool = False,
        **asked: Any,
    ) -> dict[str, Any]:
        """Change something, in one attempt; raises ProviderError.

        starts_machines: raise LaunchOutcomeUnknown where machines may have been started.
        """
        return self._call(service, region, operation, True, starts_machines, asked)

    def _call(
        self,
        service: str,
        region: str,
        operation: str,
        changes: bool,
        starts_machines: bool,
        asked: dict[str, Any],
    ) -> dict[str, Any]:
        try:
            client = self._client(service, region, changes)
        except botocore.exceptions.BotoCoreError as error:
            raise typed(error, operation, region) from error
        try:
            reply: dict[str, Any] = getattr(client, operation)(**asked)
        except _ANSWERS as error:
            raise typed(error, operation, region, starts_machines=starts_machines) from error
        return reply

    def _client(self, service: str, region: str, changes: bool) -> Any:
        key = (service, region, changes)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._make(service, region, _WRITE if changes else _READ)
            return self._clients[key]

    def _make(self, service: str, region: str, config: Config) -> Any:
        if self._session is None:
            self._session = boto3.Session()
        if region not in _known_regions(self._session):
            text = f"AWS has no region {region}: correct LOWTIDE_AWS_REGIONS"
            raise ProviderError(RefusalKind.REJECTED, text)
        client = self._session.client(
            service, region_name=region, endpoint_url=self._settings.endpoint_url, config=config
        )
        watch(client)
        return client


def _known_regions(session: Any) -> set[str]:
    return {
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("ec2", partition_name=partition)
    }
