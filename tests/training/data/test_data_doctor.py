"""The doctor reads every sample and tells what should be mended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.servers.finished_commands import run_command
from tests.training.data import small_data
from tests.training.gang.torchrun_gang import REPOSITORY


def test_good_data_has_nothing_to_mend(tmp_path: Path) -> None:
    done = doctor("--data", str(small_data.image_folders(tmp_path)))
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "samples   train 12, validation 4, test 2",
        "classes   3, with 6 to 6 samples",
        "shapes    (3, 32, 40) × 18",
        "nothing to correct",
    ]


def test_everything_that_is_wrong_is_found(tmp_path: Path) -> None:
    root = small_data.image_folders(tmp_path, parts=("train", "val"))
    (root / "train" / "rose" / "empty.jpg").touch()
    (root / "train" / "rose" / "text.png").write_text("no image")
    whole = small_data.image_bytes(90, kind="JPEG")
    (root / "train" / "rose" / "cut.jpg").write_bytes(whole[:300])
    twice = small_data.image_bytes(91)
    for place in ("train/rose", "train/tulip"):
        (root / place / "one.png").write_bytes(twice)
    leaked = next((root / "train" / "daisy").iterdir())
    (root / "val" / "daisy" / f"copy{leaked.suffix}").write_bytes(leaked.read_bytes())
    (root / "train" / "daisy" / f"copy{leaked.suffix}").write_bytes(leaked.read_bytes())
    done = doctor("--data", str(root), "--json")
    assert done.returncode == 1
    found: dict[str, Any] = json.loads(done.stdout)
    unreadable = " ".join(found["unreadable"])
    for name in ("empty.jpg: the file is empty", "text.png: it cannot be", "cut.jpg: it cannot be"):
        assert name in unreadable
    assert len(found["unreadable"]) == 3
    assert (
        len(found["in_two_classes"]) == len(found["in_two_parts"]) == len(found["duplicates"]) == 1
    )
    assert found["in_two_classes"][0].endswith("(rose, tulip)")
    assert found["in_two_parts"][0].endswith("(train, validation)")
    assert found["classes"] == {"daisy": 14, "rose": 13, "tulip": 13}
    text = doctor("--data", str(root), "--processes", "1").stdout
    assert "the same content in two classes: 1" in text
    assert text.splitlines()[-1] == "to correct: 5"


def test_tokens_outside_the_vocabulary_are_found(tmp_path: Path) -> None:
    tokens = np.zeros(50_000, np.uint16)
    tokens[30_000] = 60_000
    tokens.tofile(tmp_path / "corpus.bin")
    done = doctor("--data", str(tmp_path / "corpus.bin"))
    assert done.returncode == 1
    assert "token 60000 is outside the vocabulary of 50257" in done.stdout


def test_a_part_can_be_looked_at_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    few = doctor("--data", "synthetic", "--most", "4")
    assert few.returncode == 0
    assert "shapes    (3, 32, 32) × 12" in few.stdout
    missing = doctor("--data", str(tmp_path / "nowhere"))
    assert missing.returncode == 2
    assert missing.stderr == f"error: data: the folder {tmp_path / 'nowhere'} is not there\n"


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(
        [sys.executable, "-m", "trainer.training.doctor", *arguments], timeout=300, cwd=REPOSITORY
    )
