"""What people read of a failed attempt: that it is tried again, or that its retries are used.

Not here: whether it is (`retry_policy`), or why it failed (`verdict`).
"""

from __future__ import annotations

from trainer.protocol.error_line import one_line


def tried_again(
    ordinal: int, message: str, exit_code: int | None, error: str, retry: int, retries: int
) -> str:
    """ "Attempt 1 ended with exit code 1: NameError: …; retry 1 of 3."

    ordinal: of the attempt. message: of the verdict, for an end without an exit code or an error of
    its own. retry: from 1. The sentence stays true while that retry waits, starts and runs.
    """
    how = f": {message[:1].lower()}{message[1:]}"
    if exit_code is not None and exit_code >= 0 and error:
        how = f" with exit code {exit_code}: {error}"
    ended = one_line(f"Attempt {ordinal} ended{how}").rstrip(".")
    return f"{ended}; retry {retry} of {retries}."


def retries_used_up(retries: int) -> str:
    """That no retry is left."""
    return "Its one retry is used." if retries == 1 else f"All {retries} retries are used."
