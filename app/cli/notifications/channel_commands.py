"""`lowtide notification`: channels of a project, and what each is told of.

The address of a webhook and a password come from the prompt or from stdin, and are never arguments:
those are in every list of processes. Not here: what was sent (`delivery_commands`).
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.command_groups import CommandList, DefaultCommandGroup
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.terminal import Column
from app.domain.notifications.channel_targets import WEBHOOKS, ChannelKind, MailSecurity
from app.domain.notifications.triggers import Trigger

notification = CommandList(
    cls=DefaultCommandGroup,
    help="Channels for notifications: set, subscribe, test, resend.",
)

_SECRET_MAX: Final = 4_096
_Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name.")]
_Kind = Annotated[
    ChannelKind,
    typer.Option(
        "--kind",
        metavar="KIND",
        show_choices=False,
        help="slack (also for what takes the same, as Mattermost), webhook (signed JSON) or smtp.",
    ),
]


@notification.command("list")
@api_command("lowtide notification", "lowtide notification list --project vision --json")
def list_channels(invocation: Invocation) -> None:
    """List channels, and what each is told of.

    `lowtide notification` alone does the same.
    """
    now = datetime.now(UTC)
    rules = invocation.api.get("/notifications/rules")["items"]
    rows = [
        {**row, "told_of": [_told(one) for one in rules if one["channel"] == row["name"]]}
        for row in invocation.api.get("/notifications/channels")["items"]
    ]
    columns = (
        Column("CHANNEL", lambda row: row["name"]),
        Column("KIND", lambda row: row["kind"]),
        Column("LEADS TO", lambda row: row["destination"]),
        Column("TOLD OF", lambda row: ", ".join(row["told_of"]) or wording.NOTHING),
        Column("CHANGED", lambda row: wording.ago(row["changed_at"], now)),
        Column("BY", lambda row: row["changed_by"].partition(":")[2]),
    )
    invocation.terminal.listing(
        columns, rows, result="name", empty="This project has no channel for notifications."
    )


@notification.command("set")
@api_command(
    "lowtide notification set team",
    "lowtide notification set pager --kind webhook < address",
    "lowtide notification set ops --kind smtp --host smtp.example.com --from lowtide@example.com "
    "--to ops@example.com --username lowtide",
)
def set_channel(
    invocation: Invocation,
    channel: _Channel,
    kind: _Kind = ChannelKind.SLACK,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="The mail server, of smtp.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Its port; default: the usual one.")
    ] = None,
    security: Annotated[
        MailSecurity | None,
        typer.Option(
            metavar="HOW", show_choices=False, help="starttls (the default) or tls, of smtp."
        ),
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--from", metavar="ADDRESS", help="Who mails come from.")
    ] = None,
    to: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="Who is mailed; repeatable.")
    ] = None,
    username: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="For a mail server that asks; then the password is, too."
        ),
    ] = None,
) -> None:
    """Make a channel, or let it lead elsewhere.

    The address of a webhook is asked for, or read from stdin, as is the password of a mail server:
    whoever has the address of a webhook can post to it. A signed webhook's key is printed once.
    """
    given = {
        "host": host,
        "port": port,
        "security": None if security is None else security.value,
        "from": sender,
        "to": to,
        "username": username,
    }
    body = _with_secret(kind, {name: one for name, one in given.items() if one is not None})
    made = invocation.api.put(f"/notifications/channels/{path_part(channel, 'channel')}", body)
    terminal = invocation.terminal
    key = made["signing_key"]
    if terminal.to_script(made, [made["name"] if key is None else key]):
        return
    terminal.line(f"Channel {made['name']} leads to {made['destination']}.")
    if key is not None:
        terminal.raw(f"{key}\n")
        terminal.note("It is signed with this key, which is shown here alone.")


@notification.command("remove")
@api_command("lowtide notification remove team")
def remove_channel(invocation: Invocation, channel: _Channel) -> None:
    """Remove a channel with its rules; what waits for it is not sent."""
    path = f"/notifications/channels/{path_part(channel, 'channel')}/remove"
    gone = invocation.api.post(path)
    if not invocation.terminal.to_script(gone, [gone["name"]]):
        invocation.terminal.line(f"Channel {gone['name']} is removed.")


@notification.command("rules")
@api_command("lowtide notification rules")
def list_rules(invocation: Invocation) -> None:
    """List what the project's channels are told of."""
    now = datetime.now(UTC)
    columns = (
        Column("RULE", lambda row: row["id"]),
        Column("CHANNEL", lambda row: row["channel"]),
        Column("TOLD OF", _told),
        Column("CREATED", lambda row: wording.ago(row["created_at"], now)),
        Column("BY", lambda row: row["created_by"].partition(":")[2]),
    )
    rows = invocation.api.get("/notifications/rules")["items"]
    invocation.terminal.listing(columns, rows, result="id", empty="No channel has a rule.")


@notification.command("subscribe")
@api_command(
    "lowtide notification subscribe team failed",
    "lowtide notification subscribe team waiting --after 1h",
)
def subscribe(
    invocation: Invocation,
    channel: _Channel,
    trigger: Annotated[
        Trigger,
        typer.Argument(
            metavar="WHAT",
            help="started, interrupted, waiting, deadline_at_risk, budget, failed or succeeded; "
            "machine_leaked, books_differ and deployment_budget for admins.",
        ),
    ],
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of waiting: for how long, as 1h.")
    ] = None,
) -> None:
    """Tell a channel of what happens to jobs.

    It is told of every job of the project. A job's own `notify: [team]` tells a channel of that
    job alone.
    """
    body = {"channel": channel, "trigger": trigger.value, "after": after}
    made = invocation.api.post("/notifications/rules", body)
    if not invocation.terminal.to_script(made, [made["id"]]):
        invocation.terminal.line(f"Channel {made['channel']} is told of {_told(made)}.")


@notification.command("unsubscribe")
@api_command("lowtide notification unsubscribe 0190b3c4-…")
def unsubscribe(
    invocation: Invocation,
    rule: Annotated[
        str, typer.Argument(metavar="ID", help="As `lowtide notification rules` lists it.")
    ],
) -> None:
    """End a rule; what it has told already is sent."""
    gone = invocation.api.post(f"/notifications/rules/{path_part(rule, 'rule')}/remove")
    if not invocation.terminal.to_script(gone, [gone["id"]]):
        invocation.terminal.line("The rule is removed.")


def _told(rule: dict[str, Any]) -> str:
    """What a rule waits for, as "waiting over 1h"."""
    if rule["after_seconds"] is None:
        return str(rule["trigger"])
    from app.domain.units.durations import exact_duration

    return f"{rule['trigger']} over {exact_duration(rule['after_seconds'])}"


def _with_secret(kind: ChannelKind, given: dict[str, Any]) -> dict[str, Any]:
    """The body of a channel, with the address or the password that is asked for."""
    body = {"kind": kind.value, **given}
    if kind in WEBHOOKS:
        body["url"] = _asked("Address of the webhook")
    elif "username" in given:
        body["password"] = _asked(f"Password of {given['username']}")
    return body


def _asked(what: str) -> str:
    """A secret of one line, from the prompt or from stdin. Raises CommandFailed."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True)).strip()
    content = sys.stdin.buffer.read(_SECRET_MAX + 1)
    try:
        line = content.decode().strip("\r\n")
    except UnicodeDecodeError:
        raise CommandFailed(f"{what}: what stdin has is not UTF-8 text") from None
    if not line or "\n" in line or len(content) > _SECRET_MAX:
        raise CommandFailed(f"{what}: stdin must have it as one line")
    return line
