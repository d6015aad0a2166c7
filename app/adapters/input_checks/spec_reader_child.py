"""The child that parses job specs: `python -m app.adapters.input_checks.spec_reader_child`.

A request on stdin is one byte for the type, four for the length, and the text; the answer on
stdout is four bytes for the length, and JSON with `spec` or `refused`. It ends when stdin ends.
"""

from __future__ import annotations

import struct
import sys
from typing import IO, Final

import orjson

from app.adapters.input_checks.child_process import ChildLimits, limit_this_process
from app.domain.spec.spec_text import SpecTextType, parse_spec_text
from app.domain.units.errors import SpecError

LIMITS: Final = ChildLimits(memory_bytes=512 << 20, processor_seconds=None, niceness=5)
REQUEST: Final = struct.Struct(">cI")
ANSWER: Final = struct.Struct(">I")
CODE_OF_TYPE: Final[dict[SpecTextType, bytes]] = {"yaml": b"y", "json": b"j"}
_TYPE_OF_CODE: Final = {code: kind for kind, code in CODE_OF_TYPE.items()}


def answer_requests(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Parse one spec after the other, until there are no more."""
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        code, length = REQUEST.unpack(head)
        try:
            spec = parse_spec_text(requests.read(length), _TYPE_OF_CODE[code])
            answer = orjson.dumps({"spec": spec})
        except SpecError as error:
            answer = orjson.dumps({"refused": error.message})
        answers.write(ANSWER.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    limit_this_process(LIMITS)
    answer_requests(sys.stdin.buffer, sys.stdout.buffer)
