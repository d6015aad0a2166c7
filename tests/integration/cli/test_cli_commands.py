"""The command line against the real api: what is printed, what is refused, which exit code."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, update

from app.domain.deployment.disk_full import DISK_FULL_KEY
from app.domain.lifecycle.job import JobState
from app.storage.schema import tables
from app.storage.schema.money_tables import pools
from tests.support.api.agent_api import wait_until
from tests.support.api.people_api import make_key
from tests.support.cli.cli_world import World
from tests.support.servers.table_rows import change_row, change_rows
from tests.support.stories.money_story import POOL, START

STREAM = "attempt-{:04d}/node-{}.log"


# --- who may, and where ---------------------------------------------------------------------------


def test_nothing_that_listens_is_exit_code_3(world: World):
    world.cli.variables["LOWTIDE_SERVER_URL"] = "http://127.0.0.1:1"
    said = world.cli.fails(3, "jobs").errors
    assert "cannot be reached" in said
    assert "LOWTIDE_SERVER_URL sets this address, even while `lowtide up` runs here." in said
    # Another state folder would not change the address.
    assert "LOWTIDE_STATE_DIR" not in said
    failure = world.cli.fails(3, "jobs", "--json")
    assert '"exit_code": 3' in failure.errors


def test_a_wrong_key_is_corrected_where_it_was_set(world: World):
    key = world.cli.variables["LOWTIDE_API_KEY"] = "lt_" + "a" * 43
    said = world.cli.fails(2, "jobs").errors
    assert "does not know the key in LOWTIDE_API_KEY, or it has expired or was revoked" in said
    assert "correct the variable, or unset it" in said
    del world.cli.variables["LOWTIDE_API_KEY"]
    config = world.cli.home / ".config" / "lowtide" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'server_url = "{world.api.url}"\napi_key = "{key}"\n')
    said = world.cli.fails(2, "jobs").errors
    assert "does not know the key, or it has expired or was revoked" in said
    assert "LOWTIDE_API_KEY" not in said


@pytest.mark.parametrize("key", ["", "lt_wrong", "lt_" + "a" * 43])
def test_a_missing_or_wrong_key_says_what_to_do(world: World, key: str):
    world.cli.variables["LOWTIDE_API_KEY"] = key
    assert "lowtide login" in world.cli.fails(2, "jobs").errors


def test_login_keeps_a_good_key_and_no_other(world: World):
    url, key = world.api.url, world.cli.variables.pop("LOWTIDE_API_KEY")
    del world.cli.variables["LOWTIDE_SERVER_URL"]
    config = world.cli.home / ".config" / "lowtide" / "config.toml"
    world.cli.fails(2, "login", url, stdin="lt_wrong\n")
    world.cli.fails(2, "login", url, stdin="\n")
    world.cli.fails(2, "login", "not an address", stdin=f"{key}\n")
    assert not config.exists()
    assert url in world.cli.ok("login", f"{url}/api/v1/", stdin=f"{key}\n").out
    assert config.stat().st_mode & 0o777 == 0o600
    assert "digits" in world.cli.ok("jobs").out


def test_an_unknown_option_or_command_is_exit_code_2(world: World):
    for arguments in (["jobs", "--bogus"], ["jbos"], ["show"], ["logs", "digits", "--rank", "x"]):
        world.cli.fails(2, *arguments)


# --- jobs -----------------------------------------------------------------------------------------


def test_jobs_are_listed_with_what_they_cost(world: World):
    ran = world.cli.ok("jobs")
    assert ran.out.splitlines()[0].split() == [
        "ID", "NAME", "STATE", "PROGRESS", "ETA/DEADLINE", "WHERE", "$/H", "COST", "SAVED",
        "WHY",
    ]  # fmt: skip
    assert "in ~59m" in ran.row("digits")
    assert ran.row("older").split()[-3:] == ["-", "No", "luck."]
    assert "local us-west-2a spot" in ran.row("digits", "running", "3.600")
    assert "$3.60" in ran.row("digits")
    assert "failed" in ran.row("older")
    assert "\x1b" not in ran.out
    assert "until a job has ended and its cost is final; so far: lowtide cost JOB" in ran.errors
    assert "SAVED" not in world.cli.ok("jobs", "-s", "failed").errors
    assert world.cli.ok("ps", "-q", "-s", "live").out == "digits\n"
    assert [job["name"] for job in world.cli.ok("jobs", "--json", "-l", "team=nlp").json] == [
        "digits"
    ]
    assert "No job matches" in world.cli.ok("jobs", "--since", "1h").out
    assert "not a state of a job" in world.cli.fails(2, "jobs", "-s", "asleep").errors
    assert "how long ago" in world.cli.fails(2, "jobs", "--since", "once").errors


def test_long_lists_are_read_part_by_part(world: World):
    for number in range(5):
        world.story.job(world.job.project_id, f"more-{number}")
    names = world.cli.ok("jobs", "-q", "--limit", "6").out.split()
    assert len(set(names)) == 6
    assert len(world.cli.ok("jobs", "-q").out.split()) == 7


def test_without_jobs_the_next_step_is_told(world: World):
    key = make_key(world.story.engine, world.api.project_id, "empty")
    world.cli.variables["LOWTIDE_API_KEY"] = key
    assert world.cli.ok("jobs").out == "No jobs yet. Submit one: lowtide submit job.yaml\n"
    assert world.cli.ok("jobs", "--json").json == []
    assert "No machine is rented" in world.cli.ok("instances").out


def test_a_job_is_found_by_name_id_and_end_of_id(world: World):
    job_id = str(world.job.id)
    for name in ("digits", job_id, job_id[-8:]):
        assert world.cli.ok("show", name, "--json").json["id"] == job_id
    assert "There is no job 'nothing'" in world.cli.fails(2, "show", "nothing").errors
    for name in ("../jobs", "", "."):
        assert "neither a name nor an id" in world.cli.fails(2, "show", name).errors


def test_show_tells_what_matters(world: World):
    out = world.cli.ok("show", "digits").out
    for told in ("digits", "running", "$3.60 of $25.00", "team=nlp", "p3.2xlarge"):
        assert told in out
    assert re.search(r"^attempts +1, 0 interrupted by the cloud$", out, re.MULTILINE)
    assert "lowtide submit --from" not in out
    failed = world.cli.ok("show", "older").out
    assert "No luck." in failed
    assert "lowtide logs older" in failed
    assert "lowtide submit --from older" in failed
    assert world.cli.ok("show", "older", "-q").out == "failed\n"


def test_commands_to_a_job(world: World):
    assert (
        "stopping (Pausing: a program that can save does so first"
        in world.cli.ok("pause", "digits").out
    )
    assert (
        "stopping (Cancelling: a program that can save does so first"
        in world.cli.ok("cancel", "digits").out
    )
    assert "saves" not in world.cli.ok("cancel", "digits", "--now").out
    assert "saves" not in world.cli.ok("show", "digits", "--json").json["why"]
    assert "is being cancelled, so it" in world.cli.fails(2, "resume", "digits").errors
    assert "failed" in world.cli.fails(2, "cancel", "older").errors
    world.story.job(world.job.project_id, "resting", cap=1, state=JobState.PAUSED)
    assert world.cli.ok("resume", "resting", "--budget", "+50", "--json").json["money"][
        "budget_microusd"
    ] == 50_000_001  # fmt: skip
    wrong = world.cli.fails(2, "resume", "resting", "--budget", "lots").errors
    assert "--budget 'lots' is not an amount of money" in wrong
    assert "as in +50" in wrong


def test_a_job_may_be_cancelled_twice(world: World):
    world.story.job(world.job.project_id, "waiting", state=JobState.QUEUED)
    assert world.cli.ok("cancel", "waiting").out == "waiting: cancelled (Cancelled by ada.)\n"
    assert "waiting: cancelled already" in world.cli.ok("cancel", "waiting").out


def test_a_command_that_comes_too_late_says_what_to_do_instead(world: World):
    for asked, told in (
        (("pause", "older"), "This job has already failed: there is nothing to pause."),
        (("resume", "older"), "has already failed. To run it again, submit it under another name"),
        (("cancel", "older"), "This job has already failed: there is nothing to cancel."),
    ):
        assert told in world.cli.fails(2, *asked).errors
    # More money for a job that runs would not be added: that is no repetition.
    told = world.cli.fails(2, "resume", "digits", "--budget", "+5").errors
    assert "This job is already running: there is nothing to resume." in told


def test_a_second_pause_or_resume_is_no_error_for_one_job_or_several(world: World):
    for name in ("resting", "asleep"):
        world.story.job(world.job.project_id, name, state=JobState.PAUSED)
    assert world.cli.ok("pause", "resting").out.startswith("resting: paused already")
    several = world.cli.ok("pause", "resting", "asleep").out
    assert several == "resting: paused already\nasleep: paused already\n"
    assert world.cli.ok("resume", "digits").out.startswith("digits: running already")
    world.cli.ok("pause", "digits")
    assert world.cli.ok("pause", "digits").out.startswith("digits: stopping already (Pausing")
    assert world.cli.ok("pause", "resting", "--json").json["state"] == "paused"
    assert world.cli.ok("pause", "resting", "-q").out == "resting\n"
    for names in (("older",), ("older", "resting")):
        assert "already failed" in world.cli.fails(2, "pause", *names).errors


def test_many_jobs_are_paused_and_resumed_by_what_they_have_in_common(world: World):
    for name in ("sweep-1", "sweep-2"):
        world.story.job(world.job.project_id, name, state=JobState.QUEUED, labels={"sweep": "lr"})
    ran = world.cli.ok("pause", "--label", "sweep=lr", "--yes")
    assert "Paused 2 of 2 jobs." in ran.errors
    assert "sweep-1: paused already" in world.cli.ok("pause", "sweep-1", "sweep-2").out
    assert "name that job alone" in world.cli.fails(2, "resume", "--all", "--budget", "+5").errors
    told = world.cli.fails(2, "resume", "--all").errors
    assert "this would resume 2 jobs (sweep-2, sweep-1): add --yes" in told
    resumed = world.cli.ok("resume", "--all", "--yes", "-q").out
    assert sorted(resumed.split()) == ["sweep-1", "sweep-2"]
    # Those that wait or run are meant, and no other.
    assert sorted(world.cli.ok("pause", "--all", "-y", "-q").out.split()) == [
        "digits", "sweep-1", "sweep-2",
    ]  # fmt: skip


def test_cancelling_several_goes_on_past_one_that_fails(world: World):
    world.story.job(world.job.project_id, "waiting", state=JobState.QUEUED)
    ran = world.cli.fails(2, "cancel", "nothing", "waiting", "--now")
    assert "nothing: " in ran.errors
    assert "waiting: cancelled" in ran.out
    told = world.cli.ok("cancel", "waiting", "waiting", "--json").json
    assert [(one["name"], one["outcome"]) for one in told] == [("waiting", "unchanged")]


def test_what_was_cancelled_has_one_shape_as_json(world: World):
    for name in ("one", "two", "three"):
        world.story.job(world.job.project_id, name, state=JobState.QUEUED)
    by_name = world.cli.ok("cancel", "one", "--json").json
    several = world.cli.ok("cancel", "one", "two", "--json").json
    found = world.cli.ok("cancel", "--name", "three", "--yes", "--json").json
    refused = world.cli.fails(2, "cancel", "older", "--json").json
    unknown = world.cli.fails(2, "cancel", "nothing", "--json").json
    assert world.cli.ok("cancel", "--name", "three", "--yes", "--json").json == []
    told = [*by_name, *several, *found, *refused, *unknown]
    assert {frozenset(one) for one in told} == {
        frozenset(("id", "name", "named", "outcome", "state", "detail"))
    }
    assert [one["outcome"] for one in told] == [
        "done", "unchanged", "done", "done", "refused", "not_found",
    ]  # fmt: skip


def test_cancelling_by_filter_asks_and_then_cancels_what_it_finds(world: World):
    for name in ("sweep-1", "sweep-2"):
        world.story.job(world.job.project_id, name, state=JobState.QUEUED)
    assert "name jobs, or give" in world.cli.fails(2, "cancel").errors
    for option in (("--all",), ("--label", "sweep=lr")):
        told = world.cli.fails(2, "cancel", "sweep-1", *option, "--yes").errors
        assert f"sweep-1 and {option[0]} do not go together: name jobs, or let options" in told
    told = world.cli.fails(2, "cancel", "--all").errors
    assert "this would cancel 3 jobs (sweep-2, sweep-1, digits): add --yes" in told
    assert "No job matches." in world.cli.ok("cancel", "--name", "nothing").out
    for command in (("cancel", "--yes"), ("jobs",)):
        refused = world.cli.fails(2, *command, "-l", "team").errors
        assert "label: 'team' needs a key and a value; write key=value, as in" in refused
    long = world.cli.fails(2, "jobs", "-l", f"team={'x' * 300}").errors
    assert "label: 'team=" in long
    assert "has 305 characters; at most 300" in " ".join(long.split())
    two = ("-l", "team=nlp", "-l", "team=vision")
    assert "given with two values" in world.cli.fails(2, "cancel", *two, "--yes").errors
    assert "given with two values" in world.cli.fails(2, "jobs", *two).errors
    assert "not a state" in world.cli.fails(2, "cancel", "-s", "asleep", "--yes").errors
    ran = world.cli.ok("cancel", "--state", "queued", "--name", "sweep", "--yes", "-q")
    assert sorted(ran.out.split()) == ["sweep-1", "sweep-2"]
    assert "No job matches" in world.cli.ok("cancel", "-s", "queued", "--name", "sweep", "-y").out
    assert "digits: stopping" in world.cli.ok("cancel", "--all", "--yes").out
    assert "digits: stopping already" in world.cli.ok("cancel", "-l", "team=nlp", "-y").out


# --- history --------------------------------------------------------------------------------------


def test_events(world: World):
    world.event("claimed", "Attempt 1 begins.")
    world.event("checkpoint_committed", "Saved \x1b[2J step 5.")
    ran = world.cli.ok("events", "digits")
    assert "Attempt 1 begins." in ran.row("attempt begins", "control plane")
    assert "claim_jobs" not in ran.out
    assert "\x1b" not in ran.out
    assert "step 5" in world.cli.ok("events", "digits", "--kind", "checkpoint saved").out
    assert world.cli.ok("events", "digits", "--kind", "claimed", "-q").out == "claimed\n"
    assert [row["seq"] for row in world.cli.ok("events", "digits", "--json").json] == [1, 2]
    # What a job and its attempt both record is told once.
    for kind in ("trainer_started", "attempt_started"):
        world.event(kind, "Training starts.")
    shown = world.cli.ok("events", "digits").out
    assert shown.count("Training starts.") == 1
    assert "trainer_started" not in shown
    assert len(world.cli.ok("events", "digits", "--json").json) == 4


def test_a_job_that_ended_without_metrics_expects_none(world: World):
    world.succeed()
    assert "No metrics: the job ended" in world.cli.ok("metrics", "digits").out


def test_checkpoints_and_metrics(world: World):
    assert "has saved no checkpoint" in world.cli.ok("checkpoints", "digits").out
    assert "No metrics yet" in world.cli.ok("metrics", "digits").out
    with world.story.engine.begin() as connection:
        connection.execute(
            insert(tables.checkpoints).values(
                job_id=world.job.id, fence=1, step=412, digest="d", size_bytes=3_600_000,
                final=True, committed_at=START, instance_id=world.machine.id,
                metrics={"accuracy": 0.978},
            )
        )  # fmt: skip
        connection.execute(
            insert(tables.metric_points),
            [
                {"job_id": world.job.id, "fence": 1, "step": step, "at": START,
                 "metrics": {"loss": 1 / step}}
                for step in range(1, 1_201)
            ],
        )  # fmt: skip
    row = world.cli.ok("checkpoints", "digits").row("412")
    assert "3.4 MiB" in row
    assert "final, accuracy 0.978" in row
    spread = world.cli.ok("metrics", "digits").out.splitlines()
    assert spread[0].split() == ["STEP", "ATTEMPT", "LOSS"]
    assert len(spread) == 21
    assert len(world.cli.ok("metrics", "digits", "--json", "--all").json) == 1_200


# --- logs -----------------------------------------------------------------------------------------


def test_a_full_disk_is_said_by_show_and_in_the_list(world: World):
    with world.story.engine.begin() as connection:
        own = tables.jobs.c.id == world.job.id
        connection.execute(update(tables.jobs).where(own).values(state=JobState.RUNNING))
        connection.execute(
            insert(tables.contacts).values(
                instance_id=world.machine.id, session_id="s", seq=1, phase="train", fence=1,
                answered_at=datetime.now(UTC), metrics={DISK_FULL_KEY: 0.0}, fact_no=0,
            )
        )  # fmt: skip
        own = tables.attempts.c.job_id == world.job.id
        connection.execute(update(tables.attempts).where(own).values(state="running"))
    assert "running, disk full" in world.cli.ok("jobs", "--name", "digits").out
    said = " ".join(world.cli.ok("show", "digits").out.split())
    assert "running: Disk full: a machine has no room left" in said
    assert "disk full" in said.partition("Disk full")[2]


# --- machines, offers, money ----------------------------------------------------------------------


def test_instances_and_their_interruption(world: World):
    ran = world.cli.ok("instances")
    assert "digits" in ran.row("booting", "3.600")
    assert "older" in world.cli.ok("instances", "--all").row("by cloud interruption")
    assert world.cli.ok("instances", "list", "--job", "older", "-q").out == ""
    machine = str(world.machine.id)
    assert world.cli.ok("instances", "-q").out == f"{machine}\n"
    listed = world.cli.ok("instances", "--json").json[0]
    assert ran.row("m1", str(listed["provider_instance_id"]))
    for end in (machine, machine[-8:], "digits/m1", listed["provider_instance_id"]):
        refused = world.cli.fails(2, "instances", "interrupt", end, "--notice", "6").errors
        assert "no machine" in refused.lower() or "local cloud" in refused.lower()
    assert "no rented machine" in world.cli.fails(2, "instances", "interrupt", "ffffffff").errors
    assert "JOB/m1" in world.cli.fails(2, "instances", "interrupt", "m1").errors
    both = ("--notice", "6", "--no-notice")
    assert "not both" in world.cli.fails(2, "instances", "interrupt", machine, *both).errors


def test_offers(world: World):
    ran = world.cli.ok("offers")
    assert "-67 %" in ran.row("p3.2xlarge spot")
    assert "1 × V100 16 GB" in ran.row("p3.2xlarge on-demand")
    assert len(world.cli.ok("offers", "--gpu", "v100", "--spot", "--json").json) == 1
    assert "No pool matches" in world.cli.ok("offers", "--gpu", "H100").out
    (row,) = world.cli.ok("offers", POOL.key, "--json").json
    assert row["is_stale"] is False
    change_rows(world.api.engine, pools, quoted_at=datetime.now(UTC) - timedelta(hours=7))
    # The api makes the list at most once a second.
    wait_until(lambda: world.cli.ok("offers", POOL.key, "--json").json[0]["is_stale"])
    assert "7h old: not acted on" in world.cli.ok("offers", POOL.key).row("p3.2xlarge spot")
    (row,) = world.cli.ok("offers", POOL.key, "--json").json
    assert row["is_stale"] is True
    assert row["quote_age_seconds"] > 6 * 3600


def test_what_pools_cost_before(world: World):
    told = world.cli.ok("offers", "--history", POOL.key).out
    assert "No price is recorded in this time yet" in told or "constant: 3.600" in told
    both = world.cli.ok("offers", "--history", "--gpu", "v100", "--days", "90", "--json").json
    assert {row["pool"] for row in both} == {POOL.key, f"{POOL.key[:-5]}/on_demand"}
    assert len(world.cli.ok("offers", "--history", "--spot", "-q").out.splitlines()) == 1
    assert "No pool matches" in world.cli.ok("offers", "--history", "--gpu", "H100").out
    assert "There is no pool" in world.cli.fails(2, "offers", "--history", "a/b/c/d/spot").errors
    assert (
        "is not the key of a pool" in world.cli.fails(2, "offers", "--history", "nonsense").errors
    )


def test_what_a_job_cost(world: World):
    out = world.cli.ok("cost", "digits").out
    assert "$3.60 (accruing)" in out
    assert "useful $3.00 (83 %)  boot $0.600 (17 %)" in out
    # 3,000 useful seconds and one boot of 600, at $10.80 an hour.
    assert "$10.80 for the same work, so 66 % saved so far, net" in out
    assert "$25.00, $21.40 left" in out
    assert "not checked yet ($3.60)" in out
    assert "waived" in world.cli.ok("cost", "report", "older").out
    found = world.cli.ok("cost", "digits", "--json").json
    assert found["statement"]["total_microusd"] == 3_600_000
    assert world.cli.ok("cost", "digits", "-q").out == "$3.600000\n"
    assert "leave digits out" in world.cli.fails(2, "cost", "digits", "--csv").errors
    told = world.cli.fails(2, "cost", "verfy").errors
    assert "There is no job 'verfy'" in told
    assert "Did you mean `lowtide cost verify`?" in told
    assert "Did you mean" not in world.cli.fails(2, "cost", "nothing").errors


def test_what_a_period_cost(world: World):
    ran = world.cli.ok("cost", "--since", "2026-03-01")
    assert "100 %" in ran.row("digits", "$3.60")
    assert "unallocated" not in ran.out, "a row of zero says nothing"
    assert "not checked yet ($3.60)" in ran.row("books")
    csv = world.cli.ok("cost", "--since", "2026-03-01", "--csv").out
    assert csv.startswith("day,job,project,labels,provider,account,region,zone,instance_id,type,")
    assert "2026-03-01,digits," in csv
    assert csv == world.cli.ok("cost", "--since", "2026-03-01", "--csv", "--by", "pool").out
    by_team = world.cli.ok("cost", "--by", "label:team", "--since", "2026-03-01", "--json").json
    assert by_team["rows"][0]["key"] == "nlp"
    hint = "has a label 'nosuch'; recent jobs have: team."
    assert hint in world.cli.ok("cost", "--by", "label:nosuch", "--since", "2026-03-01").out
    assert (
        "recent jobs" not in world.cli.ok("cost", "--by", "label:team", "--since", "2026-03-01").out
    )
    assert "by" in world.cli.fails(2, "cost", "--by", "colour").errors
    assert "how long ago" in world.cli.fails(2, "cost", "--since", "once").errors


def test_the_books_are_verified_and_a_difference_is_exit_code_1(world: World):
    assert "closed, difference $0.000000" in world.cli.ok("cost", "verify").out
    world.cli.ok("cost", "verify", "digits")
    change_row(world.story.engine, tables.budgets, world.job.budget_id, spent_microusd=1)
    ran = world.cli.run("cost", "verify")
    assert ran.exit_code == 1
    assert "NOT CLOSED" in ran.out
    assert not world.cli.run("cost", "verify", "--json").json["closed"]


def test_following_ends_with_the_jobs_own_ending(world: World):
    # Watched after its end, each says how it went at once.
    world.event("attempt_succeeded", "Trained to the end.")
    world.succeed(total_steps=10)
    ran = world.cli.ok("watch", "digits")
    assert "✓ Trained to the end." in ran.out
    assert "digits succeeded" in ran.out
    assert "m1 $3.600/h" in ran.out
    assert "not training" in ran.out
    assert "\r" not in ran.out
    failed = world.cli.run("watch", "older")
    assert failed.exit_code == 1
    assert "older failed: No luck." in failed.out
    world.story.job(world.job.project_id, "resting", state=JobState.PAUSED)
    paused = world.cli.run("watch", "resting", "--json")
    assert (paused.exit_code, paused.json["state"]) == (1, "paused")
