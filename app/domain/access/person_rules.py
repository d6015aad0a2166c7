"""What names and addresses people may have, and how long what they are sent is good.

Not here: keys (`key_rules`), or who may invite whom (`roles`).
"""

from __future__ import annotations

import re
import unicodedata
from datetime import timedelta
from typing import Final

from app.domain.units.errors import InvalidValue

INVITATION_LIFE: Final = timedelta(hours=72)
NAME_MAX: Final = 80
EMAIL_MAX: Final = 254

_EMAIL: Final = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,189}")
# Separate a kind or a project from a name in histories (`person:name`, `home/key`).
_SEPARATORS: Final = frozenset(":/\\")

# Letters and marks by their category, and invisible all the same.
_FILLERS: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800"
) | {chr(selector) for selector in range(0xFE00, 0xFE10)}
# Invisible, and part of names in some scripts.
_JOINERS: Final = "\u200c\u200d"


def read_name(written: str) -> str:
    """A person's name as it is stored: in any script, one space between words, NFC.

    Raises InvalidValue for one that is empty, too long, or holds what cannot be seen, as letters
    that turn the direction of a text.
    """
    name = unicodedata.normalize("NFC", " ".join(written.split()))
    seen = [letter for letter in name if unicodedata.category(letter)[0] in "LN"]
    odd = next((one for one in name if not _is_usable(one)), None)
    if not seen or len(name) > NAME_MAX or odd is not None:
        reason = f"; it holds {odd!a}" if odd is not None else ""
        raise InvalidValue(
            f"name: write 1 to {NAME_MAX} characters of any script, with a letter or a digit among "
            f"them, and none of : / \\ or invisible ones{reason}",
            "name",
        )
    return name


def folded(name: str) -> str:
    """What two people's names may not have in common: case, width, composition and invisible
    joiners do not count.
    """
    plain = "".join(letter for letter in name if letter not in _JOINERS)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain).casefold())


def read_email(written: str | None) -> str | None:
    """An address for people to tell each other apart; nothing is sent to it.

    Raises InvalidValue for what is none.
    """
    if written is None or not written.strip():
        return None
    email = written.strip()
    if len(email) > EMAIL_MAX or _EMAIL.fullmatch(email) is None:
        raise InvalidValue("email: write an address as lea@example.com", "email")
    return email


def invitation_path(token: str) -> str:
    """The page that accepts an invitation. Browsers send nothing of what follows the #, so that no
    log has the token.
    """
    return f"/invitation#{token}"


def _is_usable(letter: str) -> bool:
    if letter in _SEPARATORS or letter in _FILLERS:
        return False
    kind = unicodedata.category(letter)
    # Control and format characters, surrogates, what is unassigned; separators of lines.
    return letter == " " or letter in _JOINERS or kind[0] not in "CZ"
