"""Every example that rents a GPU computes on it, alone and in a gang.

The GPUs are stood in for: a tensor on one mixes with no other, and the gang's group knows no
tensors of the processor, as NCCL's. Not here: what the examples learn (tests/e2e/test_examples.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.servers.free_port import free_port

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "docs" / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/job.yaml"))
WITH_TORCH = [name for name in NAMES if name != "tensorflow"]
STEPS = 4
OPERATIONS_LEAST = 20 * STEPS


def job(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text("utf-8"))
    return found


def run(script: Path, folder: Path, ranks: int = 1) -> list[dict[str, int]]:
    """Operations by device, of each rank. Fails with what the first failed rank has written."""
    port, started = str(free_port()), []
    for rank in range(ranks):
        (folder / str(rank)).mkdir()
        variables = {
            "PYTHONPATH": str(REPOSITORY),
            "STEPS": str(STEPS),
            "SAVE_EVERY": "2",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "LOWTIDE_FENCE": "1",
            "LOWTIDE_CHECKPOINT_DIR": str(folder / "checkpoints"),
        }
        if ranks > 1 or "torchrun" in job(script.parent.name)["run"]:
            variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            variables |= {"LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
            variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            variables |= {"TORCHELASTIC_RUN_ID": "attempt"}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.training.hooks.example_on_stand_in", str(script)],
                cwd=folder / str(rank),
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    told = []
    try:
        for process in started:
            output, _ = process.communicate(timeout=240)
            assert process.returncode == 0, output[-3000:]
            told.append(json.loads(output.splitlines()[-1]))
    finally:
        for process in started:
            process.kill()
            process.communicate()
    return told


def assert_each_used_its_own(told: list[dict[str, int]]) -> None:
    for rank, counts in enumerate(told):
        assert list(counts) == [f"cuda:{rank}"], counts
        assert counts[f"cuda:{rank}"] > OPERATIONS_LEAST


def test_every_example_rents_a_gpu_and_is_started_by_what_uses_them_all():
    assert len(NAMES) == 5
    for name in NAMES:
        assert "gpu" in job(name)["resources"]
        # TensorFlow uses all GPUs of a machine from one process, where its CUDA is installed.
        started = job(name)["run"]
        assert started == (
            "torchrun $LOWTIDE_TORCHRUN_ARGS train.py" if name in WITH_TORCH else "python train.py"
        )
    needed = (EXAMPLES / "tensorflow" / "requirements.txt").read_text()
    assert needed.startswith("tensorflow[and-cuda]==")
    assert "MirroredStrategy" in (EXAMPLES / "tensorflow" / "train.py").read_text()


def test_the_plain_loop_computes_on_its_gpu(tmp_path: Path):
    assert_each_used_its_own(run(EXAMPLES / "plain_loop" / "train.py", tmp_path))


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in WITH_TORCH if name != "plain_loop"])
def test_an_example_computes_on_its_gpu(name: str, tmp_path: Path):
    assert_each_used_its_own(run(EXAMPLES / name / "train.py", tmp_path))


@pytest.mark.full
@pytest.mark.parametrize("name", WITH_TORCH)
def test_a_gang_computes_on_all_its_gpus(name: str, tmp_path: Path):
    assert_each_used_its_own(run(EXAMPLES / name / "train.py", tmp_path, ranks=2))


@pytest.mark.full
@pytest.mark.parametrize(
    ("moved", "left", "sentence"),
    [
        (".to(device)\n", "\n", "Expected all tensors to be on the same device"),
        ("(each.to(device) for", "(each for", "Expected all tensors to be on the same device"),
        ('"nccl" if device.type == "cuda" else ', "", "the group's backend is gloo"),
    ],
)
def test_the_check_finds_what_was_left_on_the_processor(
    tmp_path: Path, moved: str, left: str, sentence: str
):
    text = (EXAMPLES / "plain_loop" / "train.py").read_text("utf-8")
    assert moved in text
    script = tmp_path / "plain_loop" / "train.py"
    script.parent.mkdir()
    script.write_text(text.replace(moved, left))
    with pytest.raises(AssertionError, match=sentence):
        run(script, tmp_path)
