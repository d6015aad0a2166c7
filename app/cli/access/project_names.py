"""Names of projects as an option has them: `--projects vision,speech`.

Not here: whether a key may name them, which the api knows.
"""

from __future__ import annotations

from app.cli.client.failures import CommandFailed


def names_in(written: str) -> list[str]:
    """The names. Raises CommandFailed where one is empty."""
    names = [name.strip() for name in written.split(",")]
    if not all(names):
        raise CommandFailed(
            f"--projects {written[:80]!r} has an empty name: write names with commas between them, "
            "like vision,speech"
        )
    return names
