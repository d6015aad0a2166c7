"""Lightning and the Hugging Face Trainer on two machines: all shares, and failures agreed on.

Long, for each rank imports its framework; the saves themselves are in test_script_hooks.py. Not
here: the examples as a user runs them (tests/e2e/test_examples.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.training.hooks.script_ranks import ScriptGangs

pytestmark = pytest.mark.full
SHARE = "manifest-00002-of-00002.json"


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptGangs]:
    made = ScriptGangs(tmp_path_factory.mktemp("framework-gangs"))
    yield made
    made.close()


def run(gangs: ScriptGangs, scenario: str) -> list[list[str]]:
    _, ended = gangs.run(scenario, machines=2, group=None, module="framework_scenarios")
    assert [(each.error, each.status) for each in ended] == [("", 0)] * 2, ended
    return [each.value for each in ended]


def test_lightning_publishes_the_shards_of_all_machines(gangs: ScriptGangs):
    first, second = run(gangs, "lightning_shards")
    assert first[0] == second[0] == "3 folders"
    assert first[1:] == [
        "last.ckpt",
        "last.ckpt/__0_0.distcp",
        "last.ckpt/meta.pt",
        "manifest.json",
    ]
    assert second[1:] == ["last.ckpt", "last.ckpt/__1_0.distcp", SHARE]


def test_lightning_goes_on_when_rank_0_could_not_write(gangs: ScriptGangs):
    first, second = run(gangs, "lightning_full_disk")
    assert first == ["2 folders", "last.ckpt", "manifest.json"]
    assert second == ["0 folders"]


def test_the_hugging_face_trainer_publishes_every_machines_files(gangs: ScriptGangs):
    first, second = run(gangs, "transformers_shares")
    assert first[0] == second[0] == "3 folders"
    assert {"model.safetensors", "optimizer.pt", "rng_state_0.pth", "manifest.json"} < set(first)
    assert "rng_state_1.pth" not in first
    assert second[1:] == [SHARE, "rng_state_1.pth", "checkpoint-6"]
    assert first[-1] == "checkpoint-6"
