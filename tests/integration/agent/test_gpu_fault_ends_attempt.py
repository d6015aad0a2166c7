"""A GPU fault from the words of the kernel to the end of the attempt, through agent and api."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from app.storage.schema import tables
from tests.support.agent.agent_world import World
from tests.support.agent.supervised_machine import Machine
from tests.support.api.agent_api import SpeakingAgent, make_gang, make_runtime, served
from tests.support.boot.booted_machine import fake_command
from tests.support.servers.table_rows import fetch
from trainer.agent.gpu.gpu_faults import GpuFaultWatch, SmiAnswer, watch_gpus
from trainer.agent.rules.observations import Observation
from trainer.protocol.agent_report import FactKind

FALLEN = (
    "NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
HEALTHY = "0, GPU-0b11d014-1685-04bd-26ed-5fc0bc1c44ae, 00000000:2B:00.0, 0\n"
LOST = (
    "Unable to determine the device handle for GPU 0000:2B:00.0: GPU is lost. "
    "Reboot the system to recover this GPU"
)


def _observed(*kernel_lines: str) -> list[Observation]:
    """What one look of the watch tells the supervisor."""
    seen: list[Observation] = []
    stopping = threading.Event()
    stopping.set()
    watch = GpuFaultWatch(1, lambda: kernel_lines, lambda *_: SmiAnswer(HEALTHY))
    watch_gpus(watch, seen.append, stopping)
    return seen


def _rows(engine: Engine, table: Any, job_id: Any) -> list[Any]:
    return fetch(engine, select(table).where(table.c.job_id == job_id))


def test_a_fault_ends_the_attempt_replaces_the_machine_and_costs_no_retry(
    engine: Engine, tmp_path: Path
):
    machine = Machine(bundled=False).running()
    machine.see(*_observed("nvidia 0000:2b:00.0: enabling device (0000 -> 0002)", FALLEN))
    told = next(one for one in machine.report().facts if one.kind is FactKind.GPU_FAULT)
    runtime = make_runtime(engine, tmp_path / "store")
    gang = make_gang(engine, runtime, retries=0)
    with served(engine, runtime) as api:
        agent = SpeakingAgent(api, gang)
        assert agent.register().status_code == 200
        prepared = agent.fact(FactKind.PREPARED, parent=None, master_port=29_501, final=False)
        agent.report(phase="idle", fence=1, facts=[prepared])
        agent.report(phase="train", fence=1, facts=[agent.fact(FactKind.TRAINER_STARTED)])
        fault = agent.fact(FactKind.GPU_FAULT, **told.data)
        assert agent.report(phase="train", fence=1, facts=[fault]).status_code == 200
    first = min(_rows(engine, tables.attempts, gang.job_id), key=lambda one: one.fence)
    assert (first.state.value, first.end_reason.value) == ("failed", "gpu_fault"), first
    assert "Xid 79" in first.end_message
    with engine.connect() as connection:
        job = connection.execute(select(tables.jobs).where(tables.jobs.c.id == gang.job_id)).one()
    # Not one retry was allowed, and none was needed.
    assert job.state.value not in ("failed", "cancelled"), job
    [faulty] = [i for i in _rows(engine, tables.instances, gang.job_id) if i.registered_at]
    assert faulty.state.value == "terminating", faulty


def test_the_agent_of_a_machine_with_gpus_watches_them(world: World, tmp_path: Path):
    fake_command(tmp_path, "nvidia-smi", f"echo '{LOST}'")
    plane = world.open()
    world.start(
        LOWTIDE_GPU_COUNT="1", PATH=f"{tmp_path / 'commands'}:/usr/sbin:/usr/bin:/sbin:/bin"
    )
    assert "is lost" in plane.wait_for(FactKind.GPU_FAULT).data["message"]
