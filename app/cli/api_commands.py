"""Every command that talks to the api, by its name: the list that the program is made from.

Not here: the commands that run programs on this machine (`main`).
"""

from __future__ import annotations

import typer

from app.cli.access.audit_commands import audit
from app.cli.access.key_commands import key
from app.cli.access.login import login
from app.cli.access.logout import logout
from app.cli.access.member_commands import member, person
from app.cli.access.project_commands import project
from app.cli.access.secret_commands import secret
from app.cli.access.session_commands import session
from app.cli.fleet.budget_commands import budget
from app.cli.fleet.cost_commands import cost
from app.cli.fleet.destroy import destroy
from app.cli.fleet.freeze_commands import freeze, thaw
from app.cli.fleet.instance_commands import instances
from app.cli.fleet.limit_commands import limits
from app.cli.fleet.offers import offers
from app.cli.fleet.sweep_command import sweep
from app.cli.jobs.download import download
from app.cli.jobs.estimate_command import estimate
from app.cli.jobs.explain import explain
from app.cli.jobs.follow import watch
from app.cli.jobs.history import checkpoints, events, metrics
from app.cli.jobs.job_commands import cancel, pause, resume
from app.cli.jobs.list_commands import jobs, show
from app.cli.jobs.logs import logs
from app.cli.jobs.submit import submit
from app.cli.notifications.delivery_commands import notification


def add_api_commands(program: typer.Typer) -> None:
    """Add them to the program, in the order in which help lists them."""
    for command in (
        login, logout, estimate, submit, jobs, show, watch, logs, cancel, pause, resume,
    ):  # fmt: skip
        program.command(command.__name__)(command)
    program.command("ps", hidden=True)(jobs)
    for command in (explain, events, checkpoints, download, metrics, offers):
        program.command(command.__name__)(command)
    program.add_typer(instances, name="instances")
    program.add_typer(cost, name="cost")
    program.add_typer(project, name="project")
    program.add_typer(budget, name="budget")
    program.add_typer(member, name="member")
    program.add_typer(key, name="key")
    program.add_typer(secret, name="secret")
    program.add_typer(notification, name="notification")
    program.add_typer(session, name="session")
    program.add_typer(person, name="person")
    program.add_typer(audit, name="audit")
    for command in (limits, freeze, thaw, sweep, destroy):
        program.command(command.__name__)(command)
