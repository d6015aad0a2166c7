"""Whether what came back with HTTP 200 is an answer of AWS at all, whole and of the right action.

The SDK takes a well-formed page of a middle box for an answer that says nothing, and half a JSON
document for an empty one: a list would be short, a launch would have started nothing.
Sources: "Structure of a response" in EC2's API reference, Smithy's AWS JSON and query protocols.
Not here: what a damaged answer means (`aws_errors`).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from xml.etree import ElementTree

from botocore.parsers import ResponseParserError

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
