"""Keys and projects from the command line; and the way back in for who has lost the last key."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from sqlalchemy import select

from app.cli.access.login import key_of_local_run
from app.cli.client.invocation import Invocation
from app.cli.client.terminal import Terminal
from app.domain.access.roles import Role
from app.storage.schema import tables
from tests.support.api.agent_api import wait_until
from tests.support.api.invited_people import Browser, accept_with
from tests.support.api.people_api import make_key
from tests.support.cli.cli_world import World
from tests.support.servers.table_rows import change_rows, fetch_value, rows_of

KEYS = tables.api_keys


def as_admin(world: World, name: str = "root") -> None:
    key = make_key(world.api.engine, world.job.project_id, name, Role.ADMIN)
    world.cli.variables["LOWTIDE_API_KEY"] = key


def test_a_key_is_made_listed_used_rotated_and_revoked(world: World):
    refused = world.cli.fails(2, "key", "create", "ci", "--expires-in", "never").errors
    assert "--expires-in: " in refused
    assert "leave it out for a key without an end" in refused
    made = world.cli.ok("key", "create", "ci", "--expires-in", "30d")
    [secret] = made.out.split()
    assert secret.startswith("lt_")
    assert "Key ci, submitter of the project" in made.errors
    assert "shown once" in made.errors
    listed = world.cli.ok("key")
    assert secret not in listed.out
    row = listed.row("ci")
    assert f"{secret[:7]}…" in row
    assert "submitter" in row
    world.cli.variables["LOWTIDE_API_KEY"] = secret
    assert world.cli.ok("key", "show").out.startswith("Key ci, submitter of the project")
    assert "has the role submitter, which may not manage keys" in world.cli.fails(2, "key").errors
    as_admin(world)
    rotated = json.loads(world.cli.ok("key", "rotate", "ci", "--overlap", "2h", "--json").out)
    assert rotated["key"] != secret
    assert rotated["former_until_at"] is not None
    assert world.cli.ok("key", "revoke", "ci").out == "Key ci is revoked.\n"
    assert "ci" not in world.cli.ok("key", "list", "-q").out.split()
    assert "revoked" in world.cli.ok("key", "list", "--all").row("ci")
    world.cli.variables["LOWTIDE_API_KEY"] = rotated["key"]
    wait_until(lambda: "revoked" in world.cli.fails(2, "jobs").errors, seconds=20)


def test_projects_are_made_and_every_command_can_be_in_one(world: World):
    as_admin(world)
    assert (
        "lowtide key create NAME --project vision"
        in world.cli.ok("project", "create", "vision").out
    )
    world.cli.ok("key", "create", "lea", "--role", "viewer", "--project", "vision")
    assert "lea" in world.cli.ok("key", "list", "-q", "--project", "vision").out.split()
    assert "lea" not in world.cli.ok("key", "list", "-q").out.split()
    assert "digits" in world.cli.ok("jobs").out
    assert "digits" not in world.cli.ok("jobs", "--project", "vision").out
    world.cli.variables["LOWTIDE_PROJECT"] = "vision"
    assert "digits" not in world.cli.ok("jobs").out
    world.cli.variables["LOWTIDE_PROJECT"] = "not-there"
    assert "There is no project 'not-there'" in world.cli.fails(2, "jobs").errors
    del world.cli.variables["LOWTIDE_PROJECT"]
    assert "archived" in world.cli.ok("project", "archive", "vision").out
    spec = world.spec("project: vision\nrun: 'true'\n")
    refused = world.cli.fails(2, "submit", spec, "-d", "-y").errors
    assert "project: 'vision' is archived" in refused
    world.cli.ok("project", "restore", "vision")
    world.cli.ok("submit", spec, "-d", "-y", "--name", "placed")
    assert "placed" in world.cli.ok("jobs", "--project", "vision").out
    assert "1" in world.cli.ok("project").row("vision")
    home = world.cli.ok("key", "show").out.split()[-1].rstrip(".")
    both = world.cli.ok("key", "create", "ci", "--projects", f"vision, {home}")
    assert f"Key ci, submitter of the projects {home}, vision." in both.errors
    admin, world.cli.variables["LOWTIDE_API_KEY"] = (
        world.cli.variables["LOWTIDE_API_KEY"],
        both.out.strip(),
    )
    assert f"It opens no projects but {home}, vision." in world.cli.ok("key", "show").out
    world.cli.variables["LOWTIDE_API_KEY"] = admin
    assert "vision" in world.cli.ok("key").row("ci", home)
    there = f"{home}/ci"
    assert "submitter" in world.cli.ok("member", "--project", "vision").row(there)
    assert "is no member" in world.cli.ok("member", "remove", there, "--project", "vision").out
    assert there not in world.cli.ok("key", "list", "-q", "--project", "vision").out.split()
    assert "no name of a member" in world.cli.fails(2, "member", "remove", "a/b/c").errors


def test_members_are_invited_listed_changed_and_removed(world: World):
    as_admin(world)
    invited = world.cli.ok("member", "invite", "--role", "viewer", "--email", "lea@example.com")
    link = invited.out.strip()
    assert link.startswith(f"{world.api.url}/invitation#")
    assert "viewer of the project" in invited.errors
    open_row = world.cli.ok("member", "invitations").row("lea@example.com")
    expires_at = datetime.fromisoformat(" ".join(open_row.split()[-2:])).replace(tzinfo=UTC)
    assert expires_at > datetime.now(UTC) + timedelta(hours=71)
    answer = accept_with(Browser(world.api.url), link.partition("#")[2], "Lea Müller")
    found = re.search(r"lt_[\w-]{43}", answer.text)
    assert found is not None, answer.text
    assert "viewer" in world.cli.ok("member").row("Lea Müller", "person")
    changed = world.cli.ok("member", "role", "lea müller", "submitter").out
    assert changed == "Lea Müller has the role submitter.\n"
    spare = world.cli.ok("member", "invite", "-q")
    assert spare.errors == ""
    [open_one] = world.cli.ok("member", "invitations", "-q").out.split()
    assert "taken back" in world.cli.ok("member", "uninvite", open_one).out
    again = world.cli.ok("member", "invite", "--again", "Lea Müller")
    assert "For Lea Müller, once" in again.errors
    both = world.cli.fails(2, "member", "invite", "--again", "Lea Müller", "--email", "l@m.de")
    assert "leave it out with --again" in both.errors
    admin = world.cli.variables["LOWTIDE_API_KEY"]
    world.cli.variables["LOWTIDE_API_KEY"] = found[0]
    assert "of Lea Müller, submitter of the project" in world.cli.ok("key", "show").out
    [own] = world.cli.ok("key", "create", "notebook", "--mine", "--role", "viewer").out.split()
    assert f"{own[:7]}…" in world.cli.ok("key", "list", "--mine").row("notebook", "viewer")
    assert world.cli.ok("key", "revoke", "notebook", "--mine").out == "Key notebook is revoked.\n"
    [session] = world.cli.ok("session", "list", "-q").out.split()
    assert "signed out" in world.cli.ok("session", "end", session).out
    assert "No browser is signed in." in world.cli.ok("session").out
    world.cli.variables["LOWTIDE_API_KEY"] = admin
    assert "Lea Müller" in world.cli.ok("person").out
    refused = world.cli.fails(2, "key", "list", "--mine", "--person", "Lea Müller")
    assert "--mine and --person" in refused.errors
    listed = world.cli.ok("key", "list", "--person", "Lea Müller", "-q").out.split()
    assert listed, "the key of the invitation"
    assert "AT MOST" in world.cli.ok("key", "list", "--person", "Lea Müller").out
    ended = world.cli.ok("key", "revoke", listed[0], "--person", "Lea Müller").out
    assert ended == f"Key {listed[0]} is revoked.\n"
    assert "Lea Müller is disabled." in world.cli.ok("person", "disable", "Lea Müller").out
    assert "disabled" in world.cli.ok("person", "list").row("Lea Müller")
    world.cli.ok("person", "enable", "Lea Müller")
    assert "is no member any more" in world.cli.ok("member", "remove", "Lea Müller").out
    assert "no member 'nobody'" in world.cli.fails(2, "member", "remove", "nobody").errors
    assert "add --yes" in world.cli.fails(2, "person", "anonymise", "Lea Müller").errors
    told = world.cli.ok("person", "anonymise", "Lea Müller", "--yes").out
    assert "Lea Müller is called someone removed " in told
    assert "Lea" not in world.cli.ok("person").out
    [row] = rows_of(world.api.engine, KEYS, own_name=listed[0])
    assert row.revoked_at is not None


def test_the_admin_key_of_a_lowtide_up_is_used_while_it_is_good_and_nobody_asks_for_the_page(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    state = tmp_path / "state"
    state.mkdir()
    key = make_key(world.api.engine, world.job.project_id, "of-up", Role.ADMIN)
    (state / "admin.key").write_text(f"{key}\n")
    monkeypatch.setenv("LOWTIDE_STATE_DIR", str(state))
    errors = StringIO()
    with ExitStack() as closing:
        terminal = Terminal(out=StringIO(), errors=errors)
        invocation = Invocation(terminal, None, closing)
        assert key_of_local_run(invocation, world.api.url) == key
        (state / "admin.key").write_text("lt_" + "a" * 43)
        assert key_of_local_run(invocation, world.api.url) is None
    used, ended = errors.getvalue().splitlines()
    assert "Using the admin key" in used
    assert "has ended" in ended
    (state / "admin.key").write_text(f"{key}\n")
    world.cli.variables["LOWTIDE_STATE_DIR"] = str(state)
    asked = world.cli.run("login", world.api.url, "--no-browser", stdin="BBBB-BBBB\n")
    assert "/login?challenge=" in asked.errors
    assert "Using the admin key" not in asked.errors


def test_who_has_lost_every_key_makes_one_on_the_host(world: World):
    change_rows(world.api.engine, KEYS, revoked_at=world.api.parts.runtime.clock.now())
    project = fetch_value(
        world.api.engine,
        select(tables.projects.c.name).where(tables.projects.c.id == world.job.project_id),
    )
    world.cli.variables["LOWTIDE_DATABASE_URL"] = str(
        world.api.engine.url.render_as_string(hide_password=False)
    )
    assert (
        "no project 'nothing'"
        in world.cli.fails(2, "key", "recover", "--project", "nothing").errors
    )
    for number in (1, 2):
        made = world.cli.ok("key", "recover", "--project", project)
        assert f"Key recovered-{number}, admin of the deployment" in made.errors
    world.cli.variables["LOWTIDE_API_KEY"] = made.out.strip()
    assert "admin of the project" in world.cli.ok("key", "show").out
    [row] = [
        one
        for one in json.loads(world.cli.ok("key", "list", "--json").out)
        if one["name"] == "recovered-2"
    ]
    assert row["created_by"] == "person:recovery on the host"
    [listed, _] = json.loads(world.cli.ok("audit", "list", "--action", "key", "--json").out)
    told = [listed[name] for name in ("action", "who", "address", "subject_name")]
    assert told == ["key.recover", None, None, "recovered-2"]


FILE = """
projects:
  sight:
    rules:
      required_labels: {team: [detection]}
      ceilings: {budget_usd: 200, nodes: 2}
      defaults: {priority: 60, budget_usd: 50}
"""


def test_a_file_makes_projects_with_rules_and_shows_what_differs(world: World, tmp_path: Path):
    as_admin(world, "root-of-files")
    file = tmp_path / "projects.yaml"
    file.write_text(FILE)
    dry = world.cli.ok("project", "apply", str(file), "--dry-run").out
    assert "sight (new)" in dry
    assert "+ ceilings.budget_usd: $200.00" in dry
    assert dry.endswith("Dry run: nothing was changed.\n")
    assert "sight" not in world.cli.ok("project", "list", "-q").out.split()
    assert world.cli.ok("project", "apply", str(file), "--yes").out.endswith(
        "Applied: 1 project.\n"
    )
    file.write_text(FILE.replace("nodes: 2", "nodes: 4"))
    changed = world.cli.ok("project", "apply", str(file), "-y").out
    assert "sight\n  - ceilings.nodes: 2\n  + ceilings.nodes: 4\n" in changed
    assert world.cli.ok("project", "apply", str(file), "-y").out == "Nothing differs.\n"
    shown = world.cli.ok("project", "show", "sight").out
    lines = ["required_labels.team  detection", "defaults.budget_usd   $50.00",
             "defaults.priority     60", "ceilings.nodes        4",
             "ceilings.budget_usd   $200.00"]  # fmt: skip
    assert "\n".join(lines) in shown
    assert "Version 2" in shown
    file.write_text("projects: {sight: {limits: 3}}")
    refused = world.cli.fails(2, "project", "apply", str(file)).errors
    assert "known: archived, rules" in refused
    job = tmp_path / "job.yaml"
    job.write_text(
        "project: sight\nlabels: {team: detection}\nname: ruled\n"
        'run: "true"\nestimate: {hours: 1, gpu: V100}\nresources: {gpu: V100}\n'
    )
    plan = world.cli.ok("submit", str(job), "--dry-run").out
    assert "budget $50.00" in plan
    assert "from the project: priority, budget_usd" in plan
    world.cli.ok("submit", str(job), "-y", "-d")
    told = world.cli.ok("show", "ruled", "--project", "sight").out
    assert "by project  budget_usd, priority (rules version 2)" in told
    limited = FILE.replace(
        "      defaults", "      limits: {machines: 0, queued_jobs: 0}\n      defaults"
    )
    file.write_text(limited)
    applied = world.cli.ok("project", "apply", str(file), "-y").out
    assert "The project 'sight' has 1 queued job, over its limit of 0 queued jobs" in applied
    assert "0 queued jobs" in world.cli.ok("project", "show", "sight").out
    file.write_text(FILE)
    world.cli.ok("project", "apply", str(file), "-y")
    big = ("submit", str(job), "-y", "-d", "-n", "big", "--budget", "300")
    refused = world.cli.fails(2, *big).errors
    assert "the project 'sight' allows at most $200.00 (ceilings.budget_usd)" in refused


def test_launches_are_limited_frozen_and_paid_for_by_the_month(world: World):
    as_admin(world, "root-of-limits")
    assert world.cli.ok("limits").out == "The deployment has no limits.\n"
    set_two = ("limits", "--set", "gpus.V100=8", "--set", "max_hourly_spend_usd=120")
    assert "8" in world.cli.ok(*set_two).row("gpus.V100")
    assert "$120.00/h" in world.cli.ok("limits", "--unset", "gpus.V100").out
    assert "write LIMIT=VALUE" in world.cli.fails(2, "limits", "--set", "machines").errors
    assert "no such limit" in world.cli.fails(2, "limits", "--unset", "machines").errors
    world.cli.ok("limits", "--unset", "max_hourly_spend_usd")
    assert world.cli.ok("freeze").out == "Nothing is frozen.\n"
    frozen = world.cli.ok("freeze", "--cloud", "local", "--reason", "storm").out
    assert frozen.startswith("Launches at local are frozen since ")
    assert "storm" in world.cli.ok("freeze").row("cloud local")
    assert "name one of them" in world.cli.fails(2, "thaw").errors
    assert "name one of them" in world.cli.fails(2, "freeze", "vision", "--everything").errors
    assert world.cli.ok("thaw", "--cloud", "local").out == "Thawed: cloud local.\n"
    assert world.cli.ok("thaw", "--everything").out == "It was not frozen.\n"
    world.cli.ok("project", "create", "vision")
    assert world.cli.ok("budget").out == "No project has a monthly budget.\n"
    made = world.cli.ok("budget", "set", "vision", "2500", "--at-100", "drain_and_pause").out
    assert "$2,500.00 from " in made
    assert "jobs save and pause" in made
    assert "0 %" in world.cli.ok("budget").row("vision")
    assert world.cli.ok("budget", "remove", "vision").out == "vision has no monthly budget.\n"
    assert world.cli.ok("budget", "deployment").out == "The deployment has no monthly budget.\n"
    assert "$20,000.00 from " in world.cli.ok("budget", "deployment", "20000").out
    both = ("budget", "deployment", "20000", "--remove")
    assert "not both" in world.cli.fails(2, *both).errors
    removed = world.cli.ok("budget", "deployment", "--remove").out
    assert removed == "The deployment has no monthly budget.\n"
