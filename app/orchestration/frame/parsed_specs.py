"""Specs of jobs as objects: each is read once per process, for a job's spec never changes.

Not here: what a spec may say (`app.domain.spec.job_spec`).
"""

from __future__ import annotations

from functools import lru_cache

import orjson

from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.spec_document import SpecDocument


def parsed_spec(stored: SpecDocument) -> JobSpec:
    """The spec of its stored form, shared: not to be changed. Raises what `parse_spec` raises."""
    return _parsed(orjson.dumps(stored))


@lru_cache(maxsize=256)
def _parsed(stored: bytes) -> JobSpec:
    return parse_spec(orjson.loads(stored))
