"""What people did, from the command line: as a list, as a file, verified."""

from __future__ import annotations

import csv
import io
import json

import pytest

from app.cli.access import audit_commands
from app.domain.access.roles import Role
from app.orchestration.audit.seal_audit import SealAudit
from app.orchestration.frame.controller_frame import run_controller
from app.storage.schema.tables import audit_entries
from tests.support.api.people_api import make_key
from tests.support.cli.cli_world import World
from tests.support.servers.table_rows import execute, rows_of


def test_what_people_did_is_listed_exported_and_verified(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    key = make_key(world.api.engine, world.job.project_id, "root", Role.ADMIN)
    world.cli.variables["LOWTIDE_API_KEY"] = key
    world.cli.ok("key", "create", "ci")
    world.cli.ok("project", "create", "vision")
    listed = world.cli.ok("audit")
    assert "key.create" in listed.row("ci")
    assert "127.0.0.1" in listed.row("ci")
    assert "root" in listed.row("vision")
    found = json.loads(world.cli.ok("audit", "list", "--action", "project", "--json").out)
    assert [row["subject_name"] for row in found] == ["vision"]
    only_vision = json.loads(world.cli.ok("audit", "list", "--project", "vision", "--json").out)
    assert only_vision == found
    assert world.cli.ok("audit", "list", "--who", "nobody").out == "Nothing was done.\n"
    header, *rows = csv.reader(io.StringIO(world.cli.ok("audit", "export").out))
    assert len(rows) == 2
    assert rows[1][header.index("subject_name")] == "ci"
    lines = world.cli.ok("audit", "export", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["project.create", "key.create"]
    assert "is no action" in world.cli.fails(2, "audit", "export", "--action", "fly").errors

    told = world.cli.ok("audit", "verify").out
    assert "The audit agrees: 0 rows in 0 seals" in told
    assert "Not sealed yet: 2 rows" in told
    run_controller(world.api.parts.runtime, SealAudit(world.api.parts.runtime))
    told = world.cli.ok("audit", "verify").out
    assert told == "The audit agrees: 2 rows in 1 seal, here and outside the database.\n"
    execute(
        world.api.engine,
        "ALTER TABLE audit_entries DISABLE TRIGGER USER; "
        "UPDATE audit_entries SET address = '::1' WHERE subject_name = 'ci'; "
        "ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_append_only; "
        "ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_inserted_without_number; "
        "ALTER TABLE audit_entries ENABLE ALWAYS TRIGGER audit_entries_numbered_once",
    )
    differs = world.cli.run("audit", "verify")
    assert differs.exit_code == 1
    [row] = rows_of(world.api.engine, audit_entries, subject_name="ci")
    assert "The audit DOES NOT AGREE" in differs.out
    assert f"- Row 1 ({row.id}) was changed after seal 1." in differs.out
    assert json.loads(world.cli.run("audit", "verify", "--json").out)["agrees"] is False
    execute(
        world.api.engine,
        "ALTER TABLE audit_entries DISABLE TRIGGER USER; "
        "UPDATE audit_entries SET address = '::1' WHERE subject_name = 'vision'",
    )
    monkeypatch.setattr(audit_commands, "_DIFFERENCES_MAX", 1)
    lines = world.cli.run("audit", "verify").out.splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        f"- Row 1 ({row.id}) was changed after seal 1.",
        "- And 1 difference more.",
    ]
    whole = json.loads(world.cli.run("audit", "verify", "--json").out)
    assert (whole["is_cut"], whole["differences_found"], len(whole["differences"])) == (True, 2, 1)
    execute(
        world.api.engine, "UPDATE audit_entries SET number = 1002 WHERE subject_name = 'vision'"
    )
    assert world.cli.ok("audit").row("project.create", "vision").split()[-1] == "1,002"
    for options, advice in (
        (("list", "--refused", "--who", "ci"), "--day and --limit only"),
        (("list", "--refused", "--limit", "1001"), "at most 1,000"),
        (("export", "--json"), "--format jsonl"),
        (("export", "-q"), "--format jsonl"),
    ):
        assert advice in world.cli.fails(2, "audit", *options).errors
    viewer = make_key(world.api.engine, world.job.project_id, "guest", Role.VIEWER)
    world.cli.variables["LOWTIDE_API_KEY"] = viewer
    assert "may not read the audit" in world.cli.fails(2, "audit").errors
