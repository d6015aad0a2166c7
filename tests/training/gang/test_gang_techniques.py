"""What several ranks do together: sharded models, agreeing on memory, the checks before a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.servers.free_port import free_port
from tests.training.checkpoint.gathered_shares import gather_shares
from tests.training.gang.torchrun_gang import GangStarter, Machine
from tests.training.loop.one_rank import STACK, train_here
from trainer.training.checkpoint import load_checkpoint
from trainer.training.config import parse_config
from trainer.training.gang import distributed
from trainer.training.gang.distributed import export_network_settings
from trainer.training.gang.rank_environment import read_rank_environment
from trainer.training.training_errors import RendezvousError

SHARDED: dict[str, Any] = {
    **STACK,
    "model_options": {"plain": True},
    "parallel": "fsdp",
    "steps": 24,
    "checkpoint_interval_steps": 8,
    "checkpoint_keep_every": 1,
    "ema_decay": 0.9,
    "clip_norm": 0.5,
    "accumulation": 2,
    "activation_checkpointing": True,
}


@pytest.fixture(scope="module")
def sharded(gangs: GangStarter) -> Machine:
    """Two ranks with a part of the model each, from start to finish."""
    (machine,) = gangs.start("sharded", SHARDED)
    assert machine.wait() == 0, machine.log()
    return machine


@pytest.mark.full
def test_a_sharded_run_resumes_bit_for_bit(gangs: GangStarter, sharded: Machine) -> None:
    (rest,) = gangs.start("sharded-rest", SHARDED, resume=sharded.checkpoint(sharded.saved_from(8)))
    assert rest.wait() == 0, rest.log()
    expected = sharded.losses()
    assert rest.losses() == {step: expected[step] for step in range(sharded.saved_from(8) + 1, 25)}
    _, one = load_checkpoint(sharded.checkpoint(24))
    _, other = load_checkpoint(rest.checkpoint(24))
    assert all(torch.equal(one["weights"][name], each) for name, each in other["weights"].items())


@pytest.mark.full
def test_a_sharded_run_goes_on_with_one_rank_and_then_with_two(
    tmp_path: Path, gangs: GangStarter, sharded: Machine
) -> None:
    middle = sharded.checkpoint(sharded.saved_from(8))
    alone = train_here(tmp_path, SHARDED, resume=middle, stop_after=15)
    (again,) = gangs.start("sharded-again", SHARDED, resume=alone.checkpoint(alone.ending.step))
    assert again.wait() == 0, again.log()
    whole = sharded.losses()
    together = {**alone.losses, **again.losses()}
    assert sorted(together) == list(range(sharded.saved_from(8) + 1, 25))
    for step, loss in together.items():
        assert loss == pytest.approx(whole[step], rel=1e-3)


@pytest.mark.full
def test_a_sharded_run_over_machines_is_written_where_it_lies(
    tmp_path: Path, gangs: GangStarter, sharded: Machine
) -> None:
    """Nothing is gathered: each machine writes the rows that its rank holds."""
    machines = gangs.start(
        "sharded-apart",
        SHARDED,
        machines=2,
        ranks_each=1,
        resume=sharded.checkpoint(sharded.saved_from(8)),
        together=True,
    )
    for machine in machines:
        assert machine.wait() == 0, machine.log()
    expected = sharded.losses()
    assert machines[0].losses() == {
        step: expected[step] for step in range(sharded.saved_from(8) + 1, 25)
    }
    _, one = load_checkpoint(sharded.checkpoint(24))
    _, other = load_checkpoint(gather_shares(machines, 24, tmp_path))
    assert all(torch.equal(one["weights"][name], each) for name, each in other["weights"].items())
    sizes = [
        (machine.checkpoint(24) / f"weights-0000{number}-of-00002.safetensors").stat().st_size
        for number, machine in enumerate(machines, start=1)
    ]
    assert max(sizes) < 1.5 * min(sizes)


@pytest.mark.parametrize(
    ("parallel", "where", "further"),
    [
        ("ddp", "end", {}),
        # A sharded pass that is broken off leaves the others in the middle of an exchange.
        pytest.param("fsdp", "back", {"clip_norm": 0.5}, marks=pytest.mark.full),
        # With a scaled loss: a step that overflows in one rank's part is passed over by all.
        pytest.param(
            "fsdp", "middle", {"precision": "fp16", "optimizer": "sgd"}, marks=pytest.mark.full
        ),
    ],
)
@pytest.mark.full
def test_a_rank_that_is_short_of_memory_makes_all_go_smaller(
    gangs: GangStarter, parallel: str, where: str, further: dict[str, Any]
) -> None:
    config = {**STACK, **further, "parallel": parallel, "checkpoint_interval_steps": 4}
    config |= {"model": "tests.training.models.own_models:Hungry", "on_oom": "adapt"}
    if where == "middle":
        config["step_delay_seconds"] = 0.25  # time to save step 4 before step 8
    options = {"most": 5, "on_rank": 1, "where": where, "plain": parallel == "fsdp"}
    (machine,) = gangs.start(f"hungry-{where}", {**config, "model_options": options})
    assert machine.wait() == 0, machine.log()
    plans = [(line["micro_batch"], line["accumulation"]) for line in machine.lines("memory")]
    assert plans == [(8, 2), (4, 4)]
    assert [machine.ending(rank)["outcome"] for rank in (0, 1)] == ["finished"] * 2
    assert [line["samples"] for line in machine.lines("step")] == [32 * n for n in range(1, 13)]
    losses = machine.losses()
    if where == "back":
        # As if it had been cut so from the start: nothing is left of what was given up.
        fits = {**config, "model_options": {**options, "most": 32}, "accumulation": 4}
        (other,) = gangs.start("fits", fits)
        assert other.wait() == 0, other.log()
        assert other.losses() == losses
    if where == "middle":
        again, second = {**config, "model_options": options}, machine.saved_from(5)
        (rest,) = gangs.start("hungry-rest", again, resume=machine.checkpoint(second))
        assert rest.wait() == 0, rest.log()
        assert rest.losses() == {step: losses[step] for step in range(second + 1, 13)}
        assert second < 12
        assert rest.lines("memory") == []


@pytest.mark.full
def test_a_node_with_another_configuration_is_named(gangs: GangStarter) -> None:
    machines = gangs.start("unlike", STACK, machines=2, ranks_each=1, others={"accumulation": 2})
    for rank, machine in enumerate(machines):
        machine.wait()
        error = machine.ending(rank)["error"]
        assert error["kind"] == "preflight"
        assert error["message"].startswith("node 1 (")
        assert "rank 1) has a configuration with digest" in error["message"]


@pytest.mark.full
def test_a_rank_without_samples_is_refused(gangs: GangStarter) -> None:
    (machine,) = gangs.start("idle-rank", {**STACK, "batch_size": 3, "accumulation": 2})
    machine.wait()
    for rank in (0, 1):
        error = machine.ending(rank)["error"]
        assert error["kind"] == "configuration"
        assert error["message"] == (
            "batch_size: 3 samples cannot be shared by 2 ranks with accumulation 2"
        )


@pytest.mark.full
def test_a_network_that_is_too_slow_is_measured_and_its_slowest_link_named(
    gangs: GangStarter,
) -> None:
    (machine,) = gangs.start("slow", {**STACK, "least_network_gbps": 100_000})
    machine.wait()
    for rank in (0, 1):
        error = machine.ending(rank)["error"]
        assert error["kind"] == "preflight"
        assert "less than least_network_gbps 100000; the slowest link is rank" in error["message"]


@pytest.mark.parametrize(
    ("rank", "sentence"),
    [
        (0, r"rank 1 did not come to the rendezvous at 127\.0\.0\.1:\d+ within 1 s; rank 0 \(node"),
        (1, r"rank 1 \(node 0, .*\) cannot reach the rendezvous at 127\.0\.0\.1:\d+ within 1 s"),
    ],
)
def test_a_rendezvous_that_never_completes_names_who_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, sentence: str
) -> None:
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    variables["MASTER_PORT"] = str(free_port())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    environment = read_rank_environment(variables, tmp_path)
    with pytest.raises(RendezvousError, match=sentence):
        distributed.join(environment, parse_config({**STACK, "rendezvous_timeout_seconds": 1}))


def test_network_options_become_the_variables_of_nccl_and_gloo() -> None:
    config = parse_config(
        {
            **STACK,
            "network_interface": "eth1",
            "infiniband": False,
            "nccl_algorithm": "Ring",
            "nccl_topology_file": "/etc/topology.xml",
            "nccl_debug": "INFO",
        }
    )
    environment = {"NCCL_SOCKET_IFNAME": "lo", "HOME": "/root"}
    export_network_settings(config, environment)
    assert environment == {
        "HOME": "/root",
        "NCCL_SOCKET_IFNAME": "eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_ALGO": "Ring",
        "NCCL_TOPO_FILE": "/etc/topology.xml",
        "NCCL_DEBUG": "INFO",
    }
    untouched = {"NCCL_DEBUG": "WARN"}
    export_network_settings(parse_config(STACK), untouched)
    assert untouched == {"NCCL_DEBUG": "WARN"}


@pytest.mark.parametrize(
    ("options", "further", "bound"),
    [
        # All its gradients come last, and are much to send for what there is to compute.
        pytest.param({"megabytes": 48}, {}, "all_reduce", marks=pytest.mark.full),
        # Loopback is no slow network: a slow rank keeps the other waiting as one would.
        pytest.param(
            {"seconds": 0.06, "on_rank": 1},
            {"parallel": "fsdp"},
            "all_reduce",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"seconds": 0.06, "on_rank": 1},
            {"on_oom": "adapt"},
            "all_reduce",
            marks=pytest.mark.full,
        ),
        pytest.param({"seconds": 0.06}, {}, "compute", marks=pytest.mark.full),
    ],
)
def test_what_the_ranks_wait_for_each_other_is_measured(
    gangs: GangStarter, options: dict[str, Any], further: dict[str, Any], bound: str
) -> None:
    config = {**STACK, **further, "model": "tests.training.models.own_models:Slow", "steps": 52}
    name = "-".join(["waits", *options, *further])
    (machine,) = gangs.start(name, {**config, "optimizer": "sgd", "model_options": options})
    assert machine.wait() == 0, machine.log()
    (verdict,) = machine.lines("verdict")
    assert verdict["bound"] == bound, verdict
    (*_, told) = machine.lines("goodput")
    assert sum(told["buckets"].values()) == pytest.approx(told["total_seconds"])
    steps = told["buckets"]["useful_step"]
    assert told["all_reduce_seconds"] == pytest.approx(verdict["share_all_reduce"] * steps, rel=0.3)
