"""The job of `lowtide doctor --launch`: one step, one checkpoint, on whatever was rented.

Runs on the machine, as a file alone, with any Python 3 and nothing but its standard library. It
says what GPU it finds, lets several machines meet over TCP, and keeps the trainer contract. Not
here: who submits it and follows it (`app.cli.server.launch_check`).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

SAYS = "doctor: "
"""How the lines begin that `lowtide doctor --launch` shows."""

_MEET_SECONDS = 60.0
_ASK_SECONDS = 60.0


def main() -> int:
    """One step; 0 when all of it went well."""
    say(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs")
    gpus = find_gpus()
    problem = None
    if gpus:
        say(f"GPU {'; '.join(gpus)}")
        problem = use_torch()
    else:
        say("no GPU answers here (nvidia-smi)")
    if problem is not None:
        say(problem)
        return 1
    meet()
    step = next_step()
    report(step)
    if os.environ["LOWTIDE_NODE_RANK"] == "0":
        save(step)
    return 0


def say(text: str) -> None:
    """One line for the person who waits."""
    print(f"{SAYS}{text}", flush=True)


def find_gpus() -> list[str]:
    """Name, driver and memory of each GPU; empty without a driver."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            asked, stdout=subprocess.PIPE, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def use_torch() -> str | None:
    """Compute on the GPU where the image has PyTorch; what is wrong, None when nothing is.

    An image without PyTorch is not wrong: machines of jobs with `trainer` install it as they boot.
    """
    try:
        import torch
    except ImportError:
        say(
            "warning: this image has no PyTorch; jobs with `trainer` install it as they boot "
            "(LOWTIDE_MACHINE_TORCH), others bring theirs with `setup` or `image`"
        )
        return None
    try:
        ones = torch.ones(256, 256, device="cuda")
        right = float((ones @ ones).sum().item()) == 256.0**3
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        return f"PyTorch {torch.__version__} cannot use the GPU: {reason}"
    say(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, computes on the GPU")
    return None if right else "the GPU computed a wrong result"


def meet() -> None:
    """Every machine of a gang hears from every other through rank 0. Raises OSError."""
    size, rank = int(os.environ["LOWTIDE_NUM_NODES"]), int(os.environ["LOWTIDE_NODE_RANK"])
    if size == 1:
        return
    address = os.environ["LOWTIDE_MASTER_ADDR"], int(os.environ["LOWTIDE_MASTER_PORT"])
    if rank == 0:
        with socket.create_server(address) as server:
            server.settimeout(_MEET_SECONDS)
            links = [server.accept()[0] for _ in range(size - 1)]
        for link in links:
            link.sendall(b"1")
            link.close()
    else:
        with connected(address) as link:
            link.settimeout(_MEET_SECONDS)
            if link.recv(1) != b"1":
                raise OSError(f"the machine of rank 0 at {address[0]} hung up")
    say(f"{size} machines reach each other")


def connected(address: tuple[str, int]) -> socket.socket:
    """A connection to rank 0, which may open its port a little later. Raises OSError."""
    ends = time.monotonic() + _MEET_SECONDS
    while True:
        try:
            return socket.create_connection(address, timeout=5)
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.1)


def next_step() -> int:
    """The step after that of the checkpoint to go on from; 1 without one."""
    folder = os.environ.get("LOWTIDE_RESUME_DIR", "")
    state = Path(folder) / "state.json"
    if not folder or not state.is_file():
        return 1
    return int(json.loads(state.read_text("utf-8"))["step"]) + 1


def report(step: int) -> None:
    """Tell the agent that the step is done."""
    line = {"type": "step", "step": step, "total_steps": step, "loss": 1.0 / (1 + step)}
    with Path(os.environ["LOWTIDE_PROGRESS_FILE"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def save(step: int) -> None:
    """The final checkpoint: written, flushed, renamed."""
    name = f"step-{step:012d}"
    folder = Path(os.environ["LOWTIDE_CHECKPOINT_DIR"])
    draft = folder / f"{name}.tmp"
    draft.mkdir(parents=True)
    for file_name, content in (
        ("state.json", {"step": step}),
        ("manifest.json", {"final": True, "world_size": 1}),
    ):
        with (draft / file_name).open("w", encoding="utf-8") as file:
            file.write(json.dumps(content))
            file.flush()
            os.fsync(file.fileno())
    draft.rename(folder / name)


if __name__ == "__main__":
    sys.exit(main())
