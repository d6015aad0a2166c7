"""Bodies that cost as much as their length allows: job specs at 256 KiB, and small archives.

Not here: what is asserted of them.
"""

from __future__ import annotations

import gzip
import io
import tarfile

_BYTES = 256 << 10


def worst_specs() -> list[bytes]:
    """YAML of the longest length that is taken; each costs a parser as much as it can."""
    bodies = [
        b"[" * _BYTES,
        b"a: [" + b"1," * ((_BYTES - 8) // 2) + b"1]",
        b"".join(b"k%d: 1\n" % number for number in range(24_000)),
        b"run: x\nenv:\n" + b"".join(b'  K%d: "v"\n' % number for number in range(4_900)),
        b"a: >\n" + b" x\n\n" * ((_BYTES - 8) // 4),
        b"k" * (_BYTES - 4) + b": 1",
        b"[" + b"a " * ((_BYTES - 2) // 2),
        b"a: &a [x]\n" * (_BYTES // 10),
        b"a: " + b"[" * 18 + b"1," * 4_900 + b"1" + b"]" * 18,
    ]
    return [body[:_BYTES] for body in bodies]


def worst_archives() -> list[bytes]:
    """Archives that take seconds to check."""
    return [archive_of(99_990), archive_of(1_000_000), zeros_and_an_end(256)]


def archive_of(count: int, name: str = "f", size: int = 0) -> bytes:
    """So many members of one name, without content: a block of a thousand, repeated."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    one = entry.tobuf(tarfile.PAX_FORMAT)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        for _ in range(count // 1_000):
            file.write(one * 1_000)
        file.write(one * (count % 1_000) + b"\0" * 1_024)
    return packed.getvalue()


def sparse_terabyte() -> bytes:
    entry = tarfile.TarInfo("holes")
    entry.size = 512
    words = {"major": "1", "minor": "0", "name": "holes", "realsize": str(1 << 40)}
    entry.pax_headers = {f"GNU.sparse.{name}": value for name, value in words.items()}
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        file.write(entry.tobuf(tarfile.PAX_FORMAT) + b"1\n0\n0\n".ljust(512, b"\0"))
        file.write(b"\0" * 1_024)
    return packed.getvalue()


def zeros_and_an_end(mebibytes: int) -> bytes:
    """A bomb: a small archive whose members' contents take as long as so many MiB to pass over."""
    entry = tarfile.TarInfo("zeros")
    entry.size = mebibytes << 20
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        file.write(entry.tobuf(tarfile.PAX_FORMAT))
    zeros = gzip.compress(b"\0" * (16 << 20), 1)
    return packed.getvalue() + zeros * (mebibytes // 16) + gzip.compress(b"\0" * 1_024)
