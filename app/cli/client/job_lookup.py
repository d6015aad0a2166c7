"""Which job a person means: by name, by id, or by the end of an id as the tables show it.

Not here: what is asked of the job.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

import typer

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import CommandFailed

JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job's name or id.")]

_SHORT_ID = re.compile(r"[0-9a-f]{8}")
_LOOKED_THROUGH = 200


def job_path(api: ApiClient, name: str) -> str:
    """The job's path below /api/v1. Raises CommandFailed as `job_named` does."""
    return f"/jobs/{quote(job_named(api, name), safe='')}"


def path_part(name: str, noun: str) -> str:
    """The name as a part of a path. Raises CommandFailed for one that would lead elsewhere."""
    if not name.strip() or "/" in name or name in (".", ".."):
        raise CommandFailed(f"{name!r} is no name of a {noun}")
    return quote(name, safe="")


def job_named(api: ApiClient, name: str) -> str:
    """The job's name or whole id. Only what looks like the end of an id is looked up, among the
    newest 200 jobs. Raises CommandFailed when it may mean several, or is empty.
    """
    if not name.strip() or "/" in name or name in (".", ".."):
        raise CommandFailed(f"{name!r} is neither a name nor an id of a job")
    if _SHORT_ID.fullmatch(name):
        found = api.pages("/jobs", limit=_LOOKED_THROUGH)
        if all(job["name"] != name for job in found):
            return one_ending_in([job["id"] for job in found], name) or name
    return name


def one_ending_in(ids: list[str], end: str) -> str | None:
    """The id with this end, None without one; CommandFailed when several have it."""
    found = [one for one in ids if one.endswith(end)]
    if len(found) > 1:
        raise CommandFailed(f"several ids end in {end}: {', '.join(found)}; give the whole id")
    return found[0] if found else None
