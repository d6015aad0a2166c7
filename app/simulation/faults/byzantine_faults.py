"""Faults of those who should be believed: agents that lie, clouds that err, clocks, disks, backups.

Lives here: what each of them does to the world. Not here: the lies themselves (`lying_agents`),
parts that only fail or fall silent (`faults`), or which there are (`fault_kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from sqlalchemy import text

from app.domain.market.offer import Market
from app.simulation.engine.backup import Backup
from app.simulation.engine.virtual_clock import MICROSECONDS, microseconds
from app.simulation.faults.fault_kinds import Fault, FaultHistory
from app.simulation.faults.lying_agents import LyingAgents
from app.simulation.simulated.simulated_agent import SimulatedAgent
from app.simulation.simulated.simulated_cloud import SimulatedCloud
from app.simulation.simulated.simulated_machine import HIDDEN_US_MAX, SimulatedMachine
from app.simulation.simulated.simulated_users import SimulatedUsers
from app.simulation.simulated.world import World
from trainer.protocol.agent_report import DiskFull

_APART_SECONDS_MAX = 20.0
_DRIFT_MAX = 0.009
"""Seconds in one: the control plane adds one part in a hundred to every lease."""
_RESTORE_SECONDS = 60.0
_CONFIRMED_AFTER_SECONDS = 900.0
# A look ten seconds after the first that missed it was a sighting, or it would be called gone.
_MISSED = text(
    "SELECT provider_instance_id FROM instances WHERE absent_since_at IS NOT NULL "
    "AND observed_at < absent_since_at + interval '10 seconds' "
    "AND provider_instance_id IS NOT NULL ORDER BY id"
)
_GONE = text(
    "SELECT provider_instance_id FROM instances WHERE state = 'terminated' "
    "AND provider_instance_id IS NOT NULL ORDER BY ended_at, id"
)


class ByzantineFaults:
    """The injector of one world's lies and errors."""

    def __init__(self, world: World, users: SimulatedUsers, history: FaultHistory) -> None:
        self._world = world
        self._users = users
        self._history = history
        self._backed_up = False
        self._dice = world.entropy.stream("byzantine faults")
        self._lies = LyingAgents(world)

    def inject(self, kind: Fault) -> bool:
        """Let it happen now; False when the world has nothing it could happen to."""
        return self._DEEDS[kind](self)

    # --- agents ---

    def _lie(self, tell: Callable[[LyingAgents, SimulatedAgent], bool]) -> bool:
        """The first agent, from a random one on, that has something to lie about."""
        if self._world.network.away:
            return False
        agents = self._agents()
        first = self._dice.between(0, max(0, len(agents) - 1))
        return any(tell(self._lies, agent) for agent in agents[first:] + agents[:first])

    def _other_machine(self) -> bool:
        agents = self._agents()
        if len(agents) < 2 or self._world.network.away:
            return False
        first = self._dice.between(1, len(agents) - 1)
        return self._lies.other_machine(agents[0], agents[first])

    def _after_its_end(self) -> bool:
        if self._world.network.away:
            return False
        with self._world.engine.connect() as connection:
            gone = set(connection.scalars(_GONE))
        agents = [one for name, one in sorted(self._world.agents.items()) if name in gone]
        return bool(agents) and self._lies.after_its_end(self._dice.choice(agents))

    def _torn(self) -> bool:
        return self._lie(lambda lies, agent: lies.torn(agent, self._dice.uniform()))

    def _agent_disk_full(self) -> bool:
        agents = [one for one in self._agents() if one.disk_full is None]
        if not agents:
            return False
        agent = self._dice.choice(agents)
        agent.disk(DiskFull("/var/lib/lowtide", 0))
        self._world.loop.after(self._dice.uniform(120.0, 600.0), lambda: agent.disk(None))
        return True

    def _clocks_drift(self) -> bool:
        for agent in self._agents():
            agent.drift(1.0 + self._dice.uniform(-_DRIFT_MAX, _DRIFT_MAX))
        return bool(self._agents())

    # --- clouds ---

    def _false_absence(self) -> bool:
        """A complete list lacks a machine that lives, and so does the next look at it."""

        def hide(machine: SimulatedMachine) -> None:
            machine.hidden_looks = 2

        return self._hide(hide)

    def _absent_briefly(self) -> bool:
        """Every look of some seconds lacks it; people have everything listed, and again."""
        until_us = self._world.clock.true_us + HIDDEN_US_MAX

        def hide(machine: SimulatedMachine) -> None:
            machine.hidden_until_us = until_us

        self._world.loop.after(4.0, self._users.ask_for_sweep)
        return self._hide(hide)

    def _hide(self, hide: Callable[[SimulatedMachine], None]) -> bool:
        # A look must have shown it since it was hidden last: two absences without a sighting
        # between them are the cloud's word that it is gone, whatever the reason of each.
        with self._world.engine.connect() as connection:
            missed = set(connection.scalars(_MISSED))
        machines = [
            machine
            for cloud in self._clouds()
            for machine in cloud.alive()
            if machine.stopping_us is None
            and not machine.hidden
            and machine.machine_id not in missed
        ]
        if not machines:
            return False
        machine = self._dice.choice(machines)
        self._world.log.write("fault", f"{machine.machine_id} is not shown")
        machine.hidden, machine.hidden_from_us = True, None
        hide(machine)
        self._users.ask_for_sweep()
        return True

    def _shown_late(self) -> bool:
        for cloud in self._clouds():
            cloud.faults.show_late += 1
        return True

    def _price_jumps(self) -> bool:
        market = self._world.market
        for pool in sorted(pool for pool in market.paths if pool.market is Market.SPOT):
            market.jump(pool, self._dice.uniform(1.05, 1.6))
        return True

    # --- the control plane ---

    def _overtaken(self, controller: str) -> bool:
        """What a worker has learnt comes when another one holds the lease and works on it."""
        late = self._world.worker.late.apply_of.setdefault(controller, [])
        late += [self._dice.uniform(95.0, 110.0), self._dice.uniform(120.0, 200.0)]
        return True

    def _called_late(self, controller: str) -> bool:
        """A worker comes to its call when its lease has ended."""
        late = self._world.worker.late.effect_of.setdefault(controller, [])
        late.append(self._dice.uniform(91.0, 120.0))
        return True

    def _clocks_apart(self) -> bool:
        clock = self._world.host_clock
        if clock.apart_us:
            return False

        def agree() -> None:
            clock.apart_us = 0

        clock.apart_us = microseconds(self._dice.uniform(-_APART_SECONDS_MAX, _APART_SECONDS_MAX))
        self._world.loop.after(self._dice.uniform(300.0, 1_800.0), agree)
        return True

    def _store_full(self) -> bool:
        store = self._world.store
        if store.full:
            return False

        def room() -> None:
            store.full = False

        store.full = True
        self._world.loop.after(self._dice.uniform(30.0, 300.0), room)
        return True

    def _backup_restored(self, api_runs_on: bool = False) -> bool:
        """A backup is made now, and minutes later the database is what it was."""
        if self._backed_up:
            return False
        self.restore_after(self._dice.uniform(300.0, 900.0), api_runs_on)
        return True

    def restore_after(self, seconds: float, api_runs_on: bool = False) -> None:
        """Back up now; so many seconds later the control plane starts anew from that."""
        self._world.loop.after(seconds, self.back_up(api_runs_on))

    def back_up(self, api_runs_on: bool = False) -> Callable[[], None]:
        """Back up now; what is returned lets the control plane start anew from that.

        api_runs_on: but for the api processes, which only miss the database for a while.
        """
        self._backed_up = True
        backup, made_us = Backup(self._world.engine), self._world.clock.true_us
        return partial(self._restore, backup, made_us, api_runs_on)

    def _restore(self, backup: Backup, made_us: int, api_runs_on: bool) -> None:
        world = self._world
        lost_seconds = (world.clock.true_us - made_us) / MICROSECONDS
        self._history.away_seconds += lost_seconds + _RESTORE_SECONDS + _CONFIRMED_AFTER_SECONDS
        world.log.write("fault", "the database goes back to its backup")
        if api_runs_on:
            world.network.lose_database()
            world.loop.after(_RESTORE_SECONDS, world.network.find_database)
        elif not world.network.away:
            world.network.leave()
            world.loop.after(_RESTORE_SECONDS, world.network.come_back)
        world.worker.kill(_RESTORE_SECONDS)
        backup.put_back()
        backup.remove()
        self._backed_up = False
        world.restored()
        for times in (1, 2, 4, 8):
            # What is missing may show late; without unknown machines the word is refused.
            world.loop.after(times * _CONFIRMED_AFTER_SECONDS, self._users.confirm_sweep)

    # --- whom it happens to ---

    def _agents(self) -> list[SimulatedAgent]:
        return [
            agent
            for _, agent in sorted(self._world.agents.items())
            if agent.registered and not agent.dead and agent.state is not None
        ]

    def _clouds(self) -> list[SimulatedCloud]:
        return [self._world.clouds[name] for name in sorted(self._world.clouds)]

    _DEEDS: Mapping[Fault, Callable[[ByzantineFaults], bool]] = {
        Fault.FENCE_OF_OTHERS: partial(_lie, tell=LyingAgents.fence_of_others),
        Fault.OTHER_SESSION: partial(_lie, tell=LyingAgents.other_session),
        Fault.REPORT_REPLAYED: partial(_lie, tell=LyingAgents.replayed),
        Fault.STEP_FALLS: partial(_lie, tell=LyingAgents.step_falls),
        Fault.ENDED_FENCE: partial(_lie, tell=LyingAgents.ended_fence),
        Fault.SECOND_AGENT: partial(_lie, tell=LyingAgents.second_agent),
        Fault.FORMER_AGENT: partial(_lie, tell=LyingAgents.former_agent),
        Fault.OTHER_MACHINE: _other_machine,
        Fault.AFTER_ITS_END: _after_its_end,
        Fault.REPORT_TORN: _torn,
        Fault.AGENT_DISK_FULL: _agent_disk_full,
        Fault.CLOCKS_DRIFT: _clocks_drift,
        Fault.FALSE_ABSENCE: _false_absence,
        Fault.ABSENT_BRIEFLY: _absent_briefly,
        Fault.SHOWN_LATE: _shown_late,
        Fault.PRICE_JUMPS: _price_jumps,
        Fault.LAUNCH_OVERTAKEN: partial(_overtaken, controller="launch_instances"),
        Fault.RELEASE_OVERTAKEN: partial(_overtaken, controller="release_instances"),
        Fault.LAUNCH_CALLED_LATE: partial(_called_late, controller="launch_instances"),
        Fault.RELEASE_CALLED_LATE: partial(_called_late, controller="release_instances"),
        Fault.CLOCKS_APART: _clocks_apart,
        Fault.STORE_FULL: _store_full,
        Fault.BACKUP_RESTORED: _backup_restored,
        Fault.BACKUP_UNDER_API: partial(_backup_restored, api_runs_on=True),
    }
