"""The examples of docs/examples, as a user runs them: through an interruption, to their end.

Here: the command of each job.yaml on real machines of the local cloud, and that no step was lost,
done twice or trained differently. Short, and without a control plane: the plain loop in
tests/training/hooks/test_examples_on_gpus.py, the hooks in test_script_hooks.py. Not here:
TensorFlow, which has a target of its own (tests/examples).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.test_interruptions import NOTICE_SECONDS, assert_resumed_exactly
from tests.support.deployment.control_plane import ControlPlane
from tests.support.deployment.followed_job import FollowedJob, submit

# Python runs it before the example: each step takes its time, so that a notice can come between.
PACE = """
import time
import lowtide_hooks

quick = lowtide_hooks.Hooks.should_drain

def should_drain(self):
    time.sleep(0.03)
    return quick(self)

lowtide_hooks.Hooks.should_drain = should_drain
"""
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def run_example(plane: ControlPlane, name: str, steps: int, **spec: Any) -> FollowedJob:
    """Submits the example as its job.yaml has it, on the local cloud and with this Python."""
    folder = EXAMPLES / name
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return submit(
        plane,
        workdir=plane.upload(
            {"train.py": (folder / "train.py").read_text("utf-8"), "sitecustomize.py": PACE}
        ),
        run=yaml.safe_load((folder / "job.yaml").read_text("utf-8"))["run"],
        resources={"gpu": "V100"},
        infra=["local"],
        env={
            "PATH": path,
            "PYTHONPATH": ".",
            "STEPS": str(steps),
            "SAVE_EVERY": "100000",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",  # threads that wait for each other crawl on busy cores
        },
        **spec,
    )


def losses(plane: ControlPlane, job: FollowedJob) -> dict[int, float]:
    """Loss of each step as the job's charts have it; fails when a step was reported twice."""
    points = plane.get(f"/jobs/{job.id}/metrics", limit=5000)["items"]
    steps = [point["step"] for point in points]
    assert steps == sorted(set(steps)), "a step was reported by two attempts"
    return {point["step"]: point["metrics"]["loss"] for point in points}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "steps", "nodes"),
    [
        ("plain_loop", 200, 2),
        pytest.param("transformers", 200, 1, marks=pytest.mark.full),
        pytest.param("lightning", 200, 1, marks=pytest.mark.full),
        pytest.param("detection", 200, 1, marks=pytest.mark.full),
    ],
)
def test_an_example_goes_on_at_the_very_step(
    plane: ControlPlane, name: str, steps: int, nodes: int
):
    cut = run_example(plane, name, steps, nodes=nodes)
    cut.until_step(5)
    cut.interrupt(cut.machines()[-1], NOTICE_SECONDS)
    cut.until(lambda job: job["attempts"]["count"] > 1, "its next attempt begins")
    # The cut one has its machines: most of the time that both still take is start-up, side by side.
    whole = run_example(plane, name, steps, nodes=nodes)
    cut.finish(seconds=180)
    whole.finish(seconds=180)
    assert_resumed_exactly(cut)
    assert len(whole.attempts()) == 1
    assert cut.show()["progress"]["step"] == whole.show()["progress"]["step"] == steps
    expected, found = losses(plane, whole), losses(plane, cut)
    both = sorted(expected.keys() & found.keys())
    # Agents tell a sample of quick steps, and always the last: it holds all that came before.
    assert steps in both
    resumed_at = cut.attempts()[1]["parent_step"]
    assert sum(step > resumed_at for step in both) > 10
    assert [found[step] for step in both] == [expected[step] for step in both]
