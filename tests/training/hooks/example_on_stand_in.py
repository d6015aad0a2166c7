"""Runs a training script as one rank of a machine whose GPUs are stood in for.

``python -m tests.training.hooks.example_on_stand_in SCRIPT``, with torchrun's variables in a gang.
Its last line has in JSON how many operations each device did. Not here: what a GPU is
(`stand_in_gpu`).
"""

from __future__ import annotations

import json
import os
import runpy
import sys

import trainer.callbacks
import trainer.hooks
from tests.training.hooks import stand_in_gpu

GPUS = 2


def main(script: str) -> None:
    sys.modules["lowtide_hooks"] = trainer.hooks
    sys.modules["lowtide_callbacks"] = trainer.callbacks
    leave = os._exit

    def tell_and_leave(code: int) -> None:
        print(json.dumps(stand_in_gpu.computed), flush=True)
        leave(code)

    os._exit = tell_and_leave  # type: ignore[assignment]  # the end of every script with the hooks
    stand_in_gpu.install(GPUS)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
