"""What a machine may be called in a command that names one."""

from __future__ import annotations

from typing import Any

from app.cli.fleet.instance_commands import names_of

RUNNING: dict[str, Any] = {
    "job_name": "bert-ft",
    "name": "m2",
    "provider": "aws",
    "provider_instance_id": "i-0abc",
}


def test_a_machine_goes_by_its_name_and_by_the_clouds_id():
    assert names_of(RUNNING)[:2] == ["bert-ft/m2", "i-0abc"]


def test_a_machine_that_the_cloud_has_not_named_yet_has_no_name():
    """Else a dash, or `bert-ft/None`, would interrupt it."""
    assert names_of({**RUNNING, "name": None, "provider_instance_id": None}) == []
