"""The hooks in a user's own script: drains, saves of all ranks and failures, agreed on by all.

Real ranks over gloo, alone, with gloo as their default group, and with one that refuses the CPU's
tensors as NCCL does. Not here: whole agents
(tests/integration/checkpoints/test_agent_script_saves.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.saving_gang import gang_in
from tests.training.hooks.script_ranks import Ended, ScriptGangs
from trainer.agent.folders.notice_file import write_deadline
from trainer.agent.rules.observations import CheckpointPublished
from trainer.hooks import Hooks

CUDA_ONLY = "cuda:gloo"
"""A default group that knows no tensors but a GPU's, as NCCL's: any other one is an error."""
# In every run the stricter of both groups, and more than one machine.
GROUPS = [pytest.param("gloo", marks=pytest.mark.full), CUDA_ONLY]
ONE_OR_TWO = [pytest.param(1, marks=pytest.mark.full), 2]


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptGangs]:
    made = ScriptGangs(tmp_path_factory.mktemp("script-gangs"))
    yield made
    made.close()


def values(ended: list[Ended]) -> list[object]:
    assert [(each.error, each.message, each.status) for each in ended] == [("", "", 0)] * len(ended)
    return [each.value for each in ended]


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*"))


@pytest.mark.parametrize("group", GROUPS)
def test_all_ranks_drain_at_the_same_call_soon_after_one_is_asked(gangs: ScriptGangs, group: str):
    _, ended = gangs.run("votes", ranks=3, group=group)
    first, *others = values(ended)
    assert others == [first, first]
    assert isinstance(first, list)
    assert first.index(True) in (4, 5)
    assert all(first[first.index(True) :])


def test_a_rank_alone_drains_at_once(gangs: ScriptGangs):
    _, ended = gangs.run("votes", ranks=1, group=None, RANK="1", LOWTIDE_NODE_RANK="0")
    assert values(ended) == [[False] * 4 + [True] * 8]


def test_calls_that_are_far_apart_have_the_answer_at_once(gangs: ScriptGangs):
    _, ended = gangs.run("rare_votes", ranks=2, group=CUDA_ONLY)
    assert values(ended) == [[False, True, True]] * 2


def test_the_vote_is_the_processors_whatever_the_scripts_default_device_is(gangs: ScriptGangs):
    _, ended = gangs.run("votes_by_default_elsewhere")
    assert values(ended) == [[False] * 3] * 2


def test_a_shared_step_is_saved_once_and_once_more_as_the_final_one(gangs: ScriptGangs):
    """Its keys in the store hold the first one's files: another one could not be sent."""
    _, ended = gangs.run("save_twice", machines=2)
    first, second = values(ended)
    assert first == second
    assert isinstance(first, list)
    periodic, again, final = first
    assert periodic == again != final
    assert [each.split()[1] for each in first] == ["False", "False", "True"]


@pytest.mark.parametrize("group", GROUPS)
def test_what_all_ranks_of_two_machines_write_becomes_two_shares(gangs: ScriptGangs, group: str):
    root, ended = gangs.run("save_each_rank", ranks=4, machines=2, group=group)
    kept = [f"step-{step:012d}" for step in (3, 4, 5)]
    assert values(ended) == [kept] * 4
    shares = []
    for machine, name in enumerate(["manifest.json", "manifest-00002-of-00002.json"]):
        newest = root / f"machine-{machine}" / kept[-1]
        ranks = [f"of-rank-{2 * machine}", f"of-rank-{2 * machine + 1}"]
        assert sorted(path.name for path in newest.iterdir()) == [name, *ranks]
        document = json.loads((newest / name).read_text())
        assert document["final"] is True
        shares.append(document["share"])
    assert [share["machine"] for share in shares] == [0, 1]
    assert {share["machines"] for share in shares} == {2}
    assert shares[0]["save"] == shares[1]["save"]


@pytest.mark.parametrize(
    ("scenario", "ranks", "group"),
    [
        *(("save_each_rank", 2, "gloo"), ("save_each_rank", 1, None)),
        *(("save_on_first", 2, CUDA_ONLY), ("save_on_first", 1, None)),
    ],
)
def test_on_one_machine_a_folder_is_the_whole(
    gangs: ScriptGangs, scenario: str, ranks: int, group: str | None
):
    root, ended = gangs.run(scenario, ranks=ranks, group=group)
    assert values(ended) == [[f"step-{step:012d}" for step in (3, 4, 5)]] * ranks
    newest = root / "machine-0" / "step-000000000005"
    writers = range(ranks if scenario == "save_each_rank" else 1)
    expected = {"manifest.json", *(f"of-rank-{rank}" for rank in writers)}
    assert {path.name for path in newest.iterdir()} == expected
    assert "share" not in json.loads((newest / "manifest.json").read_text())


@pytest.mark.parametrize("machines", ONE_OR_TWO)
def test_a_write_that_fails_on_one_rank_fails_on_all_and_all_go_on(
    gangs: ScriptGangs, machines: int
):
    _, ended = gangs.run("save_with_failures", machines=machines)
    told = values(ended)
    sentence = "the checkpoint of step {} was not saved: rank {}: OSError: [Errno 28] No space left"
    for rank, each in enumerate(told):
        assert isinstance(each, dict)
        for step, culprit in (("2", 0), ("3", 1)):
            message, knows_cause = each["problems"].pop(step)
            assert message.startswith(sentence.format(step, culprit))
            assert knows_cause is (rank == culprit)
        assert each["problems"] == {}
        expected = ["step-000000000001", "step-000000000004"]
        assert each["folders"] == expected


def test_a_disk_that_is_full_on_one_machine_costs_that_checkpoint(
    gangs: ScriptGangs, tmp_path: Path
):
    small = tmp_path / "machine-1"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    subprocess.run(mount, check=True, timeout=30)
    try:
        _, ended = gangs.run("save_on_small_disk", machines=2, root=tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True, timeout=30)
    kept = ["step-000000000001", "step-000000000004"]
    assert values(ended) == [["2 failed", "3 failed", *kept]] * 2


def test_a_save_that_fails_last_on_machine_0_leaves_what_was_there(gangs: ScriptGangs):
    _, ended = gangs.run("same_step_fails", machines=2)
    assert values(ended) == [
        "step-000000000001 manifest.json of-rank-0",
        "step-000000000001 manifest-00002-of-00002.json of-rank-1",
    ]


def test_a_rank_that_exits_in_a_write_tells_the_others(gangs: ScriptGangs):
    _, ended = gangs.run("exits_in_write")
    told = values(ended)
    assert told == ["the checkpoint of step 1 was not saved: rank 1: SystemExit: 3", "exits"]


def test_a_file_that_all_machines_have_alike_is_kept_once(gangs: ScriptGangs):
    _, ended = gangs.run("save_same_name", machines=2)
    assert values(ended) == [
        ["alike", "manifest.json", "of-rank-0"],
        ["manifest-00002-of-00002.json", "of-rank-1"],
    ]


def test_files_of_one_name_that_differ_are_refused(gangs: ScriptGangs):
    _, ended = gangs.run("save_different", machines=2)
    assert {each.error for each in ended} == {"SaveRefused"}
    assert ended[0].message == ended[1].message
    assert "machines 0 and 1 have written model with different content" in ended[0].message


def test_where_only_the_first_machine_has_files_its_folder_is_the_whole(gangs: ScriptGangs):
    _, ended = gangs.run("save_first_only", machines=2)
    assert values(ended) == [["last.ckpt", "manifest.json"], []]


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"LOWTIDE_CHECKPOINT_SHARES": ""}, "the agent of some machine cannot publish its part"),
        ({"LOWTIDE_NUM_NODES": "3"}, "has ranks of 2 of the job's 3 machines"),
        ({"LOWTIDE_NUM_NODES": "1", "LOWTIDE_NODE_RANK": "0"}, "is not the folder of rank 0"),
    ],
)
def test_what_cannot_become_one_checkpoint_is_refused_before_it_is_written(
    gangs: ScriptGangs, variables: dict[str, Any], sentence: str
):
    root, ended = gangs.run("save_each_rank", machines=2, **variables)
    assert {each.error for each in ended} == {"SaveRefused"}
    assert all(sentence in each.message for each in ended)
    assert names(root) == []


def test_several_machines_that_torch_does_not_connect_are_refused(gangs: ScriptGangs):
    _, ended = gangs.run("save_each_rank", machines=2, group=None)
    assert {each.error for each in ended} == {"SaveRefused"}
    assert "only torch.distributed can bring them together" in ended[0].message


@pytest.mark.parametrize("machines", ONE_OR_TWO)
def test_what_a_killed_save_left_is_removed_by_the_next_process(gangs: ScriptGangs, machines: int):
    root, ended = gangs.run("killed_in_write", machines=machines)
    assert {each.status for each in ended} == {-9}
    assert list(root.glob("machine-*/*.tmp*"))
    _, ended = gangs.run("resumed", machines=machines, root=root)
    assert values(ended) == [[""]] * 2
    assert not list(root.glob("machine-*/*.tmp*"))


def test_a_distributed_checkpoint_of_two_machines_loads_on_both(gangs: ScriptGangs, tmp_path: Path):
    root, ended = gangs.run("save_distributed", machines=2)
    assert values(ended) == [
        [".metadata", "__0_0.distcp", "manifest.json"],
        ["__1_0.distcp", "manifest-00002-of-00002.json"],
    ]
    for machine in (0, 1):
        (root / f"machine-{machine}").rename(tmp_path / f"saved-{machine}")
    with gang_in(tmp_path) as agents:
        mine, _ = (agents.see(machine) for machine in (0, 1))
        assert mine.final
        agents.publish(mine)
        assert isinstance(agents.told(), CheckpointPublished)
        resume = agents.restore().folder
    _, ended = gangs.run(
        "load_distributed", machines=2, LOWTIDE_FENCE="2", LOWTIDE_RESUME_DIR=str(resume)
    )
    assert values(ended) == [[1.0] * 4 + [41.0], [2.0] * 4 + [41.0]]


def test_a_save_under_way_is_left_alone_by_another_process(gangs: ScriptGangs):
    _, ended = gangs.run("resumed_beside_save", ranks=1, group=None)
    assert values(ended) == [["step-000000000001"]]


def test_the_device_is_the_gpu_of_this_rank_and_the_current_one(gangs: ScriptGangs):
    _, ended = gangs.run("own_device")
    alone = ["cuda:0", "current 0"]
    assert values(ended) == [[alone, alone], [["cuda:1", "current 1"], alone]]


@pytest.mark.parametrize(("ending", "status"), [("finish", 0), ("leave_drained", 75)])
def test_nothing_after_the_end_of_a_run_is_run(ending: str, status: int, tmp_path: Path):
    """As docs/your-own-script.md says: exports and uploads come before it."""
    (tmp_path / "script.py").write_text(
        "import atexit\nfrom trainer.hooks import Hooks\n"
        "atexit.register(print, 'exit handler')\nhooks = Hooks()\nprint('before')\n"
        f"try:\n    hooks.{ending}(3)\n    print('after')\nfinally:\n    print('finally')\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        env={"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("before\n", "", status)


def test_a_script_that_is_asked_to_stop_knows_how_long_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    notice = tmp_path / "notice.json"
    monkeypatch.setenv("LOWTIDE_NOTICE_FILE", str(notice))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        hooks = Hooks()
        write_deadline(notice, time.clock_gettime(time.CLOCK_BOOTTIME) + 60)
        assert hooks.seconds_left() is None, "nobody has asked it to stop"
        os.kill(os.getpid(), signal.SIGTERM)
        left = hooks.seconds_left()
        assert left is not None
        assert 0 < left <= 60
        write_deadline(notice, None)
        assert hooks.seconds_left() is None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
