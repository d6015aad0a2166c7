"""Which names of a checkpoint's files are taken: those that stay below its folder."""

from __future__ import annotations

import pytest

from trainer.protocol.checkpoint_manifest import stays_inside


@pytest.mark.parametrize(
    "name",
    ["weights.pt", "deep/er/shard 0.bin", "./a", "..a", "a..", ".hidden", "back\\slash", "é"],
)
def test_a_name_below_the_folder_is_taken(name: str) -> None:
    assert stays_inside(name)


@pytest.mark.parametrize(
    "name", ["", ".", "./", "..", "../a", "a/..", "a/../../b", "/", "/etc/passwd", "//a", "/a/../b"]
)
def test_a_name_that_leads_elsewhere_or_nowhere_is_not(name: str) -> None:
    assert not stays_inside(name)
