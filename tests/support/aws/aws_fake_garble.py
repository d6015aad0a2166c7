"""Replies that arrive but cannot be read: the request was done, its answer is damaged on the way.

Middle boxes do this: a proxy that closes early, a sign-in page of a network with HTTP 200. What a
reply must look like: "Structure of a response" in EC2's API reference (an XML document whose root
is the action's name and `Response`), and "AWS JSON 1.1 protocol" of Smithy for the JSON services.
Not here: when this happens (`aws_world`), or the wire (`aws_fake_http`).
"""

from __future__ import annotations

import re
from typing import Final

from tests.support.aws.aws_fake_http import Answer, CutShort

CUT: Final = "cut"
HALF: Final = "half"
PAGE: Final = "page"
LOOSE_PAGE: Final = "loose page"
NOISE: Final = "noise"
NO_FLEET_ID: Final = "no fleet id"
EMPTY: Final = "empty"
EVERYWHERE: Final = (CUT, HALF, PAGE, LOOSE_PAGE, NOISE)
"""What can happen to the answer of any action."""

_FLEET_ID: Final = re.compile(rb"<fleetId>[^<]*</fleetId>")


def garbled(kind: str, answer: Answer) -> Answer:
    """The same answer, damaged. Raises CutShort where the connection ends within it.

    cut: fewer bytes than were announced. half: half a document of the right length. page: a
    well-formed XHTML page with status 200; loose page: one that is no XML. noise: bytes of no
    text. empty: a JSON object without members. no fleet id: a document without the fleet.
    """
    status, headers, content = answer
    plain = {"Content-Type": headers.get("Content-Type", "text/xml")}
    half = content[: max(1, len(content) // 2)]
    if kind == CUT:
        raise CutShort((status, plain, content), half)
    if kind == HALF:
        return status, plain, half
    if kind == PAGE:
        return 200, {"Content-Type": "text/html"}, b"<html><body><p>Sign in</p></body></html>"
    if kind == LOOSE_PAGE:
        return 200, {"Content-Type": "text/html"}, b"<!doctype html><p>Sign in<br>now & here"
    if kind == NOISE:
        return status, plain, bytes(range(128, 256)) * 4
    if kind == EMPTY:
        return status, plain, b"{}"
    assert kind == NO_FLEET_ID, kind
    return status, plain, _FLEET_ID.sub(b"", content)
