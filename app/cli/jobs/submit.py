"""`lowtide submit`: check here and there, pack, plan, ask, upload, submit, follow.

Not here: what the options change in the spec (`spec_edits`), the plan (`submission_plan`), the
packing (`workdir_archive`), the following (`follow`).
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.client import wording
from app.cli.client.failures import ADVICE, INTERRUPTED, CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import job_path
from app.cli.client.progress_bar import progress_bar
from app.cli.client.terminal import Terminal
from app.cli.jobs import follow as following
from app.cli.jobs.estimate_command import (
    Budget,
    Deadline,
    Gpu,
    Infra,
    Nodes,
    asked_for,
    on_demand_assumed,
)
from app.cli.jobs.spec_edits import SpecDraft, SpecEdits, copied_draft, read_draft
from app.cli.jobs.submission_plan import (
    Preview,
    impossible,
    make_plan,
    print_plan,
    with_estimate,
)
from app.cli.jobs.workdir_files import ARCHIVE_BYTES_MAX, not_a_folder
from app.domain.units.errors import Advice, SpecError
from app.domain.units.percent import chances_text

if TYPE_CHECKING:
    from app.cli.jobs.workdir_archive import Archive
    from app.domain.spec.job_spec import JobSpec


@api_command(
    "lowtide submit job.yaml",
    "lowtide submit job.yaml -y -d -n run-7 --set trainer.epochs=30",
    "cat job.yaml | lowtide submit - --gpu A100:8 --deadline 36h --budget 200",
    "lowtide submit --from tour --set trainer.epochs=30",
)
def submit(
    invocation: Invocation,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A job spec, or - for stdin.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="JOB", help="Use the spec of this job, under a new name."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; accepts no risk.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not follow the job.")] = False,
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAME", help="The job's name.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check, pack and show the plan; submit nothing.")
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a field: trainer.epochs=30; repeatable."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set an environment variable; repeatable."),
    ] = None,
    gpu: Gpu = None,
    nodes: Nodes = None,
    infra: Infra = None,
    spot: Annotated[
        bool | None, typer.Option("--spot/--on-demand", help="Spot or on-demand machines.")
    ] = None,
    deadline: Deadline = None,
    budget: Budget = None,
    accept_risk: Annotated[
        bool,
        typer.Option("--accept-risk", help="Submit even if a limit will probably be missed."),
    ] = False,
) -> None:
    """Submit a job: plan, ask, then follow it.

    Takes the spec from FILE, or with --from the spec and the working folder of another job. Other
    options change that spec.

    Exit code 0 when the job succeeded (with -d: when it was accepted), 1 when it did not.
    """
    edits = SpecEdits(
        name=name,
        settings=setting or (),
        env=env or (),
        gpu=gpu,
        nodes=nodes,
        infra=infra,
        market=None if spot is None else "spot" if spot else "on_demand",
        deadline=deadline,
        budget=budget,
        project=invocation.project,
    )
    draft = _draft(invocation, file, source, edits)
    if (project := draft.spec().project) is not None:
        invocation.api.enter_project(project)
    ask = not (yes or file == "-")
    accepted = _submit(invocation, draft, ask=ask, dry_run=dry_run, accept_risk=accept_risk)
    if accepted is None:
        return
    if detach:
        _say_accepted(invocation.terminal, accepted)
        return
    _follow(invocation, accepted)


def _submit(
    invocation: Invocation, draft: SpecDraft, *, ask: bool, dry_run: bool, accept_risk: bool
) -> dict[str, Any] | None:
    """Check, pack, plan, ask and submit: the api's answer, None for a dry run.

    Raises CommandFailed where the job is refused, and typer.Exit for whoever says no.
    """
    now, terminal = datetime.now(UTC), invocation.terminal
    checked = _check_there(invocation, draft, now)
    with ExitStack() as closing:
        archive = _pack(draft, closing)
        digest = None if archive is None else archive.digest
        written = draft.spec(digest)
        spec = _as_stored(checked, written)
        plan = make_plan(spec, invocation.api.get("/offers")["items"], now)
        figures = _estimated(invocation, spec, accept_risk)
        sources = checked.get("spec_sources", {})
        _show(terminal, with_estimate(plan, figures), archive, sources, dry_run)
        _check_risk(terminal, figures, accept_risk or dry_run)
        _refuse_impossible(terminal, plan, accept_risk)
        if dry_run:
            if not terminal.as_json:
                terminal.line("Dry run: nothing was submitted.")
            return None
        if ask and not _agreed(terminal):
            terminal.note("Nothing was submitted.")
            raise typer.Exit(INTERRUPTED)
        if archive is not None:
            upload(invocation, archive)
        accepted = _post(invocation, written)
    warned = checked.get("warnings", ())
    _warn(terminal, [one for one in accepted.get("warnings", ()) if one not in warned])
    return accepted


def _warn(terminal: Terminal, warnings: Sequence[str]) -> None:
    for warning in warnings:
        terminal.note(f"Warning: {warning}.")


def _draft(
    invocation: Invocation, file: str | None, source: str | None, edits: SpecEdits
) -> SpecDraft:
    """The spec in a file, or that of a job, with the edits made.

    Raises CommandFailed for neither or both of them, and for a spec that is not valid.
    """
    if (file is None) == (source is None):
        raise CommandFailed("name either the FILE of a job spec, or a job with --from")
    if source is not None:
        copy = invocation.api.get(f"{job_path(invocation.api, source)}/copy")
        return copied_draft(copy["copied_from"], copy["spec"], edits)
    assert file is not None
    return read_draft(file, edits)


def _check_deadline(draft: SpecDraft, now: datetime) -> None:

    try:
        draft.spec().require_deadline_ahead(now)
    except SpecError as error:
        raise CommandFailed.from_domain(error, draft.what) from error


def _as_stored(checked: dict[str, Any], written: JobSpec) -> JobSpec:
    """The spec with what its project gives, as the api's check told; it knew no packed folder."""
    from app.domain.spec.job_spec import parse_spec

    document = checked.get("spec")  # absent in answers of earlier releases
    if document is None:
        return written
    workdir = {} if written.workdir is None else {"workdir": written.workdir}
    return parse_spec({**document, **workdir})


def _check_there(invocation: Invocation, draft: SpecDraft, now: datetime) -> dict[str, Any]:
    """Ask before anything is packed or planned whether the api would take the job.

    Says what the api warns of, and returns its answer. Raises CommandFailed for a deadline that has
    passed, and with all that is wrong of these: a working folder that is none, a name that is
    taken, a place that is not allowed, data that is not there, an image that nothing can run, infra
    that the deployment does not rent from, or what the project's rules refuse.
    """
    _check_deadline(draft, now)
    wrong = _wrong_here(draft)
    uploaded = "true" if draft.folder is None else "false"
    path = f"/jobs/check?uploaded={uploaded}"
    try:
        with _naming_the_option():
            written = draft.spec().to_written_json()
            found: dict[str, Any] = invocation.api.post(path, written, only_asks=True)
    except CommandFailed as failed:
        if wrong is None:
            raise
        if failed.status not in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise CommandFailed(wrong["message"]) from failed
        refused = failed.problems or [{"field": failed.field, "message": failed.message}]
        raise CommandFailed(
            f"{draft.what} cannot be submitted:", problems=[wrong, *refused], status=failed.status
        ) from failed
    if wrong is not None:
        raise CommandFailed(wrong["message"])
    _warn(invocation.terminal, found.get("warnings", ()))
    return found


def _wrong_here(draft: SpecDraft) -> dict[str, str] | None:
    """What is wrong with the working folder, which the api does not see before it is packed."""
    if draft.folder is None:
        return None
    if not draft.folder.is_dir():
        return {"field": "workdir", "message": not_a_folder(draft.folder)}
    spec = draft.spec()
    data = "" if spec.trainer is None else spec.trainer.data
    brought = "/" in data and "://" not in data and not data.startswith("/")
    if brought and spec.setup is None and not (draft.folder / data).exists():
        told = f"trainer.data: {data} is not in the workdir {draft.folder}; correct the path"
        return {"field": "trainer.data", "message": told}
    return None


def _estimated(invocation: Invocation, spec: JobSpec, accept_risk: bool) -> dict[str, Any] | None:
    """What the job would cost and when it would end: by its own estimate, or where it has a limit.

    None where nothing tells how much work it is.
    """
    from app.domain.spec.trainer_work import with_known_work

    by_formula = spec.estimate is None
    if by_formula and not (spec.has_limit and with_known_work(spec)[0].estimate is not None):
        return None
    try:
        return asked_for(invocation, spec, accept_risk=accept_risk)
    except CommandFailed as failed:
        # The formula may err: it ends nothing against a person's will.
        if failed.status != HTTPStatus.UNPROCESSABLE_ENTITY or not (by_formula and accept_risk):
            raise
        invocation.terminal.note(f"Risk: {failed.message}.")
        return None


def _check_risk(terminal: Terminal, figures: dict[str, Any] | None, accepted: bool) -> None:
    """Refuses a job that may break what it promises, unless that is accepted."""
    if figures is None or not figures["estimates"]:
        return
    if not (terminal.as_json or terminal.quiet):
        own = figures["estimates"][0]
        told = chances_text(own["deadline_chance"], own["budget_chance"])
        if told:
            terminal.line(f"        chance of keeping: {told} (more: `lowtide estimate`)")
            if assumed := on_demand_assumed(figures):
                terminal.line(f"        that {assumed}")
    risk = figures["risk"]
    if risk is not None and not accepted:
        raise CommandFailed(f"{risk}; {ADVICE[Advice.ACCEPT_RISK]}")
    if risk is not None:
        terminal.note(f"Risk: {risk}.")


def _refuse_impossible(terminal: Terminal, plan: Preview, accepted: bool) -> None:
    """Refuses a job that will never run as it is, unless that is accepted; `-y` accepts no risk."""
    why = impossible(plan)
    if why is None:
        return
    if not accepted:
        raise CommandFailed(f"{why}; {ADVICE[Advice.ACCEPT_RISK]}")
    terminal.note(f"Risk: {why}.")


def _pack(draft: SpecDraft, closing: ExitStack) -> Archive | None:
    if draft.folder is None:
        return None
    from app.cli.jobs.workdir_archive import packed

    return closing.enter_context(packed(Path(draft.folder), ARCHIVE_BYTES_MAX))


def upload(invocation: Invocation, archive: Archive) -> None:
    """Send the packed folder, unless the api has it already."""
    terminal = invocation.terminal
    path = f"/workdirs/{archive.digest}"
    if invocation.api.exists(path):
        terminal.line("workdir unchanged: already uploaded")
        return
    invocation.api.upload(path, _with_bar(terminal, archive), archive.size_bytes)


def _with_bar(terminal: Terminal, archive: Archive) -> Iterator[bytes]:
    with progress_bar(terminal, "uploading workdir", archive.size_bytes, in_bytes=True) as bar:
        for piece in archive.pieces():
            yield piece
            bar.advance(len(piece))


def _show(
    terminal: Terminal,
    plan: Preview,
    archive: Archive | None,
    sources: dict[str, str],
    dry_run: bool,
) -> None:
    if terminal.as_json:
        if dry_run:
            folder = None if archive is None else archive.digest
            planned = {"spec": plan.spec.to_json(), "workdir": folder, "plan": plan.to_json()}
            terminal.json({**planned, "spec_sources": sources})
        return
    print_plan(terminal, plan)
    if sources:
        terminal.line(f"from the project: {', '.join(sources)}")
    if archive is not None:
        files = wording.plural(archive.files, "file")
        packed_size = wording.size(archive.size_bytes)
        terminal.line(f"workdir {files}, {packed_size} packed, {archive.digest[:19]}…")


def _agreed(terminal: Terminal) -> bool:
    """Ask where someone can answer; elsewhere the command itself is the answer."""
    if not (terminal.interactive and sys.stdin.isatty()):
        return True
    return typer.confirm("Submit?", default=True)


def _post(invocation: Invocation, spec: JobSpec) -> dict[str, Any]:
    # One key for all tries: a lost answer cannot make a second job.
    key = f"lowtide-submit-{secrets.token_hex(16)}"
    # Any risk was weighed here already, over more simulated runs than the api takes.
    path = "/jobs?accept_risk=true"
    document = spec.to_written_json()
    with _naming_the_option():
        accepted: dict[str, Any] = invocation.api.post(path, document, idempotency_key=key)
    return accepted


@contextmanager
def _naming_the_option() -> Iterator[None]:
    """Say of a name that is taken how another one is given here; the api knows no options."""
    try:
        yield
    except CommandFailed as failed:
        if failed.status != HTTPStatus.CONFLICT or failed.field != "name":
            raise
        raise CommandFailed(
            f"{failed.message} Give another one with --name.", status=failed.status, field="name"
        ) from failed


def _say_accepted(terminal: Terminal, accepted: dict[str, Any]) -> None:
    name = accepted["name"]
    terminal.to_script(accepted, [name])
    terminal.line(f"{terminal.paint(name, 'bold')} is submitted. Follow it: lowtide watch {name}")


def _follow(invocation: Invocation, accepted: dict[str, Any]) -> None:
    terminal, name = invocation.terminal, accepted["name"]
    if terminal.quiet:
        terminal.result(name)
    terminal.line(f"{terminal.paint(name, 'bold')} is submitted: {invocation.api.url}/jobs/{name}")
    try:
        final = following.follow(invocation.api, terminal, f"/jobs/{accepted['id']}")
    except KeyboardInterrupt:
        following.leave_running(terminal, name)
    if terminal.as_json:
        terminal.json(final)
    following.finish(terminal, final)
