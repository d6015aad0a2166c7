"""`lowtide submit` against the real api: the plan, what is sent, what is refused before that."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.units.durations import format_duration
from app.storage.schema import money_tables, tables
from tests.support.api.agent_api import wait_until
from tests.support.api.people_api import settings_for
from tests.support.cli.cli_world import TRAINER, World, small_world
from tests.support.servers.table_rows import change_rows
from tests.support.sources.source_tree import ROOT


def test_a_dry_run_plans_and_submits_nothing(world: World):
    before = world.api.count(tables.jobs)
    out = world.cli.ok("submit", world.spec(), "--dry-run", "-n", "new").out
    assert "✓ cheapest" in out
    assert "$3.600 an hour" in out
    assert "nothing was submitted" in out
    found = world.cli.fails(2, "submit", world.spec(), "--dry-run", "--json", "--gpu", "H100").json
    assert found["plan"]["pool"] is None
    assert "which was not requested" in found["plan"]["considered"][0]["why"]
    assert world.api.count(tables.jobs) == before


def test_the_fields_of_a_plan_are_those_of_the_page(world: World):
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    section = page.partition("### The plan as JSON")[2].partition("\n## ")[0]
    tables_told = re.findall(r"^\| field.*\n(?:\|.*\n?)+", section, re.MULTILINE)
    told = [re.findall(r"^\| `(\w+)`", one, re.MULTILINE) for one in tables_told]
    found = world.cli.ok("submit", world.spec(), "--dry-run", "--json").json
    assert sorted(found) == ["plan", "spec", "spec_sources", "workdir"]
    assert told == [list(found["plan"]), list(found["plan"]["considered"][0])]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"{TRAINER}resources: {{gpu: H100}}\n",
            "no pool can run this job, now or later: no pool has 1 × H100; there are "
            "1 × V100 16 GB (`resources` in its spec)",
        ),
        (
            "run: 'true'\nresources: {gpu: V100}\nestimate: {hours: 5, gpu: V100}\n"
            "deadline: 1h\nmarket: spot\nmax_price_ratio: 0.01\n",
            "the deadline is in 1h, the estimate comes to 5h: it will be missed, unless the work "
            "is shorter",
        ),
    ],
)
def test_a_job_that_can_never_run_needs_more_than_a_yes(world: World, text: str, told: str):
    before, spec = world.api.count(tables.jobs), world.spec(text)
    refused = world.cli.fails(2, "submit", spec, "-y", "-d").errors
    assert refused == f"Error: {told}; change it, or submit with --accept-risk\n"
    assert world.api.count(tables.jobs) == before
    assert world.cli.fails(2, "submit", spec, "--dry-run").errors == refused
    plan = world.cli.fails(2, "submit", spec, "--dry-run", "--json").json["plan"]
    assert plan["impossible"] == told
    assert world.cli.ok("submit", spec, "--dry-run", "--accept-risk").errors == f"Risk: {told}.\n"
    accepted = world.cli.ok("submit", spec, "-y", "-d", "-n", "bold", "--accept-risk")
    assert accepted.errors == f"Risk: {told}.\n"
    assert world.stored_spec("bold")["name"] == "bold"


def test_a_plan_prices_all_machines_and_names_the_price_of_one(world: World):
    plan = world.cli.ok("submit", world.spec(), "--dry-run", "--nodes", "4")
    assert "EACH" in plan.row("VS ON-DEMAND")
    assert "14.400   4 × 3.600" in plan.row("spot")
    assert "4 machines for $14.400 an hour" in plan.out
    assert "EACH" not in world.cli.ok("submit", world.spec(), "--dry-run").out


def test_a_plan_counts_what_comes_with_a_machine_as_estimates_do(world: World):
    told = {
        "disk_gb": 100,
        "disk_microusd_per_gb_month": 73_000,
        "public_ip_microusd_per_hour": 5_000,
        "source": "test",
        "captured_at": "2026-03-01T12:00:00+00:00",
    }
    change_rows(world.story.engine, money_tables.pools, attachments=told)
    spec = world.spec("run: 'true'\nresources: {gpu: V100}\nestimate: {hours: 1, gpu: V100}\n")
    asked = world.cli.ok("estimate", spec, "--json").json
    price = asked["pools"][0]["microusd_per_hour"]
    assert price > 3_605_000
    plan = world.cli.ok("submit", spec, "--dry-run", "--json").json["plan"]
    assert plan["microusd_per_hour"] == plan["considered"][0]["microusd_per_hour"] == price


def test_a_job_is_submitted_with_what_the_options_say(world: World):
    spec = world.spec()
    ran = world.cli.ok("submit", spec, "-d", "-n", "new", "--set", "trainer.epochs=7", "--spot")
    assert "lowtide watch new" in ran.out
    stored = world.stored_spec("new")
    assert stored["trainer"]["epochs"] == 7  # type: ignore[index]
    assert stored["market"] == "spot"
    assert world.cli.ok("submit", "-", "-d", "-q", "-n", "piped", stdin=TRAINER).out == "piped\n"
    assert world.cli.ok("submit", spec, "-d", "--json").json["state"] == "queued"
    taken = world.cli.fails(2, "submit", spec, "-d", "-n", "new").errors
    assert "'new-2' is free" in taken


def test_a_job_is_submitted_once_more_with_what_it_was(world: World):
    folder = world.folder / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    text = "name: tour\nrun: python train.py\nworkdir: code\n"
    world.cli.ok("submit", world.spec(text), "-d")
    (folder / "train.py").write_text("print(2)")
    assert world.cli.ok("submit", "--from", "tour", "-d", "-q").out == "tour-2\n"
    first, again = world.stored_spec("tour"), world.stored_spec("tour-2")
    assert again["workdir"] == first["workdir"]
    assert {**again, "name": "tour"} == first
    ran = world.cli.ok("submit", "--from", "tour-2", "-d", "-q", "--set", "run=python t.py")
    assert ran.out == "tour-3\n"
    assert world.stored_spec("tour-3")["run"] == "python t.py"
    for arguments in ((), ("job.yaml", "--from", "tour")):
        told = world.cli.fails(2, "submit", *arguments).errors
        assert "name either the FILE of a job spec, or a job with --from" in told
    assert "There is no job 'nojob'" in world.cli.fails(2, "submit", "--from", "nojob").errors
    assert "lowtide submit --from JOB" in world.cli.fails(2, "clone", "tour").errors


def test_a_plan_tells_what_the_command_finds_around_it(
    engine: Engine, database_url: str, valkey_url: str, tmp_path: Path
):
    text = (
        "run: sleep 1\nimage: acme/train:1\nresources: {gpu: V100:1, disk: 2TB, shm_size: 8GB}\n"
        "inputs: {/data: s3://acme/corpus}\noutputs: {out: s3://acme/results}\n"
        "instance_types: [p3.2xlarge]\n"
    )
    allowed = frozenset({"s3://acme"})
    settings = settings_for(database_url, valkey_url, tmp_path / "state", data_places=allowed)
    with small_world(settings, engine, tmp_path) as world:
        out = world.cli.ok("submit", world.spec(text), "--dry-run").out
    for line in (
        "image acme/train:1",
        "disk 2000GB · shared memory 8GB · only p3.2xlarge",
        "input /data ← s3://acme/corpus",
        "output out → s3://acme/results/<job id>/",
    ):
        assert f"        {line}\n" in out


REFUSED = {
    "name: digits": "already; 'digits-2' is free. Give another one with --name.",
    "inputs: {/data: s3://acme/x}": "s3://acme/x is outside of the places that the",
    "checkpoint: {uri: s3://acme/x}": "s3://acme/x is outside of the buckets that the",
    "infra: aws": "infra: this deployment does not rent from aws, only from local; name one",
    "project: other": "There is no project 'other' that the key",
    "instance_types: [p9.huge]": "'p9.huge' is not a type of machine with GPUs",
    "inputs: {/data: file:///nowhere/at/all}": "file:///nowhere/at/all reaches checkpoints",
}


def test_what_the_api_would_refuse_is_refused_before_anything_is_packed_or_planned(world: World):
    before = world.api.count(tables.jobs)
    # A folder that could not be packed is not even looked at.
    folder = world.folder / "code"
    folder.mkdir()
    (folder / "out").symlink_to("/etc")
    for change, told in REFUSED.items():
        spec = world.spec(f"run: python train.py\nworkdir: code\n{change}\n")
        for how in ("--dry-run", "-d"):
            ran = world.cli.fails(2, "submit", spec, how)
            assert told in ran.errors
            assert ran.out == ""
    assert world.api.count(tables.jobs) == before


def test_all_that_is_wrong_is_told_at_once(world: World):
    before = world.api.count(tables.jobs)
    several = "name: digits\ninfra: aws\ninstance_types: [p9.huge]\ninputs: {/data: s3://acme/x}\n"
    text = f"run: python train.py\nworkdir: nowhere\n{several}"
    lines = world.cli.fails(2, "submit", world.spec(text), "-d").errors.splitlines()
    assert lines[0].endswith("job.yaml cannot be submitted:")
    told = [line.split(":")[0].strip() for line in lines[1:6]]
    assert told == ["workdir", "infra", "instance_types", "inputs./data", "name"]
    assert "'digits-2' is free" in lines[5]
    # A name alone is a refusal of its own.
    key = {"Authorization": f"Bearer {world.cli.variables['LOWTIDE_API_KEY']}"}
    both = {"run": "true", "name": "digits", "infra": "aws"}

    def refused(path: str, **spec: object) -> tuple[int, list[str]]:
        answer = world.api.client.post(f"/api/v1/jobs{path}", json=spec, headers=key)
        return answer.status_code, [one["field"] for one in answer.json()["errors"]]

    assert refused("/check", **both) == (422, ["infra", "name"])
    assert refused("/check", run="true", name="digits") == (409, ["name"])
    # The submission itself looks the name up as the job is stored.
    several_fields = {**both, "instance_types": ["p9.huge"]}
    assert refused("", **several_fields) == (422, ["infra", "instance_types"])
    assert world.api.count(tables.jobs) == before


def test_data_that_is_not_there_is_told_at_once(world: World):
    (world.folder / "code").mkdir()
    nowhere = "trainer: {model: cnn, data: /nowhere/photos, epochs: 1}\n"
    told = world.cli.fails(2, "submit", world.spec(nowhere), "--dry-run").errors
    assert "trainer.data: /nowhere/photos is not there; name a folder of this machine" in told
    relative = "workdir: code\ntrainer: {model: cnn, data: data/photos, epochs: 1}\n"
    told = world.cli.fails(2, "submit", world.spec(relative), "--dry-run").errors
    assert f"data/photos is not in the workdir {world.folder / 'code'}; correct the path" in told
    # What a setup or an input brings is not there yet.
    for later in ("setup: fetch\n", "infra: local\nsetup: fetch\n"):
        world.cli.ok("submit", world.spec(nowhere + later), "--dry-run")


def test_a_place_that_the_deployment_does_not_rent_from_is_refused_by_the_api_too(world: World):
    spec = {"run": "true", "infra": ["aws", "gcp"]}
    answer = world.api.client.post("/api/v1/jobs", json=spec)
    assert answer.status_code == 422
    [problem] = answer.json()["errors"]
    assert problem["field"] == "infra"
    assert "LOWTIDE_PROVIDERS" in problem["message"]
    # One of them is enough.
    spec["infra"] = ["aws", "local/us-west-2"]
    assert world.api.client.post("/api/v1/jobs", json=spec).status_code == 201
    assert world.api.client.post("/api/v1/jobs/check", json=spec).json()["ok"] is True


def test_an_image_that_no_machine_can_run_is_told_before_any_is_rented(world: World):
    """Google's default images have no docker; a pool at hand that has it takes the job."""
    at, base = datetime.now(UTC), "run: sleep 1\nimage: acme/train:1\nresources: {gpu: H100:1}\n"
    hardware = Hardware("H100", 1, 80, 26, 234, containers=False)
    pool = Pool("gcp", "us-central1", "us-central1-a", "a3-highgpu-1g", Market.SPOT)
    offer = Offer(pool, hardware, 3_000_000, 10_000_000, "gce", at, "test")

    def quote(offer: Offer) -> None:
        with world.api.parts.runtime.begin() as uow:
            uow.offers.record([offer], [], at)

    waiting = world.cli.ok("submit", world.spec(base), "-dqn", "unknown", "--accept-risk")
    assert waiting.out == "unknown\n"
    quote(offer)
    with world.api.parts.runtime.begin() as uow:
        assert uow.offers.get(pool) == offer
    spec = world.spec(base)
    told = world.cli.fails(2, "submit", spec, "--dry-run").errors
    assert "in LOWTIDE_GCP_IMAGE, or leave `image` out" in told
    plain = world.spec("run: sleep 1\nresources: {gpu: H100:1}\n", "plain.yaml")
    # The api lists what it can rent at most once a second.
    wait_until(lambda: "✓ cheapest" in world.cli.run("submit", plain, "--dry-run").out)
    refused = world.cli.fails(2, "submit", spec, "-d", "-n", "none").errors
    assert "image: the machines that this job could use have no docker" in refused
    assert "in LOWTIDE_GCP_IMAGE, or leave `image` out" in refused
    # One that waits already says it, too.
    assert "in LOWTIDE_GCP_IMAGE" in world.cli.ok("explain", "unknown").out
    quote(replace(offer, hardware=replace(hardware, containers=True)))
    assert world.cli.ok("submit", spec, "-d", "-q", "-n", "known").out == "known\n"


def test_a_plan_tells_how_often_a_pool_takes_its_machines(world: World):
    """Of the usual hazards over a machine's life, and of a pool known to be twice as bad."""
    for factor, shown, exact in ((1.0, "0.38", 0.381), (2.0, "1.84", 1.841)):
        change_rows(world.story.engine, money_tables.pools, hazard_factor=factor)

        def is_shown(shown: str = shown) -> bool:
            out = world.cli.ok("submit", world.spec(), "--dry-run").out
            [heading] = [line for line in out.splitlines() if "HAZARD/H" in line]
            [pool] = [line for line in out.splitlines() if "✓ cheapest" in line]
            return pool[: heading.index("HAZARD/H") + len("HAZARD/H")].endswith(f" {shown}")

        # The api lists what it can rent at most once a second.
        wait_until(is_shown)
        found = world.cli.ok("submit", world.spec(), "--dry-run", "--json").json
        assert found["plan"]["considered"][0]["hazard_per_hour"] == exact


def test_what_the_api_warns_of_is_said_once_by_a_dry_run_too(world: World):
    spec = world.spec("run: sleep 1\nresources: {gpu: V100}\ncheckpoint: {interval: 5m}\n")
    for how in (("--dry-run",), ("-d", "-n", "warned")):
        said = world.cli.ok("submit", spec, *how).errors
        assert said.count("Warning: checkpoint.interval does nothing for a `run`") == 1
    for text in ("run: sleep 1\nresources: {gpu: V100}\n", TRAINER):
        assert "Warning" not in world.cli.ok("submit", world.spec(text), "--dry-run").errors


def test_a_price_says_how_the_bill_runs_where_a_second_is_billed_as_more(world: World):
    change_rows(world.story.engine, money_tables.pools, billing_speed=60)
    faster = ", each second billed as 1m"

    def plan() -> str:
        return world.cli.ok("submit", world.spec(f"{TRAINER}budget_usd: 0.1\n"), "--dry-run").out

    # The api lists what it can rent at most once a second.
    wait_until(lambda: f"1 machine for $3.600 an hour{faster}." in plan())
    assert f"The first 15 minutes of the bill{faster}, cost $0.900, more than" in plan()
    late = "run: sleep 1\nresources: {gpu: V100}\nestimate: {hours: 5, gpu: V100}\ndeadline: 1h\n"
    refused = world.cli.fails(2, "submit", world.spec(late), "--dry-run").errors
    assert re.search(rf"it cannot be met; .* for about \$[0-9,.]+{faster}", refused)


def test_the_estimate_is_held_against_the_budget(world: World):
    text = (
        "run: sleep 1\nresources: {gpu: V100:1}\nbudget_usd: 5\n"
        "estimate: {hours: 10, gpu: V100:1, nodes: 2}\n"
    )
    out = world.cli.ok("submit", world.spec(text), "--dry-run").out
    assert "more than the budget of $5.00" in out
    shown = world.cli.ok("estimate", world.spec(text), "--json").json["estimates"][0]
    plan = world.cli.ok("submit", world.spec(text), "--dry-run", "--json").json["plan"]
    assert plan["estimate_microusd"] == shown["cost_p50_microusd"] > 72_000_000
    assert plan["estimate_seconds"] == shown["finish_p50_seconds"] > 36_000
    assert f" and ends after {format_duration(plan['estimate_seconds'])} (P50)." in out


def test_the_plan_and_the_estimate_say_one_cost_and_it_holds_the_minimum_charge(
    engine: Engine, database_url: str, valkey_url: str, tmp_path: Path
):
    settings = settings_for(
        database_url, valkey_url, tmp_path / "state", boot_seconds=0, restore_seconds=0
    )
    text = "run: sleep 1\nresources: {gpu: V100:1}\nestimate: {hours: 0.001, gpu: V100:1}\n"
    with small_world(settings, engine, tmp_path) as world:
        plan = world.cli.ok("submit", world.spec(text), "--dry-run", "--json").json["plan"]
        shown = world.cli.ok("estimate", world.spec(text), "--json").json["estimates"]
        assert plan["estimate_microusd"] == shown[0]["cost_p50_microusd"]
        assert plan["estimate_microusd"] == plan["microusd_per_hour"] * 60 // 3_600
        text += "deadline: 10h\n"
        plan = world.cli.ok("submit", world.spec(text), "--dry-run", "--json").json["plan"]
        shown = world.cli.ok("estimate", world.spec(text), "--json").json["estimates"]
        own, *_, on_demand = (one["cost_p50_microusd"] for one in shown)
        assert plan["estimate_microusd"] == own != on_demand


def test_a_plan_says_whether_a_wait_can_help(world: World):
    for options, told, code in (
        (("--gpu", "H100"), "either: change `resources` in its spec; as it is, the job will", 2),
        (("--set", "instance_types=g5.xlarge"), "change `instance_types` in its spec", 2),
        (("--set", "max_price_ratio=0.01"), "The job will wait in the queue, and start when a", 0),
    ):
        ran = world.cli.run("submit", world.spec(), "--dry-run", *options)
        assert ran.exit_code == code
        assert "Nothing can start now" in ran.out
        assert told in ran.out
    # Whoever accepts the risk may submit it all the same.
    hopeless = ("submit", world.spec(), "-d", "--gpu", "H100", "-n", "hopeless")
    assert "no pool can run this job, now or later" in world.cli.fails(2, *hopeless).errors
    world.cli.ok(*hopeless, "--accept-risk")


def test_show_and_explain_name_the_next_command(world: World):
    world.story.job(world.job.project_id, "resting", state=JobState.PAUSED)
    for command in ("show", "explain"):
        lines = world.cli.ok(command, "resting").out.splitlines()
        assert lines[-2:] == ["", "Continue: lowtide resume resting"]
    assert world.cli.run("watch", "resting").out.splitlines()[-1:] == lines[-1:]
    for command in ("show", "explain"):
        assert "lowtide submit --from older" in world.cli.ok(command, "older").out


def test_a_bad_spec_is_refused_here_with_every_problem(world: World):
    before = world.api.count(tables.jobs)
    spec = world.spec("trainer: {model: mlp, data: digits, epochs: -1}\nbudgt_usd: 5\n")
    errors = world.cli.fails(2, "submit", spec).errors
    assert "trainer.epochs" in errors
    assert "did you mean 'budget_usd'" in errors
    problems = world.cli.fails(2, "submit", spec, "--json").errors
    assert '"field": "trainer.epochs"' in problems
    passed = world.cli.fails(2, "submit", world.spec(), "--deadline", "2020-01-01T00:00Z").errors
    assert "deadline" in passed
    assert "name a field" in world.cli.fails(2, "submit", world.spec(), "--set", ".x=1").errors
    world.cli.fails(2, "submit", str(world.folder / "absent.yaml"))
    assert world.api.count(tables.jobs) == before


def test_a_folder_is_packed_uploaded_once_and_kept_under_its_digest(world: World):
    folder = world.folder / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (folder / ".gitignore").write_text("*.pyc\n")
    (folder / "x.pyc").write_text("-")
    spec = world.spec("run: python train.py\nworkdir: code\n")
    first = world.cli.ok("submit", spec, "-d", "-n", "one")
    assert "workdir 2 files" in first.out
    assert "already uploaded" not in first.out
    digest = world.stored_spec("one")["workdir"]
    key = {"Authorization": f"Bearer {world.cli.variables['LOWTIDE_API_KEY']}"}
    assert world.api.client.head(f"/api/v1/workdirs/{digest}", headers=key).status_code == 200
    other_project = world.api.client.head(f"/api/v1/workdirs/{digest}")
    assert other_project.status_code == 404
    assert "already uploaded" in world.cli.ok("submit", spec, "-d", "-n", "two").out
    assert world.stored_spec("two")["workdir"] == digest
    (folder / "out").symlink_to("/etc")
    assert "out -> /etc" in world.cli.fails(2, "submit", spec, "-d").errors
