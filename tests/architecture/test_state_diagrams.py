"""The page of state machines is what the tables say, word for word."""

import subprocess
import sys
from pathlib import Path

from app.domain.state_diagrams import render

ROOT = Path(__file__).parents[2]


def test_the_page_is_generated_from_the_tables():
    page = (ROOT / "docs" / "state-machines.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -m app.domain.state_diagrams > docs/state-machines.md"


def test_the_command_named_on_the_page_writes_it():
    printed = subprocess.run(
        [sys.executable, "-m", "app.domain.state_diagrams"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert printed.stdout == render()
