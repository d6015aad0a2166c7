"""`python -m tests.bench [--quick] [--only NAME]`: measure, print the table, write the JSON file.

Lives here: which benchmarks there are, their order and their limits. A missed goal is a figure, not
a failure: the command ends with 1 only when a benchmark could not be carried out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.bench.api import (
    access_cost,
    agent_reports,
    audit_cost,
    cost_ledger,
    crowded_api,
    jobs_page,
    submit_rate,
)
from tests.bench.bench_environment import BenchEnvironment
from tests.bench.clouds import clouds_launching, clouds_sweeping, clouds_watching
from tests.bench.controllers import placement_decisions, queue_cost, simulated_day
from tests.bench.programs import idle_cost, machine_loss, ring_latency, start_time
from tests.bench.results import Figure
from tests.bench.rows_command import RowsCommand

Measure = Callable[[BenchEnvironment], list[Figure]]

LIMIT_SECONDS = 240
BENCHMARKS: dict[str, Measure] = {
    "submit": submit_rate.measure,
    "access": access_cost.measure,
    "queue": queue_cost.measure,
    "start": start_time.measure,
    "idle": idle_cost.measure,
    "ring": ring_latency.measure,
    "loss": machine_loss.measure,
    "simulation": simulated_day.measure,
    "decisions": placement_decisions.measure,
    "reports": agent_reports.measure,
    "crowd": crowded_api.measure,
    "jobs-page": jobs_page.measure,
    "costs": cost_ledger.measure,
    "audit": audit_cost.measure,
    "notices": clouds_watching.measure,
    "sweeps": clouds_sweeping.measure,
    "launches": clouds_launching.measure,
}


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit code for the shell."""
    command = RowsCommand("tests.bench", __doc__, BENCHMARKS, "bench-results.json")
    command.begin(arguments)
    with BenchEnvironment(command.quick, command.say) as around:
        # In this order: `start` needs its folder to itself, before others keep a system up in it.
        command.measure(LIMIT_SECONDS, lambda name: BENCHMARKS[name](around))
    return command.report()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
