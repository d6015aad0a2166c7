"""What a person reads when a simulation fails: seed, instant, rule, and the last lines.

Not here: the rules (`invariants`).
"""

from __future__ import annotations

from app.simulation.faults.fault_kinds import FaultHistory
from app.simulation.simulated.world import World

BROKE = "a simulated world broke"
"""What the first line of a report begins with."""


class SimulationFailed(AssertionError):
    """A simulated world broke a rule; the message is the report."""


def failure_report(world: World, history: FaultHistory, error: BaseException, again: str) -> str:
    """The report, ending with how to run the same world again."""
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(history.counts.items()))
    lines = [
        f"{BROKE} at {world.clock.true_now} "
        f"({world.clock.elapsed_seconds:.6f} virtual seconds, event {world.loop.happened})",
        f"  {type(error).__name__}: {error}",
        f"  faults so far: {faults or 'none'}",
        f"  event log so far: {world.log.lines} lines, digest {world.log.digest[:16]}",
        "  its last lines:",
        *(f"    {line}" for line in world.log.tail(60)),
        f"  again: python -m app.simulation {again}",
    ]
    return "\n".join(lines)
