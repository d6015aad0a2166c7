"""A hazard and a price that change while training: from the directive into the trainer's file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.agent.supervised_machine import Machine, of
from trainer.agent.attempt.trainer_command import CommandContext, trainer_environment
from trainer.agent.folders.hazard_file import write_hazard
from trainer.agent.machine.machine_folders import AttemptFolders
from trainer.agent.rules import actions as act
from trainer.protocol.directive import Directive, DirectiveKind
from trainer.protocol.run_config import RunConfig
from trainer.protocol.wire import decode, encode

TRAIN = Directive(DirectiveKind.TRAIN, 1, fence=1, hazard_per_hour=0.5, price_per_hour_usd=1.25)
CONFIG = RunConfig(
    job_id="j", job_name="j", num_nodes=1, gpus_per_node=1, checkpoint_uri="file:///c",
    checkpoint_keep=3, stall_timeout_seconds=600.0, run="true",
)  # fmt: skip


def test_only_a_change_is_told_and_only_while_training() -> None:
    machine = Machine().running()
    train: dict[str, Any] = {"master_port": 29_501}
    assert not of(act.TellOutlook, machine.told(DirectiveKind.TRAIN, **train))
    for hazard, price, times in ((0.5, 2.0, 1), (0.5, 2.0, 0), (6.0, 2.0, 1), (6.0, 2.5, 1)):
        more = {**train, "hazard_per_hour": hazard, "price_per_hour_usd": price}
        assert len(of(act.TellOutlook, machine.told(DirectiveKind.TRAIN, **more))) == times
    # A control plane of before knows neither: what was told stays.
    assert not of(act.TellOutlook, machine.told(DirectiveKind.TRAIN, **train))
    machine.told(DirectiveKind.DRAIN, drain_seconds=30.0)
    assert not of(act.TellOutlook, machine.told(DirectiveKind.TRAIN, hazard_per_hour=1.0, **train))


def test_what_it_started_with_is_not_told_again() -> None:
    machine = Machine()
    machine.told(DirectiveKind.PREPARE)
    more: dict[str, Any] = {"master_port": 29_501, "hazard_per_hour": 0.5}
    assert not of(act.TellOutlook, machine.told(DirectiveKind.TRAIN, **more))
    machine = Machine().running(hazard_per_hour=0.5)
    assert not of(act.TellOutlook, machine.told(DirectiveKind.TRAIN, **more))


def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "hazard.json"
    write_hazard(CONFIG, replace(TRAIN, hazard_per_hour=None, price_per_hour_usd=None), path)
    assert not path.exists()
    write_hazard(CONFIG, TRAIN, path)
    assert json.loads(path.read_text()) == {"per_hour": 0.5, "price_per_hour_usd": 1.25}
    held = path.open()
    write_hazard(CONFIG, replace(TRAIN, hazard_per_hour=6.0), path)
    assert json.loads(held.read())["per_hour"] == 0.5  # who reads meanwhile sees one of the two
    held.close()
    assert json.loads(path.read_text())["per_hour"] == 6.0
    assert [one.name for one in tmp_path.iterdir()] == ["hazard.json"]
    write_hazard(CONFIG, TRAIN, tmp_path / "gone" / "hazard.json")  # nothing ends for it


def test_a_price_that_the_job_sets_is_the_jobs(tmp_path: Path) -> None:
    folders = AttemptFolders(tmp_path)
    context = CommandContext("i-1", "10.0.0.1", "", {})
    told = trainer_environment(context, CONFIG, TRAIN, folders, None)
    assert told["LOWTIDE_PRICE_PER_HOUR_USD"] == "1.250000"
    own = replace(CONFIG, env={"LOWTIDE_PRICE_PER_HOUR_USD": "9"})
    told = trainer_environment(context, own, TRAIN, folders, None)
    assert told["LOWTIDE_PRICE_PER_HOUR_USD"] == "9"
    write_hazard(own, TRAIN, folders.hazard_file)
    assert json.loads(folders.hazard_file.read_text()) == {"per_hour": 0.5}


def test_older_and_newer_peers_understand_each_other() -> None:
    said = encode(TRAIN)
    assert decode(Directive, said) == TRAIN
    for key in ("hazard_per_hour", "price_per_hour_usd"):
        said.pop(key)
    assert decode(Directive, said) == replace(TRAIN, hazard_per_hour=None, price_per_hour_usd=None)
    assert decode(Directive, {**said, "of_tomorrow": 1}).fence == 1
