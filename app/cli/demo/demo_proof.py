"""`lowtide demo --prove`: the same job once more without an interruption, and the losses of both.

Not here: how losses are read and compared (`demo_losses`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.cli.client.api_client import ApiClient
from app.cli.client.failures import JOB_FAILED, CommandFailed
from app.cli.demo.demo_job import DemoJob, DemoNarrator
from app.cli.demo.demo_losses import LossComparison, ProgressRecorder, StepLoss, compare_losses
from app.cli.demo.demo_story import progress, proof


def prove(
    api: ApiClient,
    telling: DemoNarrator,
    machines: Path,
    name: str,
    spec: Mapping[str, Any],
    interrupted: list[StepLoss],
    resumed_at: int,
) -> LossComparison:
    """Run `spec` to its end as the job `name`, and compare. Raises CommandFailed when that run
    is interrupted too (then it shows nothing), fails, or takes too long.
    """
    telling.tell("", f"prove   the same job again, as {name}, and nothing interrupts it")
    with ProgressRecorder(machines) as recorder:
        api.post("/jobs?accept_risk=true", {"name": name, **spec})
        run = DemoJob(api, name, telling, recorder)
        job = run.until(lambda j: j["ended_at"] is not None, "the second job's end", lines=True)
        telling.tell(progress(telling.clock(), job))
        attempts = run.attempts()
        if job["state"] != "succeeded" or len(attempts) != 1:
            raise CommandFailed(
                f"{name} was to run in one attempt and had {len(attempts)}: nothing is proved",
                JOB_FAILED,
            )
        found = compare_losses(
            interrupted, recorder.losses(), resumed_at, int(job["progress"]["total_steps"])
        )
    run.until(lambda j: j["money"]["cost_final_at"] is not None, "the second job's final cost")
    telling.tell(*proof(found))
    return found
