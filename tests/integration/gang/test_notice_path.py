"""The page of the path from a notice to the launch lists what runs."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

from tests.support.sources.source_tree import ROOT
from tests.support.stories.notice_path import render

PAGE = ROOT / "docs" / "notice-to-launch.md"


def test_the_page_is_what_runs_from_the_notice_to_the_launch(
    engine: Engine, tmp_path: Path
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == render(engine, tmp_path / "store"), "run: make docs-regenerate"
