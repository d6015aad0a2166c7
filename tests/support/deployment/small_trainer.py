"""A trainer of a few milliseconds that keeps the trainer contract, for jobs under test.

It runs on a machine, alone or as a gang whose ranks meet over TCP at every step, as DDP does: a
rank that dies takes the others down. Its state is a chain of hashes over the steps, so that the
last one tells whether any step was left out, done twice or done from the wrong state.

Environment beyond the contract's: STEPS, STEP_SECONDS, SAVE_EVERY, SAVE_SECONDS (how long a save
takes), FAIL_AT with EXIT_CODE, HANG_AT, ENDS_WITH (a file: once it is there, the step under way is
the last one).
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

DRAINED = 75
GO_ON, STOP, LAST = b"0", b"1", b"2"
_MEET_SECONDS = 30.0


def chain(value: str, step: int) -> str:
    """The state after one more step."""
    return hashlib.sha256(f"{value} {step}".encode()).hexdigest()


def expected(steps: int) -> str:
    """The state after so many steps without any fault."""
    value = ""
    for step in range(1, steps + 1):
        value = chain(value, step)
    return value


class Gang:
    """All ranks agree after every step how to go on: rank 0 hears all and answers."""

    def __init__(self) -> None:
        self.rank = int(os.environ["LOWTIDE_NODE_RANK"])
        self.size = int(os.environ["LOWTIDE_NUM_NODES"])
        self.links: list[socket.socket] = []
        if self.size == 1:
            return
        address = (os.environ["LOWTIDE_MASTER_ADDR"], int(os.environ["LOWTIDE_MASTER_PORT"]))
        if self.rank == 0:
            with socket.create_server(address, reuse_port=False) as server:
                server.settimeout(_MEET_SECONDS)
                self.links = [server.accept()[0] for _ in range(self.size - 1)]
        else:
            self.links = [_connect(address)]
        for link in self.links:
            link.settimeout(_MEET_SECONDS)

    def agree(self, mine: bytes) -> bytes:
        """STOP where any rank says it, else what rank 0 says. Raises OSError when one is gone."""
        if self.rank == 0:
            said = STOP if STOP in [mine, *map(_receive, self.links)] else mine
            for link in self.links:
                link.sendall(said)
            return said
        self.links[0].sendall(mine)
        return _receive(self.links[0])


def _connect(address: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + _MEET_SECONDS
    while True:
        try:
            return socket.create_connection(address, timeout=_MEET_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _receive(link: socket.socket) -> bytes:
    byte = link.recv(1)
    if not byte:
        raise ConnectionError("a rank is gone")
    return byte


def _save(step: int, value: str, *, final: bool) -> None:
    folder = Path(os.environ["LOWTIDE_CHECKPOINT_DIR"])
    target = folder / f"step-{step:012d}"
    temporary = folder / f"{target.name}.tmp-{os.getpid()}"
    temporary.mkdir()
    (temporary / "state.json").write_text(json.dumps({"step": step, "value": value}))
    time.sleep(float(os.environ.get("SAVE_SECONDS", "0")))
    (temporary / "manifest.json").write_text(json.dumps({"final": final, "metrics": {}}))
    if not target.exists():
        temporary.rename(target)


def _load() -> tuple[int, str]:
    folder = os.environ.get("LOWTIDE_RESUME_DIR")
    if folder is None:
        return 0, ""
    state = json.loads((Path(folder) / "state.json").read_text())
    return state["step"], state["value"]


def _wish(stop: bool) -> bytes:
    """What this rank would do after the step."""
    ends_with = os.environ.get("ENDS_WITH")
    if stop:
        return STOP
    return LAST if ends_with and Path(ends_with).exists() else GO_ON


def _tell(step: int, total: int) -> None:
    line = {"type": "step", "step": step, "total_steps": total, "loss": 1.0 / step}
    with Path(os.environ["LOWTIDE_PROGRESS_FILE"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def main() -> int:
    """Train; exit status as the contract has it."""
    faulthandler.register(signal.SIGUSR1, file=sys.stdout)
    wanted: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: wanted.append(1))
    total = int(os.environ["STEPS"])
    every = int(os.environ.get("SAVE_EVERY", "10"))
    hang_at, fail_at = int(os.environ.get("HANG_AT", "0")), int(os.environ.get("FAIL_AT", "0"))
    step, value = _load()
    gang = Gang()
    saves, saved = gang.rank == 0, step
    print(f"starts after step {step}", flush=True)
    while step < total:
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.02")))
        step += 1
        value = chain(value, step)
        if gang.rank == 0:
            _tell(step, total)
        agreed = gang.agree(_wish(bool(wanted)))
        stop, total = agreed == STOP, step if agreed == LAST else total
        while step == hang_at:
            time.sleep(1)
        if step == fail_at:
            print("fails as it was told to", flush=True)
            return int(os.environ.get("EXIT_CODE", "1"))
        if saves and (stop or step % every == 0) and step < total:
            _save(step, value, final=False)
            saved = step
        if stop and step < total:
            print(f"drained after step {step}, saved {saved}", flush=True)
            return DRAINED
    if saves:
        _save(step, value, final=True)
    print(f"finished {step} {value}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
