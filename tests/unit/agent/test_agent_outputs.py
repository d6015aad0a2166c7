"""When a machine saves the outputs of its job: after the work is safe, before the end is told.

Not here: the saving itself (tests/integration/agent/test_agent_data.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agent.supervised_machine import Machine, committed, ended, of, saved
from trainer.agent.notices import Notice, NoticeKind
from trainer.agent.rules import actions as act
from trainer.agent.rules import observations as seen
from trainer.agent.rules.agent_state import Stage, Timings
from trainer.protocol.agent_report import FactKind, TrainerOutcome
from trainer.protocol.directive import DirectiveKind, Peer

FINISHED = ended(TrainerOutcome.FINISHED, exit_code=0, step=9)
SAVED = seen.OutputsSaved(1, 2, 30, ("s3://acme/results/job",))
PEERS = (Peer(0, "a", 1, 2), Peer(1, "b", 1, 2))


def finished(**more: Any) -> Machine:
    """A trainer that finished, with its final checkpoint on its way to the store."""
    machine = Machine(outputs={"out": "s3://acme/results"}, **more).running()
    machine.see(seen.CheckpointReady(1, saved(9, final=True)))
    assert not of(act.SaveOutputs, machine.see(seen.TrainerExited(1, FINISHED)))
    return machine


def saving(**more: Any) -> Machine:
    machine = finished(**more)
    assert of(act.SaveOutputs, machine.see(committed(1, saved(9, final=True))))
    return machine


def test_outputs_are_saved_between_the_completion_and_the_end() -> None:
    machine = saving()
    assert machine.kinds_that_matter()[-1] is FactKind.COMPLETION
    assert machine.after(Timings().closing + 1) == []
    machine.see(SAVED)
    assert machine.kinds_that_matter()[-3:] == [
        FactKind.COMPLETION, FactKind.OUTPUTS, FactKind.TRAINER_ENDED,
    ]  # fmt: skip
    assert machine.fact(FactKind.OUTPUTS) == {
        "files": 2, "size_bytes": 30, "addresses": ["s3://acme/results/job"],
    }  # fmt: skip
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"
    machine.see(seen.OutputsFailed(1, "a late word"))
    assert machine.kinds().count(FactKind.OUTPUTS) == 1


def test_outputs_that_fail_are_told_and_the_work_is_done() -> None:
    machine = saving()
    machine.see(seen.OutputsFailed(1, "they may not be written"))
    assert machine.fact(FactKind.OUTPUTS) == {"error": "they may not be written"}
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"


@pytest.mark.parametrize("outcome", [TrainerOutcome.FAILED, TrainerOutcome.DRAINED])
def test_only_finished_work_has_outputs(outcome: TrainerOutcome) -> None:
    machine = Machine(outputs={"out": "s3://acme/results"}).running()
    machine.see(seen.TrainerExited(1, ended(outcome, exit_code=3)))
    assert machine.stage() is Stage.ENDED
    assert not of(act.SaveOutputs, machine.asked)
    without = Machine().running()
    without.see(seen.CheckpointReady(1, saved(9, final=True)))
    without.see(seen.TrainerExited(1, FINISHED), committed(1, saved(9, final=True)))
    assert not of(act.SaveOutputs, without.asked)


def test_a_notice_leaves_the_time_that_is_left() -> None:
    machine = saving()
    machine.see(seen.NoticeSeen(Notice(NoticeKind.INTERRUPTION, "terminate", 60.0, "s", "n")))
    machine.after(59.0)
    assert machine.stage() is Stage.CLOSING
    machine.after(1.0)
    assert machine.stage() is Stage.ENDED
    assert "could not be saved in time" in str(machine.fact(FactKind.OUTPUTS)["error"])
    assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"


def test_a_machine_that_is_given_back_says_that_they_are_cut() -> None:
    machine = saving()
    machine.told(DirectiveKind.LEAVE, fence=None)
    assert machine.kinds_that_matter()[-3:] == [
        FactKind.OUTPUTS, FactKind.TRAINER_ENDED, FactKind.LEAVING,
    ]  # fmt: skip
    late = saving()
    late.after(Timings().outputs)
    assert late.fact(FactKind.OUTPUTS).keys() == {"error"}


def test_a_machine_of_another_rank_saves_its_own() -> None:
    machine = Machine(outputs={"out": "s3://acme/results"}).running(node_rank=1, peers=PEERS)
    assert of(act.SaveOutputs, machine.see(seen.TrainerExited(1, FINISHED)))
    machine.see(SAVED)
    assert machine.kinds_that_matter()[-2:] == [FactKind.OUTPUTS, FactKind.TRAINER_ENDED]
