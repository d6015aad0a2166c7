"""`python -m app.simulation`: run one seed or one named scenario, and say how it ended.

Exit status 0 when every rule held, 1 with a report when one was broken, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import asdict

from app.simulation.engine.scratch_database import scratch_database
from app.simulation.runs.failure_report import SimulationFailed
from app.simulation.runs.run_seed import run_seed
from app.simulation.runs.run_world import WorldResult
from app.simulation.scenarios.scenarios import SCENARIOS, run_scenario

HOURS_MAX = 24.0 * 31
RATE_MAX = 20.0


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments ask for."""
    given = _parser().parse_args(arguments)
    place = nullcontext(given.database) if given.database else scratch_database()
    try:
        with place as url:
            outcome = _run(url, given)
    except SimulationFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    if given.digest:
        print(outcome.digest)
    else:
        print(json.dumps(asdict(outcome), default=str) if given.json else _summary(outcome))
    return 0


def _run(url: str, given: argparse.Namespace) -> WorldResult:
    if given.scenario is not None:
        return run_scenario(url, given.scenario, given.seed, given.verbose)
    return run_seed(
        url, given.seed, given.hours, given.rate, echo=given.verbose, shuffled=given.shuffled
    )


def _hours(text: str) -> float:
    hours = float(text)
    if not 0 < hours <= HOURS_MAX:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {HOURS_MAX:g}")
    return hours


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 <= rate <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"must be between 0 and {RATE_MAX:g}")
    return rate


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m app.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="what all chance is drawn from")
    parser.add_argument("--hours", type=_hours, default=24.0, help="virtual hours (default 24)")
    parser.add_argument("--rate", type=_rate, default=1.0, help="times as many faults (default 1)")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="a named world instead")
    parser.add_argument("--database", help="URL of an empty, migrated database to use")
    parser.add_argument("--shuffled", action="store_true", help="read rows in another order")
    parser.add_argument("--digest", action="store_true", help="print the event log's digest only")
    parser.add_argument("--json", action="store_true", help="print what happened as JSON")
    parser.add_argument("--verbose", action="store_true", help="print every event")
    return parser


def _summary(outcome: WorldResult) -> str:
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items()))
    jobs = ", ".join(f"{name} {state}" for name, state in sorted(outcome.states.items()))
    return "\n".join(
        (
            f"seed {outcome.seed}: every rule held for {outcome.virtual_hours:.1f} virtual hours",
            f"  {outcome.events} events, {outcome.transactions} transactions, "
            f"{outcome.machines} machines",
            f"  jobs: {jobs}",
            f"  faults: {faults or 'none'}",
            f"  digest {outcome.digest}",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
