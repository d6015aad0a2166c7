"""What people read of a failed attempt: that it is tried again, or that its retries are used.

Not here: whether it is (`retry_policy`), or why it failed (`attempt_verdict`).
"""

from __future__ import annotations

from collections.abc import Collection

from trainer.protocol.error_line import one_line


def tried_again(
    ordinal: int, message: str, exit_code: int | None, error: str, retry: int, retries: int
) -> str:
    """As in "Retry 1 of 3: attempt 1 ended with exit code 1: NameError: …".

    What the job does now stands first: lists show the beginning.

    ordinal: of the attempt. message: of the verdict, for an end without an exit code or an error of
    its own. retry: from 1. The sentence stays true while that retry waits, starts and runs.
    """
    how = f": {message[:1].lower()}{message[1:]}"
    if exit_code is not None and exit_code >= 0 and error:
        how = f" with exit code {exit_code}: {error}"
    ended = one_line(f"attempt {ordinal} ended{how}").rstrip(".")
    return f"Retry {retry} of {retries}: {ended}."


def code_not_retried(retry_on_exit_codes: Collection[int]) -> str:
    """That the spec names the exit codes to retry, and not the one of this end."""
    codes = ", ".join(map(str, sorted(retry_on_exit_codes)))
    return f"It is not retried: `retry_on_exit_codes` names only {codes}."


def retries_used_up(retries: int) -> str:
    """That no retry is left."""
    if retries == 1:
        return "Its one retry is used."
    return f"{'Both' if retries == 2 else f'All {retries}'} retries are used."
