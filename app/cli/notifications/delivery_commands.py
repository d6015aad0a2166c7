"""`lowtide notification test`, `deliveries` and `resend`: what was sent, and what came of it.

Not here: channels and rules (`channel_commands`).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from app.cli.client import wording
from app.cli.client.failures import CommandFailed
from app.cli.client.invocation import Invocation, api_command
from app.cli.client.job_lookup import path_part
from app.cli.client.terminal import Column
from app.cli.notifications.channel_commands import notification
from app.domain.notifications.delivery_rules import DeliveryState

_LISTED_MAX: Final = 1_000
_LOOK_SECONDS: Final = 0.5
_LOOKS_MAX: Final = 80


@notification.command("test")
@api_command("lowtide notification test team")
def try_channel(
    invocation: Invocation,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name.")],
) -> None:
    """Send a message to a channel, and say what came of it.

    The message says that there is nothing to do.
    """
    path = f"/notifications/channels/{path_part(channel, 'channel')}/test"
    delivery_id = invocation.api.post(path)["id"]
    for _ in range(_LOOKS_MAX):
        row = invocation.api.get(f"/notifications/deliveries/{delivery_id}")
        if row["tries"] or row["ended_at"] is not None:
            break
        time.sleep(_LOOK_SECONDS)
    else:
        raise CommandFailed(
            "It was not sent within 40 seconds: look whether the worker runs (`lowtide status`), "
            "and later at `lowtide notification deliveries`"
        )
    if row["state"] != DeliveryState.DELIVERED:
        raise CommandFailed(f"It did not arrive: {row['last_answer']}")
    if not invocation.terminal.to_script(row, [row["id"]]):
        invocation.terminal.line(f"Channel {row['channel']} took it ({row['last_answer']}).")


@notification.command("deliveries")
@api_command(
    "lowtide notification deliveries", "lowtide notification deliveries --state failed --json"
)
def list_deliveries(
    invocation: Invocation,
    state: Annotated[
        DeliveryState | None,
        typer.Option(
            metavar="STATE",
            show_choices=False,
            help="new, waiting, held, digested, delivered or failed.",
        ),
    ] = None,
) -> None:
    """List what was sent within 30 days, the newest first. For maintainers and admins."""
    now = datetime.now(UTC)
    columns = (
        Column("DELIVERY", lambda row: row["id"]),
        Column("CHANNEL", lambda row: row["channel"]),
        Column("WHAT", lambda row: row["title"]),
        Column("STATE", lambda row: row["state"]),
        Column("TRIES", lambda row: str(row["tries"]), True),
        Column("CREATED", lambda row: wording.ago(row["created_at"], now)),
        Column("NEXT TRY", lambda row: wording.ahead(row["next_try_at"], now)),
        Column("ANSWER", _answer),
    )
    query = {} if state is None else {"state": state.value}
    rows = invocation.api.pages("/notifications/deliveries", query, limit=_LISTED_MAX, turn="after")
    invocation.terminal.listing(columns, rows, result="id", empty="Nothing was sent.")


@notification.command("resend")
@api_command("lowtide notification resend 0190b3c4-…")
def send_again(
    invocation: Invocation,
    delivery: Annotated[
        str, typer.Argument(metavar="ID", help="As `lowtide notification deliveries` lists it.")
    ],
) -> None:
    """Try a delivery that has ended again, under the same id."""
    path = f"/notifications/deliveries/{path_part(delivery, 'delivery')}/resend"
    sent = invocation.api.post(path)
    if not invocation.terminal.to_script(sent, [sent["id"]]):
        invocation.terminal.line("It is sent again.")


def _answer(row: dict[str, Any]) -> str:
    return str(row["last_answer"] or wording.NOTHING)


# The group, which has these commands once this module is imported.
__all__ = ["notification"]
