"""When a machine of a gang that saves together publishes, waits, gives up and says that it ended.

Not here: how a share gets into the store (tests/integration/checkpoints/test_agent_shares.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agent.supervised_machine import Machine, committed, ended, of
from trainer.agent.attempt.trainer_command import CommandContext, trainer_environment
from trainer.agent.machine.machine_folders import AttemptFolders
from trainer.agent.notices import Notice, NoticeKind
from trainer.agent.rules import actions as act
from trainer.agent.rules import observations as seen
from trainer.agent.rules.agent_state import LocalCheckpoint, Stage, TrainerEnd
from trainer.protocol.agent_report import FactKind, TrainerOutcome
from trainer.protocol.checkpoint_manifest import CheckpointRef
from trainer.protocol.directive import Directive, DirectiveKind, DrainCause, Peer
from trainer.protocol.run_config import RunConfig

DRAINED = ended(TrainerOutcome.DRAINED, exit_code=75, step=9)
FAILED = ended(TrainerOutcome.FAILED, exit_code=1, step=9)
FINISHED = ended(TrainerOutcome.FINISHED, exit_code=0, step=9)


def share(step: int, save: int, megabytes: int = 0, final: bool = False) -> LocalCheckpoint:
    return LocalCheckpoint(step, final, f"folder-{save}", megabytes * 10**6, save=save)


def ready(checkpoint: LocalCheckpoint) -> seen.Observation:
    return seen.CheckpointReady(1, checkpoint)


def asked_for(asked: list[act.Action]) -> list[int]:
    return [action.checkpoint.save for action in of(act.PublishCheckpoint, asked)]


def notice(seconds: float) -> seen.Observation:
    return seen.NoticeSeen(Notice(NoticeKind.INTERRUPTION, "terminate", seconds, "ec2", "n"))


def test_another_machine_says_that_it_drained_once_its_share_is_up() -> None:
    machine = Machine().running(node_rank=1)
    assert not asked_for(machine.see(ready(share(5, 1))))  # when machine 0 asks for it
    machine.see(seen.ShareSent(1, share(5, 1)))
    machine.see(notice(60.0))
    assert asked_for(machine.see(ready(share(9, 2)))) == [2]  # nothing is waited for in a drain
    machine.see(seen.TrainerExited(1, DRAINED))
    assert machine.stage() is Stage.CLOSING
    machine.see(seen.ShareSent(1, share(9, 2)))
    assert machine.stage() is Stage.ENDED
    assert machine.kinds_that_matter()[-1] is FactKind.TRAINER_ENDED
    assert FactKind.CHECKPOINT not in machine.kinds()
    told = machine.fact(FactKind.TRAINER_ENDED)
    assert told["outcome"] == "drained"
    assert "unsent_step" not in told


def test_another_machine_whose_share_does_not_get_away_says_that_too() -> None:
    machine = Machine().running(node_rank=1)
    machine.see(notice(30.0))
    machine.see(ready(share(9, 1)), seen.TrainerExited(1, DRAINED))
    machine.see(seen.PublicationFailed(1, share(9, 1), "the store is away"))
    assert asked_for(machine.after(2.0)) == [1]
    machine.after(28.0)
    assert machine.stage() is Stage.ENDED
    assert machine.fact(FactKind.TRAINER_ENDED)["unsent_step"] == 9


def test_a_finished_gang_ends_on_every_machine() -> None:
    for rank in (0, 1):
        machine = Machine().running(node_rank=rank)
        final = share(9, 3, final=True)
        machine.see(ready(final), seen.TrainerExited(1, FINISHED))
        assert machine.stage() is Stage.CLOSING
        machine.see(committed(1, final) if rank == 0 else seen.ShareSent(1, final))
        assert machine.stage() is Stage.ENDED
        assert machine.fact(FactKind.TRAINER_ENDED)["outcome"] == "finished"
        assert (FactKind.COMPLETION in machine.kinds()) == (rank == 0)


def test_what_can_never_be_whole_is_given_up_at_once() -> None:
    machine = Machine().running()
    machine.see(ready(share(9, 2)), seen.TrainerExited(1, FAILED))
    machine.see(seen.PublicationFailed(1, share(9, 2), "node 1 has none", hopeless=True))
    assert machine.stage() is Stage.ENDED
    assert machine.fact(FactKind.TRAINER_ENDED)["unsent_step"] == 9


@pytest.mark.parametrize(("end", "tries_again"), [(FAILED, False), (FINISHED, True)])
def test_a_silent_machine_holds_up_only_the_end_of_a_run(
    end: TrainerEnd, tries_again: bool
) -> None:
    """The survivors of a gang that lost a machine are wanted for the next attempt."""
    machine = Machine().running()
    last = share(9, 2, final=tries_again)
    machine.see(ready(last), seen.TrainerExited(1, end))
    machine.see(seen.PublicationFailed(1, last, "nothing was heard", unheard=True))
    assert (machine.stage() is Stage.CLOSING) == tries_again
    assert asked_for(machine.after(2.0)) == ([2] if tries_again else [])


def test_while_training_what_was_given_up_makes_room_for_the_next() -> None:
    machine = Machine().running()
    assert asked_for(machine.see(ready(share(5, 1)))) == [1]
    machine.see(ready(share(7, 2)))
    asked = machine.see(seen.PublicationFailed(1, share(5, 1), "node 1 has none", hopeless=True))
    assert asked_for(asked) == [2]
    machine.see(committed(1, share(7, 2)), notice(30.0))
    machine.see(seen.TrainerExited(1, DRAINED))
    assert "unsent_step" not in machine.fact(FactKind.TRAINER_ENDED)


def test_after_a_crash_the_whole_one_is_not_left_for_one_that_may_lack_a_share() -> None:
    machine = Machine().running()
    machine.see(ready(share(5, 1)))
    machine.see(ready(share(9, 2)))
    assert not asked_for(machine.see(seen.TrainerExited(1, FAILED)))
    assert asked_for(machine.see(committed(1, share(5, 1)))) == [2]
    drained = Machine().running()
    drained.see(ready(share(5, 1)), notice(60.0))
    assert asked_for(drained.see(ready(share(9, 2)))) == [2]  # every machine has said it is safe


def test_the_same_step_saved_again_is_published_again() -> None:
    """One machine could not write its share: all save once more."""
    machine = Machine().running()
    machine.see(ready(share(9, 1)), notice(60.0))
    assert asked_for(machine.see(ready(share(9, 2)))) == [2]


def test_the_time_that_counts_is_the_taken_machines() -> None:
    """Machine 0 stays: but what must be up in time is the other one's share."""
    for cause, left_out in ((DrainCause.INTERRUPTION, True), (DrainCause.YIELD, False)):
        machine = Machine().running()
        machine.see(ready(share(5, 1, 100)))
        machine.now += 10.0
        ref, sent = CheckpointRef(1, 5, "d"), 100 * 10**6
        whole = seen.CheckpointPublished(1, share(5, 1, 100), ref, 2 * sent, False, {}, sent)
        machine.see(whole)  # this machine's 100 MB in 10 s
        machine.told(DirectiveKind.DRAIN, drain_seconds=12.0, drain_cause=cause)
        last = LocalCheckpoint(9, False, "folder-2", 150 * 10**6, 50 * 10**6, 2)
        (order,) = of(act.PublishCheckpoint, machine.see(ready(last)))
        assert order.leave_out == left_out


@pytest.mark.parametrize(("run", "trainer"), [("python train.py", None), (None, {"model": "mlp"})])
@pytest.mark.parametrize("machines", [1, 2])
def test_a_command_and_the_bundled_trainer_may_save_shares_on_several_machines(
    tmp_path: Path, run: str | None, trainer: dict[str, str] | None, machines: int
) -> None:
    peers = tuple(Peer(rank, "127.0.0.1", 1, 2) for rank in range(machines))
    order = Directive(DirectiveKind.TRAIN, 1, fence=1, node_rank=0, peers=peers)
    config = RunConfig("j", "j", machines, 1, "file:///c", 3, 600.0, trainer=trainer, run=run)
    context = CommandContext("i-1", "127.0.0.1", "", {"LOWTIDE_CHECKPOINT_SHARES": "1"})
    told = trainer_environment(context, config, order, AttemptFolders(tmp_path), None)
    assert ("LOWTIDE_CHECKPOINT_SHARES" in told) is (machines > 1)
