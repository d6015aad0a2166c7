"""A job's spec once more, under a name that is free: what is submitted to run it again.

The working folder stays the one that the job was submitted with: it belongs to the project, and the
spec names it by content. Not here: submitting it (`submit_job`).
"""

from __future__ import annotations

import re
from typing import Final, cast

from app.domain.lifecycle.entities import Job
from app.domain.projects.spec_defaults import without_fields
from app.domain.spec.names import NAME_LENGTH_MAX
from app.domain.spec.spec_document import SpecDocument
from app.orchestration.queue.hidden_env import with_hidden_env
from app.orchestration.queue.submit_job import name_candidates
from app.storage.unit_of_work import UnitOfWork

_NUMBERED: Final = re.compile(r"(.+)-([1-9]\d{0,2})")
_NAMES_TRIED_MAX: Final = 50


def copied_spec(uow: UnitOfWork, job: Job) -> SpecDocument:
    """Its spec in normal form under the next free name: `tour-2` after `tour`, then `tour-3`. The
    values of `env` are hidden in it as `hidden_env` says, and are the job's again when it is
    submitted.

    A name is free until someone takes it. Where none of fifty is, the spec has no name, and gets
    one when it is submitted. What the project gave is left out: the copy gets what it gives then.
    """
    names = next_names(job.name)
    taken = uow.jobs.taken_names(job.project_id, names)
    free = next((name for name in names if name not in taken), None)
    named = with_hidden_env(_own_part(job), job.id)
    named.pop("name", None)
    return named if free is None else {"name": free, **named}


def _own_part(job: Job) -> SpecDocument:
    """What its author wrote, with Lowtide's own defaults."""
    if job.spec_sources is None:
        return job.spec.copy()
    fields = job.spec_sources["fields"]
    return cast(SpecDocument, without_fields(dict(job.spec), fields))


def next_names(name: str) -> list[str]:
    """Names after this one, best first: a number at its end of at most three digits is counted on,
    else the numbers from 2 on.
    """
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None:
        return name_candidates(name)
    stem, number = numbered[1], int(numbered[2])
    following = range(number + 1, number + 1 + _NAMES_TRIED_MAX)
    return [written for one in following if len(written := f"{stem}-{one}") <= NAME_LENGTH_MAX]
