"""What `lowtide doctor` says of stored secrets and their key, and which of them cannot be read.

Lives here: the sentences. Not here: reading the values (`check_stored_values`), or the other checks
(`app.orchestration.deployment.diagnose`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from app.domain.deployment.check_result import CheckResult
from app.orchestration.secrets.check_stored_values import UnreadableSecret, read_stored_values
from app.ports.value_encryption import KeyUnavailable, ValueEncryption
from app.storage.unit_of_work import UnitOfWorkFactory

_NAME: Final = "secrets"
_TOLD_MAX: Final = 10
_RESTORE: Final = (
    "put the key back into the file, as a line of its own; without a copy, set the secrets anew: "
    "docs/secrets.md"
)


def check_stored_secrets(
    begin: UnitOfWorkFactory, encryption: ValueEncryption, key_file: Path
) -> Iterator[CheckResult]:
    """Whether every stored value can be read: one result for each reason why some cannot."""
    wrong = check_key_file(encryption)
    found = read_stored_values(begin, encryption)
    without_key = [one for one in found.unreadable if one.key_id is not None]
    changed = [one for one in found.unreadable if one.key_id is None]
    if wrong is not None:
        told = f"{_told(without_key)} cannot be read. " if without_key else ""
        yield CheckResult(_NAME, False, f"{told}{wrong.sentence}", wrong.remedy)
    elif without_key:
        ids = ", ".join(sorted({str(one.key_id) for one in without_key}))
        why = f"the key {ids} is not in {key_file}"
        if not encryption.key_ids():
            why = f"the key file {key_file} is missing"
        yield CheckResult(_NAME, False, f"{_told(without_key)} cannot be read: {why}", _RESTORE)
    if changed:
        told = f"{_told(changed)} cannot be read: changed in the database, or swapped there"
        remedy = "set them anew, and look who can write to the database"
        yield CheckResult(_NAME, False, told, remedy)
    if wrong is None and not found.unreadable:
        all_read = f"{found.readable:,} stored, and all can be read"
        yield CheckResult(_NAME, True, all_read if found.readable else "none is stored")


def check_key_file(encryption: ValueEncryption) -> CheckResult | None:
    """Why the key file is of no use, such as its mode; None if it can be used, or is not there."""
    try:
        encryption.key_ids()
    except KeyUnavailable as error:
        remedy = "correct or restore the file; docs/secrets.md says how it must be"
        return CheckResult(_NAME, False, error.message, remedy)
    return None


def _told(unreadable: Sequence[UnreadableSecret]) -> str:
    named = [f"{one.name} of {one.project}" for one in unreadable[:_TOLD_MAX]]
    others = len(unreadable) - len(named)
    return ", ".join(named) + (f" and {others:,} more" if others else "")
