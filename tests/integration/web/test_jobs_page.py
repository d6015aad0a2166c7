"""The jobs page over plain http: what an address finds, in which order, and commands to many jobs.

Not here: what a browser does with it (tests/browser/test_job_list.py).
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import insert, select, update

from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState
from app.storage.reports import job_search, job_search_statement
from app.storage.reports.job_search import FoundGroup, FoundJob, JobOrder, JobSearch
from app.storage.reports.page_read_models import PageReports
from app.storage.schema import money_tables, tables
from tests.support.api.people_api import (
    SPEC,
    PeopleApi,
    make_key,
    make_own_gang,
    make_project,
    price_pool,
)
from tests.support.servers.table_rows import change_row, change_rows, fetch

_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')
_NAMES = re.compile(r'<div class="job-name"><a href="[^"]*" title="[^"]*">([^<]*?)\s*<')
_numbers = itertools.count()


class Pages:
    """A browser without scripts, signed in to a project of its own."""

    def __init__(self, api: PeopleApi) -> None:
        self.api = api
        self.project_id = make_project(api.engine, f"project-{next(_numbers)}")
        self.key = make_key(api.engine, self.project_id)
        self.client = httpx.Client(base_url=api.url, timeout=60)
        sign_in = self.client.get("/sign-in")
        form = {"form_token": token(sign_in), "key": self.key, "next": "/jobs"}
        assert self.client.post("/sign-in", data=form).status_code == 303

    def submit(self, *names: str, state: JobState = JobState.QUEUED, **spec: Any) -> list[str]:
        """Jobs of these names, put into a state; their ids."""
        headers = {"Authorization": f"Bearer {self.key}"}
        made = []
        for name in names:
            body = {**SPEC, "name": name, **spec}
            answer = httpx.post(f"{self.api.url}/api/v1/jobs", json=body, headers=headers)
            assert answer.status_code == 201, answer.text
            made.append(answer.json()["id"])
        ended_at = datetime.now(UTC) if state in TERMINAL_JOB_STATES else None
        jobs = tables.jobs
        those = jobs.c.id.in_(made)
        change_rows(self.api.engine, jobs, those, state=state, ended_at=ended_at)
        return made

    def names(self, query: str = "") -> list[str]:
        """The names that a page shows, from its top."""
        answer = self.client.get(f"/jobs{query}")
        assert answer.status_code == 200, answer.text
        return _NAMES.findall(answer.text)

    def ask(self, **form: Any) -> httpx.Response:
        """The question before a command."""
        fields = {"form_token": token(self.client.get("/jobs")), **form}
        return self.client.post("/jobs/-/question", data=fields)

    def confirm(self, question: httpx.Response) -> httpx.Response:
        """Press the button of the question."""
        assert question.status_code == 200, question.text
        ids = re.findall(r'name="job" value="([^"]+)"', question.text)
        action = re.findall(r'name="action" value="([^"]+)"', question.text)
        fields = {"form_token": token(question), "job": ids, "action": action}
        return self.client.post("/jobs/-/command", data=fields)

    def states(self) -> dict[str, str]:
        """States by name."""
        jobs = tables.jobs.c
        mine = select(jobs.name, jobs.state).where(jobs.project_id == self.project_id)
        return {row.name: row.state for row in fetch(self.api.engine, mine)}


def token(answer: httpx.Response) -> str:
    found = _TOKEN.search(answer.text)
    assert found is not None, answer.text
    return found[1]


def words(answer: httpx.Response) -> str:
    """The text of a page's main part, without markup."""
    main = answer.text.partition("<main")[2].partition(">")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


@pytest.fixture
def pages(api: PeopleApi) -> Iterator[Pages]:
    made = Pages(api)
    yield made
    made.client.close()


def test_what_a_running_job_saved_is_a_dash_that_is_explained(pages: Pages):
    running, new, _ = [
        *pages.submit("running", "new", state=JobState.QUEUED, budget_usd=5),
        *pages.submit("failed", state=JobState.FAILED, budget_usd=5),
    ]
    jobs, budgets = tables.jobs.c, tables.budgets
    spends = select(jobs.budget_id).where(jobs.id == running).scalar_subquery()
    change_row(pages.api.engine, budgets, spends, spent_microusd=1_000_000)
    listed = pages.client.get("/jobs").text
    [dash] = re.findall(r'<span class="muted" title="(Shown when[^"]*)">–</span>', listed)
    assert "Shown when the job has ended and its cost is final" in html.unescape(dash)
    assert "Its page compares the cost so far" in html.unescape(dash)
    assert listed.index(f"job-{running}") < listed.index("Shown when")
    assert new in listed


def test_a_project_counts_its_running_and_queued_jobs_as_the_list_does(pages: Pages):
    pages.submit("trains", state=JobState.RUNNING)
    pages.submit("one", "two", state=JobState.QUEUED)
    pages.submit("rests", state=JobState.PAUSED)
    told = words(pages.client.get("/projects"))
    assert re.search(r"project-\d+ 1 2 \$0\.00", told), told
    named = re.search(r"project-\d+", told)
    assert named is not None
    told = words(pages.client.get(f"/projects/{named[0]}"))
    assert "jobs running 1 jobs queued 2" in told


def test_a_cost_that_a_cloud_waived_in_part_says_so_in_its_row(pages: Pages):
    gang = make_own_gang(pages.api, name="let-off")
    jobs, instances = tables.jobs, tables.instances
    change_row(pages.api.engine, jobs, gang.job_id, project_id=pages.project_id)
    assert "some waived" not in pages.client.get("/jobs").text
    of_job = instances.c.job_id == gang.job_id
    change_rows(pages.api.engine, instances, of_job, rating={"waived": True})
    assert re.search(
        r'<span class="muted waived" title="[^"]*">some waived</span>',
        pages.client.get("/jobs").text,
    )


def test_a_group_saved_what_its_jobs_saved_together(pages: Pages):
    known = pages.submit(*(f"lr-{n}" for n in range(3)), state=JobState.SUCCEEDED, budget_usd=5)
    unpaid = pages.submit("lr-8", state=JobState.CANCELLED, budget_usd=5)
    jobs, budgets = tables.jobs, tables.budgets

    def tell(ids: list[str], spent: int, **values: Any) -> None:
        mine = select(jobs.c.budget_id).where(jobs.c.id.in_(ids))
        change_rows(pages.api.engine, budgets, budgets.c.id.in_(mine), spent_microusd=spent)
        change_rows(pages.api.engine, jobs, jobs.c.id.in_(ids), **values)

    final = {"cost_final_at": datetime.now(UTC), "on_demand_comparison_microusd": 4_000_000}
    tell(known, 1_000_000, **final)
    tell(unpaid, 0, cost_final_at=datetime.now(UTC))
    search = JobSearch(pages.project_id, datetime.now(UTC), grouped=True)

    def group() -> FoundGroup:
        found = PageReports(pages.api.engine).search_jobs(search, datetime.now(UTC))
        [row] = found.rows
        assert isinstance(row, FoundGroup)
        return row

    assert (group().spent_microusd, group().compared_microusd) == (3_000_000, 12_000_000)
    assert group().net_saved_ratio == pytest.approx(0.75)
    assert " 75 % " in words(pages.client.get("/jobs"))
    # One that is not final yet, or that failed, leaves the group without a figure.
    pages.submit("lr-9", state=JobState.FAILED, budget_usd=5)
    assert group().compared_microusd == 12_000_000
    [failed] = pages.submit("lr-10", state=JobState.FAILED, budget_usd=5)
    tell([failed], 500_000, **final)
    assert (group().spent_microusd, group().compared_microusd) == (3_500_000, None)
    assert "none of them failed" in html.unescape(pages.client.get("/jobs").text)


def test_what_runs_is_first_and_what_ended_is_last(pages: Pages):
    for state in ("running", "starting", "recovering", "paused", "failed", "succeeded"):
        pages.submit(f"is-{state}", state=JobState(state))
    pages.submit("waits-a", "waits-b")
    assert pages.names() == [
        "is-running", "is-recovering", "is-starting", "waits-b", "waits-a", "is-paused",
        "is-succeeded", "is-failed",
    ]  # fmt: skip


def test_the_running_job_is_on_the_first_page_of_many(pages: Pages):
    pages.submit("old-run", state=JobState.RUNNING)
    long_ago = datetime.now(UTC) - timedelta(days=9)
    change_rows(pages.api.engine, tables.jobs, submitted_at=long_ago)
    pages.submit(*(f"many-{number}" for number in range(102)))
    assert pages.names("?group=none")[0] == "old-run"
    first = words(pages.client.get("/jobs?group=none"))
    assert "1–50 of 103 Older" in first
    assert "Newer" not in first
    assert "51–100 of 103 Newer Older" in words(pages.client.get("/jobs?group=none&page=2"))
    last = words(pages.client.get("/jobs?group=none&page=3"))
    assert "101–103 of 103 Newer" in last
    assert "Older" not in last
    past = pages.client.get("/jobs?group=none&page=4")
    assert "103 rows are 3 pages. Show the last page" in words(past)
    assert 'href="/jobs?group=none&amp;page=3"' in past.text
    assert pages.names() == ["old-run", "many-…"]
    assert "1–2 of 2 rows, 103 jobs" in words(pages.client.get("/jobs"))


def test_a_search_is_what_its_address_says(pages: Pages):
    pages.submit("alpha-one", labels={"team": "vision", "lr": "0.1"})
    pages.submit("alpha-two", labels={"team": "vision"}, state=JobState.FAILED)
    pages.submit("beta", labels={"team": "nlp"})
    assert pages.names("?name=ALPHA") == ["alpha-one", "alpha-two"]
    assert pages.names("?state=failed") == ["alpha-two"]
    assert pages.names("?state=queued,failed&name=a&sort=name") == [
        "alpha-one", "alpha-two", "beta"]  # fmt: skip
    assert pages.names("?state=live&label=team=vision") == ["alpha-one"]
    assert pages.names("?label=team=vision&label=lr=0.1") == ["alpha-one"]
    assert pages.names("?label=lr") == ["alpha-one"]
    assert sorted(pages.names("?label=team")) == ["alpha-one", "alpha-two", "beta"]
    assert pages.names("?label=team=nlp&label=team") == ["beta"]
    assert pages.names("?sort=oldest") == ["alpha-one", "alpha-two", "beta"]
    assert pages.names("?sort=newest") == ["beta", "alpha-two", "alpha-one"]
    found = pages.client.get("/jobs?name=alpha&label=team=vision")
    assert "all 2 live 1 ended 1 queued 1 failed 1" in words(found)
    none = pages.client.get("/jobs?name=gamma&state=failed")
    assert "There is no job with state failed, name “gamma”. Clear the filter" in words(none)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("state=foo", "There is no state “foo”. Use one of all, live, ended, queued, "),
        ("state=running,foo", "There is no state “foo”."),
        ("state=" + "live," * 64 + "foo", "There is no state “foo”."),
        ("sort=foo", "sort=foo is not known. Use one of state, newest, "),
        ("group=foo", "group=foo is not known. Use one of name, none."),
        ("page=0", "page=0 is not a page. Use a number from 1 to 400."),
        ("page=x", "page=x is not a page."),
        (
            "label==vision",
            "“=vision” is not a label. Write it as key=value, as in team=vision, or the key alone "
            "for any value.",
        ),
        ("sate=running", "There is no parameter “sate”; did you mean 'state'?"),
        ("foo=1", "There is no parameter “foo”. Use one of state, name, label, sort, group, "),
        ("&".join(["label=a=b"] * 9), "The address has 9 labels. Use at most 8."),
    ],
)
def test_an_address_that_makes_no_sense_is_told_so(pages: Pages, query: str, sentence: str):
    pages.submit("seen")
    for path in ("/jobs", "/jobs/-/table"):
        answer = pages.client.get(f"{path}?{query}")
        assert answer.status_code == 422
        assert sentence in words(answer)
        assert "Clear the filter" in words(answer)


def test_empty_fields_of_the_form_are_no_filter(pages: Pages):
    pages.submit("seen")
    assert pages.names("?state=&name=&label=&sort=&group=&page=") == ["seen"]


def test_an_address_is_kept_through_signing_in(pages: Pages):
    with httpx.Client(base_url=pages.api.url, timeout=60) as stranger:
        sent = stranger.get("/jobs?state=failed&label=team%3Dvision")
        assert sent.status_code == 303
        form = stranger.get(sent.headers["location"])
        assert 'name="next" value="/jobs?state=failed&amp;label=team%3Dvision"' in form.text
        expired = stranger.post("/jobs/-/command", data={"action": "cancel", "job": str(uuid4())})
        assert expired.headers["location"] == "/sign-in?next=/jobs"


def test_a_sweep_is_one_row_and_names_made_for_jobs_are_none(pages: Pages):
    pages.submit("sweep-001", state=JobState.SUCCEEDED)
    pages.submit("sweep-002", state=JobState.RUNNING)
    pages.submit("sweep-003", "two-1", "two-2", "sweep-x")
    pages.submit(*(f"quiet-harbor-{number}" for number in (101, 102, 103)))
    shown = pages.names()
    assert shown[0] == "sweep-…"
    assert sorted(shown[1:]) == [
        "quiet-harbor-101", "quiet-harbor-102", "quiet-harbor-103", "sweep-x", "two-1", "two-2",
    ]  # fmt: skip
    assert "sweep-… 3 jobs 1/3" in words(pages.client.get("/jobs"))
    assert "1 running 1 queued 1 succeeded" in words(pages.client.get("/jobs"))
    assert pages.names("?prefix=sweep") == ["sweep-002", "sweep-003", "sweep-001"]
    assert "sweep-…" not in pages.names("?group=none")


def test_totals_are_of_the_whole_project(pages: Pages):
    pages.submit("failed-now", state=JobState.FAILED)
    pages.submit("failed-before", state=JobState.FAILED)
    jobs, now = tables.jobs, datetime.now(UTC)
    gang = make_own_gang(pages.api, name="paid")
    with pages.api.engine.begin() as connection:
        connection.execute(
            update(jobs).where(jobs.c.name == "failed-before").values(ended_at=now - timedelta(2))
        )
        for day, amount in ((now.date(), 1_500_000), (now.date() - timedelta(1), 9_000_000)):
            connection.execute(
                insert(money_tables.cost_rollups).values(
                    instance_id=gang.instance_ids[0], rollup_key=f"{day}", day=day,
                    project_id=pages.project_id, component="compute", kind="accrual",
                    amount_microusd=amount, entries=1,
                )
            )  # fmt: skip
    shown = words(pages.client.get("/jobs?name=nothing-like-it"))
    assert "Now $0.00 /h Spent today $1.50 Running 0 Queued 0 Failed today 1" in shown


# In every run: as many by the api (test_job_batches.py), and a few by the page
# (tests/browser/test_job_list.py).
@pytest.mark.full
def test_many_jobs_are_cancelled_by_one_request_after_one_question(pages: Pages):
    pages.submit(*(f"sweep-{number:03}" for number in range(300)))
    pages.submit("other")
    asked = pages.ask(action="cancel", everything="true", search="name=sweep")
    assert "Cancel 300 jobs?" in words(asked)
    assert "300 jobs wait for machines: they leave the queue." in words(asked)
    assert "A cancelled job cannot be resumed." in words(asked)
    assert "without saving" not in words(asked)
    answer = pages.confirm(asked)
    assert words(answer).startswith("300 jobs cancelled Back to the jobs")
    states = pages.states()
    assert states.pop("other") == "queued"
    assert set(states.values()) == {"cancelled"}


def test_each_job_that_refuses_is_named_with_its_reason(pages: Pages):
    ids = pages.submit("waits", "rests")
    ids += pages.submit("ended", state=JobState.SUCCEEDED)
    assert "Pause 1 job?" in words(pages.ask(action="pause", job=ids[1:2]))
    pages.confirm(pages.ask(action="pause", job=ids[1:2]))
    asked = pages.ask(action="pause", job=ids)
    assert "Pause 1 job?" in words(asked)
    assert "1 job is paused already." in words(asked)
    answer = words(pages.confirm(asked))
    assert "1 job paused 1 was paused already. Back to the jobs Not paused: 1" in answer
    assert "ended This job has already succeeded: there is nothing to pause." in answer
    resumed = pages.confirm(pages.ask(action="resume", everything="true"))
    assert words(resumed).startswith("2 jobs resumed")
    assert pages.states() == {"waits": "queued", "rests": "queued", "ended": "succeeded"}
    assert "Nothing to resume" in words(pages.ask(action="resume", prefix="none-such"))


def test_a_command_needs_the_token_of_its_session_and_ones_own_jobs(pages: Pages):
    [mine] = pages.submit("mine")
    stranger = Pages(pages.api)
    stranger.client.close()
    [theirs] = stranger.submit("theirs")
    form = {"action": "cancel", "job": [mine, theirs]}
    for path in ("/jobs/-/question", "/jobs/-/command"):
        assert pages.client.post(path, data=form).status_code == 403
    own = token(pages.client.get("/jobs"))
    answer = pages.client.post("/jobs/-/command", data={**form, "form_token": own})
    assert "1 job cancelled 1 is not in this project." in words(answer)
    assert stranger.states() == {"theirs": "queued"}
    nothing = pages.ask(action="cancel")
    assert nothing.status_code == 422
    assert "No job is selected." in words(nothing)
    odd = [{"search": "state=foo"}, {"prefix": "a\0"}, {"everything": "1", "search": "name=%00"}]
    assert [pages.ask(action="cancel", **one).status_code for one in odd] == [422, 422, 200]
    many = {"action": "cancel", "form_token": own, "job": [mine] * 501}
    assert pages.client.post("/jobs/-/command", data=many).status_code in (400, 422)


@pytest.fixture
def three_considered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Searches look at the three newest jobs, not at ten thousand."""
    assert job_search.CONSIDERED_MAX == 10_000
    monkeypatch.setattr(job_search_statement, "CONSIDERED_MAX", 3)
    made = (job_search_statement._found, job_search_statement._page_statement)
    for statement in made:
        statement.cache_clear()
    yield
    for statement in made:
        statement.cache_clear()


@pytest.mark.usefixtures("three_considered")
def test_a_search_looks_at_a_bounded_number_of_jobs(pages: Pages):
    """Older ones are found while they live, or by their whole name."""
    pages.submit("old-ended", state=JobState.FAILED)
    pages.submit("old-live")
    pages.submit("new-a", "new-b", "new-c", state=JobState.SUCCEEDED)
    assert pages.names("?sort=name") == ["new-a", "new-b", "new-c", "old-live"]
    assert pages.names("?name=old") == ["old-live"]
    assert pages.names("?name=old-ended") == ["old-ended"]
    assert "newest jobs and all live ones" in words(pages.client.get("/jobs"))


@pytest.mark.usefixtures("three_considered")
def test_what_another_project_has_is_counted_nowhere(pages: Pages):
    live = f"theirs-{next(_numbers)}"
    gang = make_own_gang(pages.api, name=live)
    price_pool(pages.api, 918_000)
    now = datetime.now(UTC)
    with pages.api.engine.begin() as connection:
        connection.execute(update(tables.instances).values(launched_at=now, ended_at=None))
        connection.execute(
            insert(money_tables.cost_rollups).values(
                instance_id=gang.instance_ids[0], rollup_key="theirs", day=now.date(),
                project_id=pages.api.project_id, component="compute", kind="accrual",
                amount_microusd=7, entries=1,
            )
        )  # fmt: skip
    stranger = Pages(pages.api)
    with closing(stranger.client):
        stranger.submit("old-ended", state=JobState.FAILED)
    pages.submit("new-a", "new-b", "new-c")
    reports = PageReports(pages.api.engine)
    for name, matching in (("", 3), (live, 0), ("old-ended", 0)):
        found = reports.search_jobs(JobSearch(pages.project_id, now, name=name), now)
        assert found.considered == 3
        assert not found.is_cut
        assert (found.now.microusd_per_hour, found.now.spent_today_microusd) == (0, 0)
        assert sum(found.by_state.values()) == matching


@pytest.mark.parametrize("order", list(JobOrder))
@pytest.mark.parametrize("grouped", [True, False])
def test_every_order_is_total_and_its_pages_meet(pages: Pages, order: JobOrder, grouped: bool):
    pages.submit(*(f"s-{number}" for number in range(4)), "a", "b")
    reports, now = PageReports(pages.api.engine), datetime.now(UTC)
    seen: list[str] = []
    for offset in range(8):
        search = JobSearch(
            pages.project_id, now, order=order, grouped=grouped, offset=offset, limit=1
        )
        found = reports.search_jobs(search, now)
        for row in found.rows:
            assert isinstance(row, FoundJob | FoundGroup)
            seen.append(row.prefix if isinstance(row, FoundGroup) else row.facts["name"])
    assert sorted(seen) == (["a", "b", "s"] if grouped else ["a", "b", "s-0", "s-1", "s-2", "s-3"])


def test_no_search_group_or_form_reaches_the_jobs_of_another_project(pages: Pages):
    """Neither project's question names the other's jobs, however they are chosen."""
    stranger = Pages(pages.api)
    names = [f"sweep-{number:03}" for number in range(3)]
    mine, theirs = pages.submit(*names), stranger.submit(*names, labels={"team": "theirs"})
    chosen: list[dict[str, Any]] = [
        {"everything": "true"},
        {"everything": "true", "search": "prefix=sweep"},
        {"everything": "true", "search": "label=team=theirs"},
        {"prefix": "sweep"},
        {"job": theirs},
        {"job": theirs, "prefix": ["sweep", "%"]},
    ]
    for form in chosen:
        asked = pages.ask(action="cancel", **form)
        assert asked.status_code == 200
        assert not any(job_id in asked.text for job_id in theirs), form
    for query in ("", "?prefix=sweep", "?name=sweep-001", "?group=none&sort=cost"):
        assert not any(one in pages.client.get(f"/jobs{query}").text for one in theirs), query
    assert words(pages.confirm(pages.ask(action="cancel", prefix="sweep"))).startswith("3 jobs")
    assert set(pages.states().values()) == {"cancelled"}
    assert set(stranger.states().values()) == {"queued"}
    assert not any(one in stranger.ask(action="cancel", job=mine).text for one in mine)
    # A form of one session is none of another's.
    form = {"action": "cancel", "job": theirs, "form_token": token(pages.client.get("/jobs"))}
    assert stranger.client.post("/jobs/-/command", data=form).status_code == 403
    assert set(stranger.states().values()) == {"queued"}
    stranger.client.close()


@pytest.mark.parametrize("path", ["/jobs/-/question", "/sign-in"])
def test_a_form_in_another_encoding_is_refused(pages: Pages, path: str):
    """UTF-7 can write half a character, which nothing can store or show."""
    fields = {"form_token": token(pages.client.get("/jobs")), "action": "cancel", "key": "+2AA-"}
    parts = [
        f'--X\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {**fields, "prefix": "+2AA-"}.items()
    ]
    described = "multipart/form-data; boundary=X; charset="
    body = "".join(parts) + "--X--\r\n"
    answer = pages.client.post(path, content=body, headers={"content-type": f"{described}utf-7"})
    assert answer.status_code == 422
    assert "Forms must be UTF-8" in words(answer)
    plain = pages.client.post(path, content=body, headers={"content-type": f"{described}UTF-8"})
    assert plain.status_code < 500
    assert "Forms are read" not in plain.text
