"""Channels, rules and deliveries that requests of a test are about, made over REST.

Not here: what is sent to a channel (`tests/support/servers`).
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.api.people_api import PeopleApi, bearer
from tests.support.servers.table_rows import execute

CHANNEL: Final = {"kind": "slack", "url": "https://hooks.example.com/services/T0/B0/key"}


def notified(api: PeopleApi, key: str, name: str, path: str) -> str:
    """A path with the channel of this name in it, and with a rule or a delivery that has failed,
    each made where the path needs it. Any other path stays as it is.
    """
    if "/notifications/" not in path:
        return path
    filled = path.replace("{channel}", name).replace("{project}", "admin")
    if path.endswith("/{channel}"):
        return filled
    where = f"/api/v1/notifications/channels/{name}"
    assert api.client.put(where, json=CHANNEL, headers=bearer(key)).is_success
    if "{rule}" in path:
        rule = _made(api, key, "/api/v1/notifications/rules", channel=name, trigger="started")
        filled = filled.replace("{rule}", rule)
    if "{delivery}" in path:
        sent = _made(api, key, f"{where}/test")
        execute(
            api.engine,
            "UPDATE notification_deliveries SET state = 'failed', ended_at = created_at "
            f"WHERE id = '{sent}'",
        )
        filled = filled.replace("{delivery}", sent)
    return filled


def _made(api: PeopleApi, key: str, path: str, **body: Any) -> str:
    answer = api.client.post(path, json=body, headers=bearer(key))
    assert answer.is_success, answer.text
    return str(answer.json()["id"])
