"""Job specs from the forms of the pages, checked and submitted exactly as by `POST /jobs`.

Lives here: the way from a page's thread to the routes' own functions. Not here: the forms
(`app.web.job.job_copies`), or any rule of a spec.
"""

from __future__ import annotations

from anyio import from_thread, to_thread

from app.api.jobs.jobs import submit_spec
from app.api.serving.api_parts import ApiParts
from app.api.submission.spec_body import parse_in_turn
from app.api.submission.submission_checks import EVALUATORS, check_spec
from app.domain.access.principal import Principal
from app.domain.spec.job_spec import JobSpec
from app.orchestration.placement.never_runs import require_possible
from app.storage.jobs.job_submission import Submitted


class PageSpecForms:
    """Implements `app.web.page_frame.SpecForms`; called in threads that serve the app's routes."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def parse(self, text: str) -> JobSpec:
        """The spec that a YAML text writes."""
        # Browsers send lines of a form's text with CRLF.
        body = text.replace("\r\n", "\n").encode("utf-8", "replace")
        return from_thread.run(parse_in_turn, self._parts, body, "yaml")

    def check(self, owner: Principal, spec: JobSpec) -> None:
        """Whether this deployment would take it now; stores nothing."""

        async def check() -> None:
            resolved = await check_spec(self._parts, owner, spec, uploaded=True)
            await self._require_possible(resolved.spec)

        from_thread.run(check)

    def submit(self, owner: Principal, spec: JobSpec, key: str, *, accept_risk: bool) -> Submitted:
        """Store the job; the same key again finds the job that it has made."""
        return from_thread.run(self._submit, owner, spec, key, accept_risk)

    async def _submit(
        self, caller: Principal, spec: JobSpec, key: str, accept_risk: bool
    ) -> Submitted:
        # A form that is sent twice is one submission, though the free name is another by then.
        known = await self._parts.hot.known_job(caller.project_id, key)
        if known is not None:
            return Submitted(
                known.job_id, known.name, known.state, known.submitted_at, known.deadline_at, False
            )
        if not accept_risk:
            resolved = await self._parts.rules.resolve(caller, spec)
            await self._require_possible(resolved.spec)
        submitted, _ = await submit_spec(self._parts, caller, spec, key, accept_risk)
        return submitted

    async def _require_possible(self, spec: JobSpec) -> None:
        """A person is asked before a job waits for ever, as on the command line."""
        runtime = self._parts.runtime
        await to_thread.run_sync(require_possible, runtime, spec, limiter=EVALUATORS)
