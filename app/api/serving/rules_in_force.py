"""The rules of the project that a request is in, parsed once for each version of them.

Not here: what they do to a spec (`app.domain.projects`), or changing them (`access.project_rules`).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from cachetools import LRUCache

from app.domain.access.principal import Principal
from app.domain.projects.project_rules import NO_RULES, ProjectRules
from app.domain.projects.read_rules import parse_rules
from app.domain.projects.resolve_spec import ResolvedSpec, as_written, resolve_spec
from app.domain.spec.job_spec import JobSpec
from app.storage.jobs.hot_statements import HotStatements

_KEPT_MAX: Final = 256


class RulesInForce:
    """Rules by project and version; a caller tells which version is in force.

    For one event loop. A version never changes, so what is kept is never stale.
    """

    def __init__(self, stored: HotStatements) -> None:
        self._stored = stored
        self._kept: LRUCache[tuple[UUID, int], ProjectRules] = LRUCache(_KEPT_MAX)

    async def resolve(self, caller: Principal, spec: JobSpec) -> ResolvedSpec:
        """The spec under the rules of the caller's project; raises SpecError as `resolve_spec`."""
        if not caller.rules_version:
            return as_written(spec)
        rules, version = await self._of(caller.project_id, caller.rules_version)
        return resolve_spec(rules, caller.project_name, spec, version)

    async def _of(self, project_id: UUID, version: int) -> tuple[ProjectRules, int]:
        kept = self._kept.get((project_id, version))
        if kept is not None:
            return kept, version
        # They may have changed since the caller was looked up: then the newest are in force.
        version, document = await self._stored.project_rules(project_id)
        rules = NO_RULES if document is None else parse_rules(document)
        self._kept[project_id, version] = rules
        return rules, version
