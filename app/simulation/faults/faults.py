"""The injector: lets faults happen to a world, at their rates or when a scenario says so.

Lives here: what each fault does. Not here: which there are (`fault_kinds`), lies and errors of
those who should be believed (`byzantine_faults`), when a named scenario uses one (`scenarios`), or
what must still hold (`invariants`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from app.domain.lifecycle.instance import EndedBy
from app.ports.cloud_provider import RefusalKind
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.engine.virtual_clock import microseconds
from app.simulation.faults.byzantine_faults import ByzantineFaults
from app.simulation.faults.fault_kinds import Fault, FaultHistory
from app.simulation.simulated.simulated_agent import SimulatedAgent
from app.simulation.simulated.simulated_cloud import SimulatedCloud, spot_machines
from app.simulation.simulated.simulated_machine import SimulatedMachine
from app.simulation.simulated.simulated_users import SimulatedUsers
from app.simulation.simulated.world import World

_NOTICE_SECONDS = {"ec2": 120.0, "gce": 30.0}


class Faults:
    """The injector of one world. `history` is what has happened so far."""

    def __init__(self, world: World, users: SimulatedUsers) -> None:
        self.history = FaultHistory()
        self.byzantine = ByzantineFaults(world, users, self.history)
        self._world = world
        self._users = users
        self._dice = world.entropy.stream("faults")
        self._until_us = 0

    def begin(self, rates: Mapping[Fault, float], until_hours: float) -> None:
        """Let faults happen at these rates, until then."""
        clock = self._world.clock
        self._until_us = clock.starts_us + microseconds(3600 * until_hours)
        for kind in Fault:
            rate = rates.get(kind, 0.0)
            if rate > 0:
                dice = self._world.entropy.stream(f"fault/{kind}")
                self._plan(kind, 3600.0 / rate, dice)

    def inject(self, kind: Fault) -> bool:
        """Let it happen now; False when the world has nothing it could happen to."""
        deed = self._DEEDS.get(kind)
        happened = self.byzantine.inject(kind) if deed is None else deed(self)
        if happened:
            self.history.counts[kind] = self.history.counts.get(kind, 0) + 1
            self._world.log.write("fault", kind.value)
        return happened

    def _plan(self, kind: Fault, mean_seconds: float, dice: Dice) -> None:
        def happen() -> None:
            if self._world.clock.true_us < self._until_us:
                self.inject(kind)
                self._plan(kind, mean_seconds, dice)

        self._world.loop.after(dice.waiting_seconds(mean_seconds), happen)

    # --- the control plane ---

    def _worker_dies(self) -> bool:
        self._world.worker.die_after(self._dice.between(1, 8))
        return True

    def _commit_lost(self) -> bool:
        self._world.transactions.lose_commits += 1
        return True

    def _commit_unknown(self) -> bool:
        self._world.transactions.lose_answers += 1
        return True

    def _stale_lease(self) -> bool:
        late = self._world.worker.late
        phase = self._dice.choice((late.before_effect, late.before_apply, late.quick))
        phase.append(self._dice.uniform(95.0, 400.0))
        return True

    def _ring_lost(self) -> bool:
        self._world.wakeups.faults.lose += self._dice.between(1, 3)
        return True

    def _ring_doubled(self) -> bool:
        self._world.wakeups.faults.double += 1
        return True

    def _clock_jump(self) -> bool:
        clock = self._world.clock
        if clock.error_us:
            return False
        seconds = self._dice.choice((-40.0, -3.0, 5.0, 45.0, 900.0))
        self._set_clock_error(seconds)
        self._world.loop.after(self._dice.uniform(600.0, 7_200.0), lambda: self._set_clock_error(0))
        return True

    def _set_clock_error(self, seconds: float) -> None:
        self._world.log.write("fault", f"the control plane's clock is off by {seconds:.0f} s")
        self._world.clock.set_error(seconds)
        self._world.worker.forget()

    def _outage(self) -> bool:
        return self.control_plane_away(self._dice.choice((20.0, 90.0, 400.0, 1_500.0, 2_700.0)))

    def control_plane_away(self, seconds: float) -> bool:
        """Api and worker are away for so long."""
        network = self._world.network
        if network.away:
            return False
        self.history.away_seconds += seconds
        network.leave()
        self._world.worker.kill(seconds)
        self._world.loop.after(seconds, network.come_back)
        return True

    def _api_killed(self) -> bool:
        network, seconds = self._world.network, self._dice.choice((3.0, 12.0, 60.0))
        killed = network.kill_one(seconds)
        if killed and network.away:
            self.history.away_seconds += seconds
        return killed

    def _exchange_fails(self) -> bool:
        troubles = self._dice.choice(self._world.network.processes).faults
        seconds = self._dice.choice((0.0, 4.0, 15.0, 40.0, 200.0))
        if seconds:
            until_us = self._world.clock.true_us + microseconds(seconds)
            troubles.fails_until_us = max(troubles.fails_until_us, until_us)
        else:
            troubles.doubtful += 1
        return True

    def _exchange_slow(self) -> bool:
        troubles = self._dice.choice(self._world.network.processes).faults
        troubles.slow += [self._dice.uniform(0.2, 9.0) for _ in range(3)]
        return True

    # --- agents ---

    def _agent_cut_off(self) -> bool:
        seconds = self._dice.choice((100.0, 400.0, 1_200.0, 2_400.0))
        return self._with_agent(lambda agent: self.cut_off(agent, seconds))

    def cut_off(self, agent: SimulatedAgent, seconds: float) -> None:
        """The machine does not reach the control plane for so long; it reaches all else."""
        agent.line.cut_off = True
        self._world.log.write("fault", f"{agent.machine.machine_id} is cut off for {seconds:.0f} s")
        self._world.loop.after(seconds, agent.line.mend)

    def _store_away(self) -> bool:
        store = self._world.store
        if store.unavailable:
            return False
        store.unavailable = True

        def back() -> None:
            store.unavailable = False

        self._world.loop.after(self._dice.uniform(10.0, 300.0), back)
        return True

    # --- clouds ---

    def _refuse(self, kind: RefusalKind) -> bool:
        cloud = self._dice.choice(self._clouds())
        cloud.faults.refuse += [kind] * self._dice.between(1, 3)
        return True

    def _launch_reply_lost(self) -> bool:
        for cloud in self._clouds():
            cloud.faults.lose_reply += 1
        return True

    def _list_incomplete(self) -> bool:
        self._dice.choice(self._clouds()).faults.shorten += 1
        return True

    def _notice(self, kill: bool = True) -> bool:
        return self._with_machine(
            lambda cloud, machine: cloud.give_notice(
                machine, _NOTICE_SECONDS[machine.cloud], kill=kill
            )
        )

    def _kill_without_notice(self) -> bool:
        return self._with_machine(lambda cloud, machine: cloud.give_notice(machine, None))

    def _notice_while_booting(self) -> bool:
        return self._with_machine(
            lambda cloud, machine: cloud.give_notice(machine, _NOTICE_SECONDS[machine.cloud]),
            lambda machine: not self._is_registered(machine),
        )

    def _machine_fails(self) -> bool:
        return self._with_machine(
            lambda cloud, machine: cloud.stop(machine, EndedBy.CLOUD_FAILURE, 0.0)
        )

    # --- people ---

    def _cancel(self) -> bool:
        return self._users.cancel_one(self._dice)

    def _cancel_while_launching(self) -> bool:
        return self._users.cancel_one(self._dice, launching=True)

    def _pause(self) -> bool:
        return self._users.pause_one(self._dice, 3_600.0)

    # --- whom it happens to ---

    def _clouds(self) -> list[SimulatedCloud]:
        return [self._world.clouds[name] for name in sorted(self._world.clouds)]

    def _is_registered(self, machine: SimulatedMachine) -> bool:
        agent = self._world.agent_of(machine)
        return agent is not None and agent.registered

    def _with_agent(self, deed: Callable[[SimulatedAgent], None]) -> bool:
        living = [
            agent
            for _, agent in sorted(self._world.agents.items())
            if agent.registered and not agent.dead
        ]
        if not living:
            return False
        agent = self._dice.choice(living)
        self._world.log.write("fault", f"meets {agent.machine.machine_id}")
        deed(agent)
        return True

    def _with_machine(
        self,
        deed: Callable[[SimulatedCloud, SimulatedMachine], None],
        fits: Callable[[SimulatedMachine], bool] = lambda _machine: True,
    ) -> bool:
        found = [machine for machine in spot_machines(self._clouds()) if fits(machine)]
        if not found:
            return False
        machine = self._dice.choice(found)
        self._world.log.write("fault", f"meets {machine.machine_id}")
        deed(self._world.clouds[machine.pool.provider], machine)
        return True

    _DEEDS: Mapping[Fault, Callable[[Faults], bool]] = {
        Fault.WORKER_DIES: _worker_dies,
        Fault.COMMIT_LOST: _commit_lost,
        Fault.COMMIT_UNKNOWN: _commit_unknown,
        Fault.STALE_LEASE: _stale_lease,
        Fault.RING_LOST: _ring_lost,
        Fault.RING_DOUBLED: _ring_doubled,
        Fault.CLOCK_JUMP: _clock_jump,
        Fault.OUTAGE: _outage,
        Fault.API_KILLED: _api_killed,
        Fault.EXCHANGE_FAILS: _exchange_fails,
        Fault.EXCHANGE_SLOW: _exchange_slow,
        Fault.REPORT_LOST: partial(_with_agent, deed=lambda agent: agent.line.lose_requests()),
        Fault.REPLY_LOST: partial(_with_agent, deed=lambda agent: agent.line.lose_replies()),
        Fault.REPORT_LATE: partial(_with_agent, deed=lambda agent: agent.line.hold_back()),
        Fault.REPORT_DOUBLED: partial(_with_agent, deed=lambda agent: agent.line.double()),
        Fault.AGENT_CUT_OFF: _agent_cut_off,
        Fault.AGENT_RESTARTS: partial(_with_agent, deed=SimulatedAgent.restart),
        Fault.GPU_FAULT: partial(_with_agent, deed=SimulatedAgent.gpu_fault),
        Fault.STORE_AWAY: _store_away,
        Fault.THROTTLED: partial(_refuse, kind=RefusalKind.THROTTLED),
        Fault.CLOUD_UNAVAILABLE: partial(_refuse, kind=RefusalKind.UNAVAILABLE),
        Fault.LAUNCH_REPLY_LOST: _launch_reply_lost,
        Fault.LIST_INCOMPLETE: _list_incomplete,
        Fault.NOTICE: _notice,
        Fault.NOTICE_WITHOUT_KILL: partial(_notice, kill=False),
        Fault.KILL_WITHOUT_NOTICE: _kill_without_notice,
        Fault.NOTICE_WHILE_BOOTING: _notice_while_booting,
        Fault.MACHINE_HANGS: partial(_with_agent, deed=SimulatedAgent.die),
        Fault.MACHINE_FAILS: _machine_fails,
        Fault.CANCEL: _cancel,
        Fault.CANCEL_WHILE_LAUNCHING: _cancel_while_launching,
        Fault.PAUSE: _pause,
    }
