"""Why a job's machines are where they are: over REST and on the command line."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select

from app.api.jobs.explanation_shapes import Explanation
from app.domain.lifecycle.job import JobState
from app.domain.placement.placement_decision import PlacementDecision
from app.domain.spec.job_spec import parse_spec
from app.orchestration.estimates.as_it_runs import as_it_runs, left_of_facts
from app.orchestration.frame.controller_frame import run_controller
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.storage.jobs.placement_decision_rows import KEPT_MOST
from app.storage.schema import tables
from app.web.job.why_here import why_here
from tests.support.api.people_api import make_key, make_project
from tests.support.cli.cli_world import World
from tests.support.stories import decision_story
from tests.support.stories.money_story import POOL

POOL_A = "local/us-west-2/us-west-2a/p3.2xlarge/spot"


def told(world: World, job: str, **query: object) -> Explanation:
    """The answer, held against its described shape."""
    key = world.cli.variables["LOWTIDE_API_KEY"]
    answer = httpx.get(
        f"{world.api.url}/api/v1/jobs/{job}/explanation",
        params={name: str(value) for name, value in query.items()},
        headers={"Authorization": f"Bearer {key}"},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text
    return Explanation.model_validate(answer.json())


def now() -> datetime:
    return datetime.now(UTC)


def decide(world: World, job_id: UUID, *decisions: PlacementDecision) -> None:
    decision_story.record(world.api.parts.runtime.begin, job_id, *decisions)


def test_a_decision_is_told_with_every_pool_and_its_figures(world: World):
    at = now() - timedelta(minutes=5)
    decide(world, world.job.id, decision_story.waited(at), decision_story.placed(at))
    found = told(world, "digits")
    assert found.waiting is None
    assert found.slack.startswith("No deadline")
    newest, first = found.decisions
    assert (newest.decision_no, newest.verdict, first.verdict) == (2, "spot", "wait")
    taken = newest.pools[0]
    assert (taken.pool, taken.chosen, taken.fits) == (POOL_A, True, True)
    assert taken.quote_age_seconds == 120.0
    assert taken.on_demand_ratio == pytest.approx(0.3)
    assert taken.expected_finish_at == at + timedelta(seconds=5_700)
    assert [row.why for row in newest.pools if not row.fits] == ["has capacity for 1 of 2"]
    assert len(told(world, "digits", limit=1).decisions) == 1


def test_a_confirmed_decision_has_the_figures_of_its_confirmation(world: World):
    at = now() - timedelta(minutes=5)
    later = at + timedelta(minutes=4)
    decide(world, world.job.id, decision_story.placed(at), decision_story.placed(later))
    [only] = told(world, "digits").decisions
    assert (only.decided_at, only.last_confirmed_at) == (at, later)
    assert only.pools[0].quote_age_seconds == 120.0


def test_of_a_decision_that_keeps_changing_only_the_newest_are_kept(world: World):
    at = now() - timedelta(hours=1)
    turns = (KEPT_MOST + 7) // 2 + 1
    changing = [decision_story.waited(at), decision_story.placed(at)] * turns
    decide(world, world.job.id, *changing)
    with world.api.parts.runtime.begin() as uow:
        kept = uow.decisions.of_job(world.job.id, 2 * KEPT_MOST)
    numbers = [one.decision_no for one in kept]
    assert numbers == list(range(2 * turns, 2 * turns - KEPT_MOST, -1))


def test_a_waiting_job_says_what_would_unblock_it_and_at_what_price(world: World):
    waiting = world.story.job(world.job.project_id, "waiting", state=JobState.QUEUED)
    due = now() + timedelta(seconds=300)
    world.story.set_job(waiting, wait_reason="no room for 2 machines", claimable_at=due)
    before = told(world, "waiting").waiting
    assert before is not None
    assert before.reason == "No room for 2 machines."
    assert before.next_look_at == due
    assert [(way.pool is None, way.microusd_per_hour) for way in before.unblocked_by] == [
        (False, 3_600_000)
    ]
    # Waiting was chosen although a pool fits: then that pool is no way out.
    decide(world, waiting.id, decision_story.waited(now(), fence=None))
    after = told(world, "waiting").waiting
    assert after is not None
    first, second = after.unblocked_by
    assert (first.sentence, first.microusd_per_hour) == (f"{decision_story.WAIT_FOR}.", 905_000)
    assert second.sentence.startswith("`market: on_demand` in its spec")
    assert second.microusd_per_hour == 10_800_000
    out = world.cli.ok("explain", "waiting").out
    assert "waiting is queued: No room for 2 machines." in out
    assert "Next look in 4m" in out or "Next look in 5m" in out
    assert f"  {decision_story.WAIT_FOR}" in out
    assert "Decision 1: wait, at " in out


def test_what_the_queue_decides_is_told_for_the_placed_and_for_the_waiting(world: World):
    spec = {"resources": {"gpu": "V100"}, "estimate": {"hours": 1, "gpu": "V100"}}
    placed = world.api.submitted(**spec, name="placed", deadline="6h")["id"]
    choosy = world.api.submitted(**spec, name="choosy", max_price_ratio=0.1)["id"]
    runtime = world.api.parts.runtime
    run_controller(runtime, ClaimJobs(runtime))

    def explained(job_id: str) -> Explanation:
        answer = world.api.client.get(f"/api/v1/jobs/{job_id}/explanation")
        return Explanation.model_validate(answer.json())

    [decision] = explained(placed).decisions
    assert explained(placed).slack.startswith("Slack 4h ")
    assert (decision.verdict, decision.fence) == ("spot", 1)
    assert decision.slack_seconds is not None
    [taken] = [row for row in decision.pools if row.chosen]
    assert taken.pool == POOL.key
    assert taken.hazard_per_hour is not None
    assert taken.expected_microusd is not None
    assert taken.expected_microusd > 3_600_000
    assert taken.expected_finish_seconds is not None
    assert taken.expected_finish_seconds > 3_600

    waits = explained(choosy)
    assert [one.verdict for one in waits.decisions] == ["wait"]
    assert waits.waiting is not None
    assert waits.waiting.unblocked_by[0].sentence.startswith("A price of at most $1.080/h in")
    assert waits.waiting.unblocked_by[0].microusd_per_hour == 1_080_000
    assert "above the limit" in waits.decisions[0].pools[0].why


def test_slack_and_the_last_safe_moment_are_told_in_words(world: World):
    deadline, safe = now() + timedelta(hours=2), now() + timedelta(minutes=55)
    world.story.set_job(world.job, deadline_at=deadline, last_safe_at=safe)
    found = told(world, "digits")
    assert found.deadline is not None
    assert found.deadline.slack_seconds == pytest.approx(3_300, abs=60)
    assert f"the last safe moment is {safe:%Y-%m-%d %H:%M:%S} UTC" in found.slack
    assert "Slack 5" in world.cli.ok("explain", "digits").out


def test_another_projects_job_and_no_key_get_nothing(world: World):
    address = f"{world.api.url}/api/v1/jobs/{world.job.id}/explanation"
    assert httpx.get(address, timeout=20).status_code == 401
    stranger = make_key(world.api.engine, make_project(world.api.engine, "strangers"))
    headers = {"Authorization": f"Bearer {stranger}"}
    assert httpx.get(address, headers=headers, timeout=20).status_code == 404
    mine = {"Authorization": f"Bearer {world.cli.variables['LOWTIDE_API_KEY']}"}
    for limit in ("0", "101", "x"):
        answer = httpx.get(address, params={"limit": limit}, headers=mine, timeout=20)
        assert answer.status_code == 422


def test_explain_and_show_say_one_end_and_what_a_pool_would_take_is_no_end(world: World):
    spec = {**world.job.spec, "estimate": {"hours": 3, "gpu": "V100:1"}}
    world.story.set_job(world.job, spec=spec, total_steps=None)
    decide(world, world.job.id, decision_story.placed(now()))
    found = world.cli.ok("explain", "digits", "--json").json
    shown = world.cli.ok("show", "digits", "--json").json["progress"]
    assert found["eta_from"] == shown["eta_from"] == "estimate"
    apart = datetime.fromisoformat(found["eta_at"]) - datetime.fromisoformat(shown["eta_at"])
    assert abs(apart) < timedelta(seconds=60)
    out = world.cli.ok("explain", "digits").out
    assert "As it runs now, it is done in " in out
    assert "WOULD TAKE" in out
    assert "FINISH" not in out


def test_the_pool_that_the_job_is_in_shows_what_is_left_now_and_the_decision_as_history(
    world: World,
):
    at = now() - timedelta(minutes=5)
    decide(world, world.job.id, decision_story.placed(at))
    found = told(world, "digits")
    running = found.as_it_runs
    assert running is not None
    assert running.pools == [POOL_A]
    assert (running.ends_at, running.microusd_per_hour) == (found.eta_at, 3_600_000)
    # An hour's work less ten seconds at $3.60 an hour.
    assert running.remaining_microusd == running.remaining_seconds * 1_000
    assert 3_500 < running.remaining_seconds <= 3_590
    assert found.decisions[0].pools[0].expected_microusd == 2_950_000

    ran = world.cli.ok("explain", "digits")
    here, other = ran.row("✓"), ran.row("us-east-1c")
    assert re.search(r"\$3\.5\d left +59m \d+s left", here)
    expected = f"at the decision {at:%H:%M:%S} UTC: $2.95, 1h 35m; the most progress"
    assert expected in here
    pools = found.decisions[0].pools
    assert pools[0].why_now.startswith(expected)
    assert pools[0].why_now.endswith(f"; {pools[0].why}")
    assert [row.why_now for row in pools[1:]] == [row.why for row in pools[1:]]
    # The page says it in the same words.
    facts = world.api.parts.reports.job(world.job.id)
    left = left_of_facts(facts, parse_spec(facts.job.spec), now())
    with world.api.parts.runtime.begin() as uow:
        decisions = uow.decisions.of_job(world.job.id, 1)
    machines = [one.instance for one in facts.machines]
    latest = why_here(facts.job, decisions, machines, as_it_runs(facts, left, now())).latest
    assert latest is not None
    assert [row.why for row in latest.pools] == [row.why_now for row in pools]
    assert "left" not in other
    assert "$4.31" in other
    assert re.search(r"it is done in 59m \d+s by the estimate, for \$3\.5\d more\. That", ran.out)


def test_each_cost_says_whether_it_counts_what_is_spent_and_how_the_bill_runs(world: World):
    at = now() - timedelta(minutes=5)
    plain = decision_story.placed(at)
    decide(world, world.job.id, plain)
    said = " ".join(world.cli.ok("explain", "digits").out.split())
    assert said.count("what is already spent is not part of it.") == 1
    assert said.count("what was spent before is not part of it.") == 1
    assert said.count("and without what was spent before.") == 1
    assert "The local cloud bills" not in said
    assert told(world, "digits").billing_speed == 1
    faster = tuple(replace(one, billing_speed=60) for one in plain.pools)
    decide(world, world.job.id, replace(plain, pools=faster))
    found = told(world, "digits")
    assert (found.billing_speed, found.decisions[0].pools[0].billing_speed) == (60, 60)
    said = " ".join(world.cli.ok("explain", "digits").out.split())
    assert said.count("The local cloud bills 1m for each second; every cost here counts") == 1
    with world.api.parts.runtime.begin() as uow:
        decisions = uow.decisions.of_job(world.job.id, 1)
        job = uow.jobs.get(world.job.id)
    assert job is not None
    assert why_here(job, decisions, [], None).billing_speed == 60


def test_every_place_tells_the_same_end_of_a_job(world: World):
    decide(world, world.job.id, decision_story.placed(now()))
    shown = world.cli.ok("show", "digits", "--json").json["progress"]
    explained = told(world, "digits")
    [listed] = [job for job in world.cli.ok("jobs", "--json").json if job["name"] == "digits"]
    with world.story.engine.connect() as connection:
        query = select(tables.jobs.c.eta_at).where(tables.jobs.c.id == world.job.id)
        stored = connection.execute(query).scalar_one()
    # The end is an instant, so that each place tells the same one whenever it is asked.
    assert datetime.fromisoformat(shown["eta_at"]) == explained.eta_at == stored
    assert explained.as_it_runs is not None
    assert explained.as_it_runs.ends_at == stored
    ends = [now() + timedelta(seconds=one["remaining_seconds"]) for one in (shown, listed)]
    assert all(abs(end - stored) < timedelta(seconds=10) for end in ends)


def test_a_stored_end_that_is_far_off_is_not_told(world: World):
    world.story.set_job(world.job, eta_at=now() + timedelta(hours=9), eta_from="estimate")
    found = told(world, "digits")
    assert found.eta_at is not None
    assert found.eta_at < now() + timedelta(hours=1)


def test_the_price_of_several_machines_is_told_as_one_and_each(world: World):
    world.story.set_job(world.job, node_count=2)
    decide(world, world.job.id, decision_story.placed(now(), node_count=2))
    ran = world.cli.ok("explain", "digits")
    assert "EACH" in ran.row("VS ON-DEMAND")
    assert "1.836  2 × 0.918" in ran.row("✓")


def test_a_decision_is_told_for_the_machines_that_it_was_made_for(world: World):
    """The gang may have grown since; what an older release kept is told by its attempt."""
    at = now() - timedelta(minutes=5)
    kept = decision_story.placed(at, node_count=3)
    older = decision_story.placed(at, fence=1, reason="of_an_older_release")
    nowhere = decision_story.waited(at, fence=None)
    decide(world, world.job.id, kept, older, nowhere)
    world.story.set_job(world.job, node_count=4)
    counts = [one.node_count for one in told(world, "digits").decisions]
    assert counts == [4, 1, 3]
    with world.api.parts.runtime.begin() as uow:
        decisions = uow.decisions.of_job(world.job.id, 3)
        job = uow.jobs.get(world.job.id)
    assert job is not None
    panel = why_here(job, decisions, [], None)
    shown = [panel.latest, *panel.earlier]
    first = [None if one is None else one.pools[0].microusd_per_hour for one in shown]
    assert first[1:] == [918_000, 3 * 918_000]
    decide(world, world.job.id, decision_story.placed(now(), node_count=3))
    assert "2.754  3 × 0.918" in world.cli.ok("explain", "digits").row("✓")


def test_explain_shows_the_pools_as_a_table(world: World):
    at = now() - timedelta(minutes=5)
    decide(world, world.job.id, decision_story.waited(at), decision_story.placed(at))
    job_id = str(world.job.id)
    for name in ("digits", job_id, job_id[-8:]):
        assert world.cli.ok("explain", name, "-q").out == f"{POOL_A}\n"
    ran = world.cli.ok("explain", "digits")
    row = ran.row("✓")
    for cell in ("us-west-2a p3.2xlarge spot", "0.918", "-70 %", "2m", "0.08", "$2.95", "1h 35m"):
        assert cell in row
    assert row.endswith("the most progress for its price and expected life")
    assert "has capacity for 1 of 2" in ran.row("us-west-2b")
    assert ran.row("on-demand", "3.060").endswith("not needed: slack 55m")
    told = " ".join(ran.out.split())
    ways = "with spot machines $2.95, by waiting $3.10, with on-demand machines $9.38"
    assert f"UTC, the rest of the job was expected to cost: beginning {ways}." in told
    assert "so its figures differ." in told
    assert "Decision 2, attempt 1: spot, at" in ran.out
    assert "Decisions so far" not in ran.out
    history = world.cli.ok("explain", "digits", "--history").out
    assert history.index("Spot in us-west-2a") < history.index("Waiting costs less")
    assert " ".join(history.split()).count('No machines were requested. Said then: "Waiting') == 1
    found = world.cli.ok("explain", "digits", "--json", "--history").json
    assert [one["verdict"] for one in found["decisions"]] == ["spot", "wait"]
    decide(world, world.job.id, decision_story.kept(now()))
    kept = world.cli.ok("explain", "digits")
    assert kept.out.index("Keeping the 2 current machines") < kept.out.index("Decision 2, attempt")
    assert "Where its machines come from:" in kept.out
    assert "0.918" in kept.row("✓")
    assert world.cli.ok("explain", "digits", "-q").out == f"{POOL_A}\n"


def test_each_decision_tells_how_long_it_held(world: World):
    at = now() - timedelta(hours=2)
    placed_at, kept_at = at + timedelta(minutes=50), at + timedelta(minutes=65)
    decide(
        world, world.job.id, decision_story.waited(at), decision_story.placed(placed_at),
        decision_story.kept(kept_at),
    )  # fmt: skip
    found = told(world, "digits").decisions
    assert [one.held_until_at for one in found] == [None, kept_at, placed_at]
    history = world.cli.ok("explain", "digits", "--history")
    assert history.row("50m", "Waiting costs less")
    assert history.row("15m", "spot")
    assert history.row("55m", "stay")
    over = world.story.job(world.job.project_id, "over", state=JobState.QUEUED)
    ended_at = at + timedelta(minutes=20)
    world.story.set_job(over, state=JobState.CANCELLED, ended_at=ended_at)
    decide(world, over.id, decision_story.waited(at), decision_story.kept(at))
    for limit in (1, 10):
        assert told(world, "over", limit=limit).decisions[0].held_until_at == ended_at
    assert world.cli.ok("explain", "over", "--history").row("20m", "stay")


def test_explain_without_a_decision_or_a_job(world: World):
    out = world.cli.ok("explain", "digits").out
    assert "digits is running." in out
    assert "No decision about its machines is recorded yet." in out
    assert world.cli.ok("explain", "digits", "-q").out == ""
    assert world.cli.ok("explain", "digits", "--json").json["decisions"] == []
    assert "There is no job 'nothing'" in world.cli.fails(2, "explain", "nothing").errors


def test_work_that_the_trainers_formula_tells_is_explained(world: World):
    assert told(world, "digits").work_by_formula is None
    trainer = {"model": "cnn", "data": "digits", "epochs": 2, "batch_size": 32}
    job = world.story.job(world.job.project_id, "plain", state=JobState.QUEUED)
    world.story.set_job(job, spec={"trainer": trainer, "resources": {"gpu": ["V100:1"]}})
    work = told(world, "plain").work_by_formula
    assert work is not None
    assert "samples of cnn (2 epochs of 1,257 in batches of 32) in fp32 at " in work.sentence
    out = " ".join(world.cli.ok("explain", "plain").out.split())
    assert "The whole run takes about 1m on one machine by the trainer's formula: 2,514" in out
    assert "decisions about machines use the pace that is measured" in out
    assert "formula" not in world.cli.ok("explain", "digits").out


def test_nothing_in_a_reason_moves_the_cursor(world: World):
    at = now()
    bad = decision_story.pool("us-west-2a", 918_000, decision_story.HOSTILE, at, chosen=True)
    made = decision_story.placed(at, sentence=decision_story.HOSTILE, pools=(bad,))
    decide(world, world.job.id, made)
    assert "\x1b" not in world.cli.ok("explain", "digits", "--history").out
