"""Training data of a bucket: brought by the agent, read by the bundled trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.spec.job_spec import parse_spec
from tests.support.agent.agent_world import World
from tests.support.object_stores.object_store_fakes import S3Fake
from tests.training.data import small_data
from trainer.agent.checkpoints.storage_root import StorageRoot
from trainer.protocol.agent_report import FactKind


@pytest.mark.full
def test_the_bundled_trainer_reads_what_the_agent_has_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3, world = S3Fake(), World(tmp_path)
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    try:
        address = f"s3://{s3.bucket}/flowers"
        folder = small_data.image_folders(tmp_path / "flowers", each=4)
        store = StorageRoot(address)
        for path in sorted(folder.rglob("*.*")):
            store.put_new(path.relative_to(folder).as_posix(), path.read_bytes())
        # The rights to the bucket are the agent's: the trainer gets a path.
        spec = parse_spec(
            {
                "trainer": {
                    "model": "cnn",
                    "data": address,
                    "steps": 3,
                    "batch_size": 4,
                    "image_size": 8,
                    "workers": 1,
                }
            }
        )
        plane = world.open(run=None, trainer=spec.trainer_config(), inputs=spec.brought_folders())
        world.start(**s3.environment())
        plane.train(1)
        ended = plane.wait_for(FactKind.TRAINER_ENDED, seconds=120).data
        assert ended["outcome"] == "finished", plane.log_text()
        assert "input /lowtide/training-data is here" in plane.log_text()
    finally:
        world.close()
        s3.close()
