"""Files that share what is dear to start go to one process, and each file that is named exists."""

from __future__ import annotations

from tests.support.plugins.scheduling import ALONE, GANGS, group_of
from tests.support.sources.source_tree import ROOT


def test_every_file_that_is_named_is_there() -> None:
    assert [name for name in sorted(ALONE | GANGS) if not (ROOT / name).is_file()] == []


def test_files_are_grouped_by_what_they_share() -> None:
    shared = {group_of(f"tests/e2e/test_{name}.py::test_it") for name in ("kills", "limits")}
    assert len(shared) == 1
    assert group_of("tests/e2e/own_deployment/test_demo.py::test_it") not in shared
    assert len({group_of(f"{name}::test_it") for name in GANGS}) == 1
    assert (
        group_of("tests/unit/plugins/test_tiers.py::test_it") == "tests/unit/plugins/test_tiers.py"
    )
