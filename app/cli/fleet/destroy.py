"""`lowtide destroy`: end all that this deployment has in every cloud, and say what is left.

Not here: machines that nobody knows, one by one (`sweep_command`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.failures import BAD_INPUT, JOB_FAILED, CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.fleet.sweep_command import (
    all_listed,
    leftovers_of,
    print_leftovers,
    print_lists,
    print_machines,
    wait_for,
)

_WAIT_SECONDS: Final = 300.0


@api_command(
    "lowtide destroy",
    "lowtide destroy --yes --wait 600",
)
def destroy(
    invocation: Invocation,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            max=3_600,
            metavar="SECONDS",
            help="Wait at most so many seconds until all is gone.",
        ),
    ] = _WAIT_SECONDS,
) -> None:
    """End every job and machine of this deployment, in every cloud.

    Cancels the jobs first. Also ends machines that the database does not know, then removes disks,
    templates, groups and policies. Nothing is saved first. Prints what is left, and exits with 1 if
    anything is. Data, keys and checkpoints stay. Needs an admin's key.
    """
    terminal = invocation.terminal
    before = invocation.api.get("/sweep")
    if not yes:
        _ask(invocation, before)
    invocation.api.post("/destroy", {"deployment_id": before["deployment_id"]})
    after = wait_for(invocation, _is_gone, wait)
    left, unlisted = after["machines"], [one for one in after["regions"] if not one["fresh"]]
    names = [row["provider_instance_id"] or row["id"] for row in left]
    names += [row["id"] for row in leftovers_of(after)]
    if not terminal.to_script(after, names):
        print_lists(invocation, after)
        if left:
            print_machines(invocation, left)
        print_leftovers(invocation, after)
    if not _is_gone(after):
        terminal.note(_what_is_left(after, len(unlisted)))
        raise typer.Exit(JOB_FAILED)
    terminal.line(
        "Everything is gone: every region was listed and nothing of this deployment is left."
    )


def _ask(invocation: Invocation, before: dict[str, Any]) -> None:
    if not invocation.terminal.interactive:
        raise CommandFailed("this ends every machine: add --yes to run without a prompt", BAD_INPUT)
    jobs = wording.plural(before["live_job_count"], "job")
    machines = wording.plural(before["machine_count"], "machine")
    invocation.terminal.line(f"Deployment {before['deployment_id']}: {jobs}, {machines}.")
    typer.confirm("Cancel all jobs and end all machines, without saving?", abort=True)


def _is_gone(document: dict[str, Any]) -> bool:
    """Nothing has a row any more, and every cloud's list since the order is empty."""
    rows = document["machine_count"] + document["live_job_count"]
    listed = all(one["complete"] and not one["machines"] for one in document["regions"])
    listed = listed and not leftovers_of(document)
    return rows == 0 and all_listed(document) and listed and document["mode"] != "destroy"


def _what_is_left(after: dict[str, Any], unlisted: int) -> str:
    left = [
        f"{wording.plural(after['machine_count'], 'machine')}",
        f"{wording.plural(after['live_job_count'], 'job')}",
    ]
    if leftovers_of(after):
        left.append(wording.plural(len(leftovers_of(after)), "other thing"))
    if unlisted:
        left.append(f"{wording.plural(unlisted, 'region')} that could not be listed")
    return f"Left: {', '.join(left)}. The worker continues; run this again to check."
