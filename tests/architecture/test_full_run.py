"""The long tests, which `make test` leaves out, passed not long ago."""

import re
import subprocess

import pytest

from tests.support.servers.finished_commands import run_command
from tests.support.sources.source_tree import ROOT

COMMITS_MAX = 40
RECORD = ".ci/last-full-run"


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(["git", *arguments], timeout=60, cwd=ROOT)


def _count(commits: str) -> int:
    done = _git("rev-list", "--count", commits)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_the_record_names_a_commit():
    assert re.fullmatch(r"[0-9a-f]{40}\n", (ROOT / RECORD).read_text(encoding="utf-8"))


def test_the_long_tests_passed_on_a_recent_commit(pytestconfig: pytest.Config):
    if not (ROOT / ".git").exists():
        return  # an unpacked archive has no history to count in
    if pytestconfig.getoption("--full"):
        return  # this very run renews the record, which could not be renewed else once it is old
    commit = (ROOT / RECORD).read_text(encoding="utf-8").strip()
    if _git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0:
        behind = _count(f"{commit}..HEAD")
    else:
        shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        assert shallow, f"{RECORD} names {commit}, which is not in this history"
        behind = _count("HEAD")  # as far as was fetched: it is at least so many commits old
    assert behind <= COMMITS_MAX, (
        f"`make test-full` passed last {behind} commits ago: run it, and commit {RECORD}"
    )
