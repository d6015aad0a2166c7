"""`python -m tests.bench_trainer [--quick] [--only NAME] [--json FILE]`.

Lives here: which rows there are, their order and their limits. A missed goal is a figure, not a
failure: the command ends with 1 only when a row could not be carried out. Each row is a module of
this package with `measure(around) -> list[Figure]`; it is imported when its turn comes.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.results import Figure
from tests.bench.rows_command import RowsCommand
from tests.bench_trainer.around import Around

LIMIT_SECONDS = 2_400
ROWS: dict[str, str] = {
    "loop": "speed.loop_overhead",
    "gpu-throughput": "speed.gpu_speed",
    "precision": "speed.mixed_precision",
    "ranks": "speed.rank_scaling",
    "checkpoint": "checkpoint.checkpoint_cost",
    "gpu-checkpoint": "checkpoint.checkpoint_stall",
    "notice": "checkpoint.notice_to_durable",
    "in-flight": "checkpoint.notice_in_flight",
    "store": "checkpoint.notice_to_store",
    "resume": "resume.exact_resume",
    "elastic": "resume.elastic_ranks",
    "integrity": "checkpoint.damaged_bits",
    "kills": "resume.sudden_deaths",
    "goodput": "resume.goodput_replay",
    "loader": "speed.loader_cost",
    "ledger": "speed.ledger_closes",
    "start-up": "speed.start_up_time",
    "gpu-use": "speed.gpu_use",
}


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit code for the shell."""
    command = RowsCommand("tests.bench_trainer", __doc__, ROWS, "bench-trainer-results.json")
    command.begin(arguments)
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as folder:
        around = Around(Path(folder), command.quick, command.say)

        def measure(name: str) -> list[Figure]:
            row: Any = importlib.import_module(f"tests.bench_trainer.{ROWS[name]}")
            found: list[Figure] = row.measure(around)
            return found

        command.measure(LIMIT_SECONDS, measure)
    return command.report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
