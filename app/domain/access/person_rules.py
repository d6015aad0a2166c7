"""What names and addresses people may have, and how long what they are sent is good.

Not here: keys (`key_rules`), or who may invite whom (`roles`).
"""

from __future__ import annotations

import re
import unicodedata
from datetime import timedelta
from typing import Final
from uuid import UUID

from app.domain.units.errors import InvalidValue

INVITATION_LIFE: Final = timedelta(hours=72)
OPEN_INVITATIONS_MAX: Final = 200
"""Of a project: more are a program that runs wild."""
NAME_MAX: Final = 80
FOLDED_MAX: Final = 2 * NAME_MAX
"""One sign may stand for many letters; lists are continued after folded names."""
EMAIL_MAX: Final = 254
FIRST_USE: Final = "first use"
"""Who invites the first admin: nobody yet has the right to."""
RECOVERED_BY: Final = "recovery on the host"
"""Who made a key that nobody had the right to make: `lowtide key recover`."""
RECOVERED_PREFIX: Final = "recovered-"
"""Such a key's name begins with it."""
REMOVED_PREFIX: Final = "someone removed"
"""What a person is called whose name was removed, before what tells such people apart."""

_RESERVED: Final = frozenset({FIRST_USE, RECOVERED_BY})
_OURS: Final = (RECOVERED_PREFIX, REMOVED_PREFIX)

_EMAIL: Final = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,189}")
# Separate a kind or a project from a name in histories (`person:name`, `home/key`).
_SEPARATORS: Final = frozenset(":/\\")

# Invisible whatever their category: Default_Ignorable_Code_Point of Unicode, which regular
# expressions here do not know, and what has no ink without being one.
_INVISIBLE: Final = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8),
    (0x16FE4, 0x16FE4), (0x1BCA0, 0x1BCA3), (0x1D159, 0x1D159), (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)  # fmt: skip
# Invisible, and part of names in some scripts.
_JOINERS: Final = "\u200c\u200d"


def read_name(written: str) -> str:
    """A person's name as it is stored: in any script, one space between words, NFC.

    Raises InvalidValue for one that is empty, too long, also when it is folded, or holds what
    cannot be seen, as letters that turn the direction of a text; for an id, by which people are
    named, too; and for one that histories use for what no person has done.
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
    plain = folded(name)
    if len(plain) > FOLDED_MAX:
        raise InvalidValue(f"name: written out it has more than {FOLDED_MAX} characters", "name")
    if _is_id(name) or _is_id(plain) or plain in _RESERVED or plain.startswith(_OURS):
        raise InvalidValue(
            f"name: {name!r} means something else here, as ids and {RECOVERED_PREFIX}1 do; choose "
            "another one",
            "name",
        )
    return name


def folded(name: str) -> str:
    """What two people's names may not have in common: case, width, composition and invisible
    joiners do not count.
    """
    plain = "".join(letter for letter in name if letter not in _JOINERS)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain).casefold())


def removed_name(person_id: UUID) -> str:
    """What a person is called once its name is removed: nobody else is called so."""
    return f"{REMOVED_PREFIX} {person_id.hex[-12:]}"


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
    if letter == " " or letter in _JOINERS:
        return True
    if letter in _SEPARATORS or any(low <= ord(letter) <= high for low, high in _INVISIBLE):
        return False
    # Control and format characters, surrogates, what is unassigned; separators of lines.
    return unicodedata.category(letter)[0] not in "CZ"


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
