"""What a project's secret may be called and hold, and how many of them there may be.

Not here: who may manage them (`app.domain.access.roles`), or how they are encrypted.
"""

from __future__ import annotations

import re
from typing import Final

from app.domain.units.errors import InvalidValue

SECRET_BYTES_MAX: Final = 64 << 10
SECRETS_OF_PROJECT_MAX: Final = 200
NAME_LENGTH_MAX: Final = 128

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_RESERVED: Final = "LOWTIDE_"


def require_secret_name(name: str) -> None:
    """Raises InvalidValue for what cannot name a secret: it is a variable of the job's command."""
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(
            f"name: {name[:80]!r} cannot name a secret, which jobs get as a variable: use letters, "
            f"digits and _, at most {NAME_LENGTH_MAX}, with no digit first",
            "name",
        )
    if name.upper().startswith(_RESERVED):
        raise InvalidValue(
            f"name: names starting with {_RESERVED} are set by Lowtide; choose another one", "name"
        )


def require_secret_value(value: str) -> bytes:
    """The value as it is encrypted, UTF-8. Raises InvalidValue, which never repeats it."""
    try:
        content = value.encode()
    except UnicodeEncodeError:
        content = b"\0"
    if not content:
        raise InvalidValue("value: is empty; give the secret, or remove it", "value")
    if b"\0" in content:
        raise InvalidValue(
            "value: must be text without NUL, as no variable holds anything else; encode it, for "
            "example as Base64, and let the job decode it",
            "value",
        )
    if len(content) > SECRET_BYTES_MAX:
        raise InvalidValue(
            f"value: has {len(content):,} bytes; at most {SECRET_BYTES_MAX:,}. Store what is "
            "larger in a bucket, and its key here",
            "value",
        )
    return content
