"""Hides secrets in what is sent: each value, and each line of one of several lines, becomes ***.

Only values of at least eight characters: shorter ones would be found in ordinary words. Text that
comes in pieces is held back as far as it may be the beginning of a value, and where the text ends
with a beginning of as many characters, that is hidden, too. Not here: what is sent (`masked_logs`,
`masked_observations`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

HIDDEN_CHARACTERS_MIN = 8
LINES_HIDDEN_MAX = 200
"""Of one value: looking for many more would slow every line of the log."""
STARS = b"***"
_ANCHOR = 8
"""Bytes; no pattern has fewer, as none has fewer characters."""


@dataclass(frozen=True)
class HiddenPatterns:
    """What is looked for, in UTF-8. beginnings: of all patterns, each shorter than an anchor."""

    patterns: tuple[bytes, ...] = ()
    beginnings: frozenset[bytes] = frozenset()


class SecretMask:
    """Values to hide; from any thread. A value that was known once stays hidden."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hidden = HiddenPatterns()

    def hide(self, values: Iterable[str]) -> None:
        """Hide these, too."""
        with self._lock:
            known = self.hidden.patterns
            found = {*known, *(one for value in values for one in _patterns_of(value))}
            beginnings = {one[:length] for one in found for length in range(1, _ANCHOR)}
            self.hidden = HiddenPatterns(tuple(sorted(found)), frozenset(beginnings))

    def text(self, text: str) -> str:
        """A whole text without the values."""
        if not self.hidden.patterns:
            return text
        masked = StreamMask(self)
        content = masked.feed(text.encode("utf-8", "surrogatepass")) + masked.end()
        return content.decode("utf-8", "surrogatepass")


class StreamMask:
    """One stream of bytes, in order, from one thread at a time."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._held = b""
        self._hidden = 0
        """So many of the held bytes belong to a value that is told as stars already."""

    def feed(self, content: bytes) -> bytes:
        """What may be sent of what came so far; the rest is held back."""
        hidden = self._mask.hidden
        if not hidden.patterns:
            return content
        buffer = self._held + content
        return self._send(buffer, hidden.patterns, _cut(buffer, hidden))

    def end(self) -> bytes:
        """What was held back: no more comes that would make another value of it. A value whose end
        was cut off, as by the end of its program, is hidden as far as it is there.
        """
        held, hidden = self._held, self._mask.hidden
        begun = _cut(held, hidden)
        cut_off = [(begun, len(held))] if len(held) - begun >= HIDDEN_CHARACTERS_MIN else []
        return self._send(held, hidden.patterns, len(held), cut_off)

    def _send(
        self,
        buffer: bytes,
        patterns: tuple[bytes, ...],
        cut: int,
        cut_off: Iterable[tuple[int, int]] = (),
    ) -> bytes:
        """The buffer up to the cut, with stars for each run of values that begins before it."""
        hidden = _merged([*self._beginning(), *_found(buffer, patterns), *cut_off])
        sent, at = [], 0
        for start, end in hidden:
            is_told = start == 0 and self._hidden > 0
            if start >= cut and not is_told:
                break
            sent += [] if is_told else [buffer[at:start], STARS]
            at = end
        sent.append(buffer[at:cut])
        self._held, self._hidden = buffer[cut:], max(at - cut, 0)
        return b"".join(sent)

    def _beginning(self) -> Iterator[tuple[int, int]]:
        if self._hidden:
            yield 0, self._hidden


def _patterns_of(value: str) -> Iterator[bytes]:
    lines = [line.strip() for line in value.splitlines()]
    # The blanks around a value are no part of it: without them, stars end where its line does.
    whole = value.strip() if len(value.strip()) >= HIDDEN_CHARACTERS_MIN else value
    parts = [whole, *(lines[:LINES_HIDDEN_MAX] if len(lines) > 1 else ())]
    for part in dict.fromkeys(parts):
        if len(part) >= HIDDEN_CHARACTERS_MIN:
            yield part.encode("utf-8", "surrogatepass")


def _found(buffer: bytes, patterns: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Where values stand, also where they overlap."""
    for pattern in patterns:
        at = buffer.find(pattern)
        while at >= 0:
            yield at, at + len(pattern)
            at = buffer.find(pattern, at + 1)


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _cut(buffer: bytes, hidden: HiddenPatterns) -> int:
    """From where on the buffer may be the beginning of a value whose rest is still to come."""
    cut = len(buffer)
    for at in range(max(len(buffer) - _ANCHOR + 1, 0), len(buffer)):
        if buffer[at:] in hidden.beginnings:
            cut = at
            break
    for pattern in hidden.patterns:
        anchor, at = pattern[:_ANCHOR], max(len(buffer) - len(pattern) + 1, 0)
        while 0 <= (at := buffer.find(anchor, at)) < cut:
            if pattern.startswith(buffer[at:]):
                cut = at
            at += 1
    return cut
