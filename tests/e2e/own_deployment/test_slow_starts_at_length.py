"""Scripts that take a minute or two to start, at full length and with the usual times.

Both jobs run at once, in a deployment of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployment.control_plane import running_control_plane
from tests.support.deployment.followed_job import FollowedJob, submit, submit_small

pytestmark = [pytest.mark.full, pytest.mark.timeout(2_700)]

SLOW_IMPORT = """
import sys, time
if "trainer.training.train" in sys.orig_argv and "torch.distributed.run" not in sys.orig_argv:
    time.sleep({seconds})
"""
"""A sitecustomize.py: every rank of the bundled trainer starts so much later."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, FollowedJob]]:
    """The script and the tour, by name."""
    folder = tmp_path_factory.mktemp("imports")
    with running_control_plane() as plane:
        script = submit_small(
            plane,
            900,
            STEP_SECONDS=1.0,
            SAVE_EVERY=120,
            run="sleep 90; exec python3 small_trainer.py",
            deadline="90m",
            estimate={"hours": 0.3, "gpu": "V100"},
        )
        yield {"script": script, "tour": submit(plane, **_tour(folder))}


def _tour(folder: Path) -> dict[str, object]:
    (folder / "sitecustomize.py").write_text(SLOW_IMPORT.format(seconds=120))
    folder.chmod(0o755)
    return {
        "name": "tour",
        "trainer": {"model": "cnn", "data": "digits", "steps": 2000, "step_delay_seconds": 0.2},
        "resources": {"gpu": "V100"},
        "infra": ["local"],
        "env": {"PYTHONPATH": str(folder)},
        "nodes": 2,
        "deadline": "2h",
        "budget_usd": 50,
    }


def test_the_tour_with_two_minutes_of_imports(jobs: dict[str, FollowedJob]):
    jobs["tour"].finish(seconds=2_400.0)
    jobs["tour"].assert_undisturbed()


def test_ninety_seconds_of_start_and_nine_hundred_of_steps(jobs: dict[str, FollowedJob]):
    jobs["script"].finish(seconds=2_400.0)
    jobs["script"].assert_undisturbed()
