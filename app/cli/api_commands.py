"""Every command that talks to the api, by its name: the list that the program is made from.

Not here: the commands that run programs on this machine (`main`).
"""

from __future__ import annotations

import typer

from app.cli.costs import cost
from app.cli.destroy import destroy
from app.cli.download import download
from app.cli.estimate import estimate
from app.cli.explain import explain
from app.cli.follow import watch
from app.cli.history import checkpoints, events, metrics
from app.cli.instances import instances
from app.cli.job_commands import cancel, pause, resume
from app.cli.jobs import jobs, show
from app.cli.login import login
from app.cli.logs import logs
from app.cli.offers import offers
from app.cli.submit import submit
from app.cli.sweep import sweep


def add_api_commands(program: typer.Typer) -> None:
    """Add them to the program, in the order in which help lists them."""
    for command in (login, estimate, submit, jobs, show, watch, logs, cancel, pause, resume):
        program.command(command.__name__)(command)
    program.command("ps", hidden=True)(jobs)
    for command in (explain, events, checkpoints, download, metrics, offers):
        program.command(command.__name__)(command)
    program.add_typer(instances, name="instances")
    program.add_typer(cost, name="cost")
    for command in (sweep, destroy):
        program.command(command.__name__)(command)
