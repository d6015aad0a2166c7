"""Ranks of a user's own script with the hooks: forked from one process, which has torch already.

``python -m tests.training.hooks.script_ranks`` reads one JSON object a line, forks the ranks of a
gang, has each carry out a scenario of `script_scenarios`, and answers with what each gave.
``ScriptGangs`` is its other end. Not here: what is expected of them (test_script_hooks.py).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers.free_port import free_port

REPOSITORY = Path(__file__).parents[3]
RANK_SECONDS = 120


@dataclass
class Ended:
    """One rank: what its scenario returned, the type and text of what it raised, how it ended."""

    value: Any = None
    error: str = ""
    message: str = ""
    status: int = 0


class ScriptGangs:
    """Starts gangs below one folder; machine k's checkpoints are in ``<name>/machine-k``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.training.hooks.script_ranks"],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._count = 0

    def run(
        self,
        scenario: str,
        *,
        ranks: int = 2,
        machines: int = 1,
        group: str | None = "gloo",
        root: Path | None = None,
        module: str = "script_scenarios",
        **variables: str,
    ) -> tuple[Path, list[Ended]]:
        """(the gang's folder, how each rank ended). group: None: without torch.distributed."""
        self._count += 1
        root = root or self.folder / f"{scenario}-{self._count}"
        asked = {"scenario": scenario, "ranks": ranks, "machines": machines, "group": group}
        asked |= {
            "module": f"tests.training.hooks.{module}",
            "root": str(root),
            "port": free_port(),
            "variables": variables,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return root, [Ended(**each) for each in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(RANK_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()


def serve() -> None:
    import torch.distributed.checkpoint
    import torch.distributed.tensor  # noqa: F401  # the slow part, once

    for line in sys.stdin:
        asked = json.loads(line)
        Path(asked["root"]).mkdir(exist_ok=True)
        pids = []
        for rank in range(asked["ranks"]):
            pid = os.fork()
            if pid == 0:
                _rank(asked, rank)
            pids.append(pid)
        told = []
        for rank, pid in enumerate(pids):
            _, status = os.waitpid(pid, 0)
            path = Path(asked["root"]) / f"rank-{rank}.json"
            said = json.loads(path.read_text()) if path.exists() else {}
            path.unlink(missing_ok=True)
            told.append({**said, "status": os.waitstatus_to_exitcode(status)})
        print(json.dumps(told), flush=True)


def _rank(asked: Mapping[str, Any], rank: int) -> None:
    """Does not return. A rank that hangs is ended by its alarm."""
    signal.alarm(RANK_SECONDS)
    os.dup2(2, 1)  # standard output is the answer's
    each = asked["ranks"] // asked["machines"]
    machine = rank // each
    root = Path(asked["root"])
    (root / f"machine-{machine}").mkdir(exist_ok=True)
    os.environ.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % each),
            "WORLD_SIZE": str(asked["ranks"]),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(asked["port"]),
            "LOWTIDE_CHECKPOINT_DIR": str(root / f"machine-{machine}"),
            "LOWTIDE_NODE_RANK": str(machine),
            "LOWTIDE_NUM_NODES": str(asked["machines"]),
            "LOWTIDE_CHECKPOINT_SHARES": "1" if asked["machines"] > 1 else "",
            **asked["variables"],
        }
    )
    said: dict[str, Any] = {}
    try:
        said["value"] = _carry_out(asked, root / f"rank-{rank}.json")
    except Exception as error:
        traceback.print_exc()
        said.update(error=type(error).__name__, message=str(error))
    (root / f"rank-{rank}.json").write_text(json.dumps(said))
    os._exit(0)


def _carry_out(asked: Mapping[str, Any], answer: Path) -> Any:
    import torch.distributed as dist

    from trainer.hooks import Hooks

    group = asked["group"]
    if group is not None:
        dist.init_process_group(group)
    value = getattr(importlib.import_module(asked["module"]), asked["scenario"])(Hooks(), answer)
    if group is not None:
        dist.monitored_barrier(dist.new_group(backend="gloo"))
    return value


if __name__ == "__main__":
    serve()
