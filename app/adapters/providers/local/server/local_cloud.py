"""The cloud itself: it owns machines from launch to end, and remembers them over its own restarts.

Here: lifecycle and the journal's truth. Not here: pool choice (`launching`), the market's takings
(`market_replay`), processes (`agent_process`, `machine_processes`), HTTP (`control_api`).
Everything runs on one event loop; a change is in the journal before anyone is told of it.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.adapters.disk_space import full_sentence
from app.adapters.embedded.processes.process_identity import boot_id, start_ticks
from app.adapters.providers.local.files.cloud_settings import CloudTerms, LocalSettings
from app.adapters.providers.local.files.durable_files import say
from app.adapters.providers.local.machines.agent_process import AgentProcesses, machines_folder
from app.adapters.providers.local.machines.job_accounts import settle_accounts
from app.adapters.providers.local.machines.launching import CloudRefusal, LaunchRequest, choose_pool
from app.adapters.providers.local.machines.machine import Machine
from app.adapters.providers.local.machines.machine_processes import (
    carries_marker,
    find_machine_ids,
    kill_once,
)
from app.adapters.providers.local.machines.new_machines import new_machines
from app.adapters.providers.local.market.market import RecordedMarkets
from app.adapters.providers.local.server.journal import Journal, JournalFull
from app.adapters.providers.local.server.market_replay import MarketReplay
from app.adapters.providers.local.server.metadata_endpoints import MetadataEndpoints
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market, Pool
from app.domain.units.durations import measured_duration
from app.ports.cloud_provider import MachineState, RefusalKind
from trainer.protocol.exit_codes import FAILURES_MAX, LEFT, REFUSED, SETTINGS

# As the boot script does: an agent that failed comes back, later each time. After five failures it
# is started once more, only to say so; when even that fails, the machine powers off.
_RESTARTS_MAX = FAILURES_MAX + 1
_RESTART_SECONDS = (1.0, 30.0)
_FINAL_CODES = frozenset({LEFT, REFUSED, SETTINGS})
_RAN_WELL_US = 60_000_000
# What a full disk keeps from being started or written is tried again after so long, for ever.
_FULL_DISK_PAUSE_SECONDS = 5.0
_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
_KILL_TRIES = 80
_KILL_PAUSE_SECONDS = (0.01, 1.0)


def now_us() -> int:
    """Wall time in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class LocalCloud:
    """One cloud in one folder. Create it inside a running event loop, then `recover()`."""

    def __init__(self, folder: Path, settings: LocalSettings, terms: CloudTerms) -> None:
        self.settings = settings
        self.terms = terms
        self.markets = RecordedMarkets(terms, settings)
        self._folder = folder
        self._journal = Journal(folder)
        accounts = settle_accounts(folder, settings.first_uid)
        if accounts.problem and settings.first_uid:
            say(f"jobs run as this cloud's own user: {accounts.problem}")
        self._agents = AgentProcesses(folder, settings, accounts, self._agent_exited)
        self._endpoints = MetadataEndpoints()
        self._replay = MarketReplay(self.markets, settings, now_us, self._give_notice)
        self._timers: dict[str, list[asyncio.TimerHandle]] = {}
        self._clearing: dict[str, asyncio.Task[None]] = {}
        self._catching_up: asyncio.TimerHandle | None = None

    @property
    def repairs(self) -> tuple[str, ...]:
        """What was wrong with the cloud's files and was mended, a sentence each."""
        return tuple(self._journal.repairs)

    def machines(self) -> tuple[Machine, ...]:
        """Every machine there ever was, by id."""
        return tuple(self._journal.machines[key] for key in sorted(self._journal.machines))

    def shown(self) -> tuple[Machine, ...]:
        """The machines a look-up shows: an ended one only for a while."""
        oldest_us = now_us() - int(self.settings.terminated_shown_seconds * 1_000_000)
        return tuple(
            machine
            for machine in self.machines()
            if machine.state is not MachineState.TERMINATED
            or (machine.ended_at_us or 0) >= oldest_us
        )

    async def recover(self) -> None:
        """Take up the machines of an earlier life of this daemon."""
        for sentence in self.repairs:
            say(sentence)
        await self.end_strays()
        for machine in self.machines():
            if machine.state is MachineState.SHUTTING_DOWN:
                self._clear_later(machine)
            elif machine.is_running and machine.boot_id != boot_id():
                self.end(machine, EndedBy.CLOUD_FAILURE)  # the host restarted under it
            elif machine.is_running:
                await self._take_up(machine)
        self._look_at_market()

    async def end_strays(self) -> None:
        """Kill machines whose launch was torn out of the journal: nobody would ever end them."""
        for machine_id in find_machine_ids(machines_folder(self._folder)):
            if machine_id not in self._journal.machines:
                say(f"{machine_id}: runs, but its launch is not in the journal; it is killed")
                await self._kill_all(machine_id)

    async def _take_up(self, machine: Machine) -> None:
        await self._endpoints.open(machine)
        if machine.deadline_at_us is not None:
            self._await_deadline(machine, machine.deadline_at_us)
        if machine.crashed_at_us is not None:
            self._show_crash_later(machine)
            return
        pid = machine.agent_pid
        if pid is None:
            # An agent may have been started just before its pid was recorded.
            await self._kill_all(machine.machine_id)
            booted_us = machine.launched_at_us + int(self.settings.boot_seconds * 1_000_000)
            self._start_agent_later(machine, max(0, booted_us - now_us()) / 1_000_000)
        elif start_ticks(pid) != machine.agent_started or not (
            carries_marker(pid, machine.machine_id) and self._agents.watch(machine)
        ):
            self._agent_exited(machine, None)

    async def launch(self, order: LaunchRequest) -> dict[str, Any]:
        """Machine ids and refusals. Raises CloudRefusal for a token used with another order."""
        known = self._journal.launches.get(order.client_token)
        if known is not None:
            if known["digest"] != order.digest:
                message = "IdempotentParameterMismatch: this client token came with another order"
                raise CloudRefusal(RefusalKind.REJECTED, message)
            return known
        live = len(self._living())
        if live + order.count > self.settings.machines_max:
            message = f"{live} machines live, at most {self.settings.machines_max} at once"
            refusal = {"pool": None, "kind": RefusalKind.QUOTA.value, "message": message}
            return {"machine_ids": [], "refused": [refusal]}
        if (full := full_sentence({"local cloud": self._folder})) is not None:
            # What the machines' disks are on; and the journal's last room is for their ends.
            kind = RefusalKind.UNAVAILABLE.value
            refused = [{"pool": key, "kind": kind, "message": full} for key, _ in order.bids]
            return {"machine_ids": [], "refused": refused}
        choice = choose_pool(order, self.markets, self._running_in, now_us())
        refused = list(choice.refused)
        if choice.market is None:
            return {"machine_ids": [], "refused": refused}
        ports = [machine.metadata_port for machine in self._living()]
        machines = new_machines(order, choice.market, choice.count, ports, now_us())
        ids = [machine.machine_id for machine in machines]
        launch = {"digest": order.digest, "machine_ids": ids, "refused": refused}
        # Recorded before anything starts: a daemon that dies here starts them when it is back.
        try:
            self._journal.record_launch(order.client_token, launch, machines)
        except JournalFull as error:
            message = f"disk full: the local cloud cannot write down a launch ({error})"
            raise CloudRefusal(RefusalKind.UNAVAILABLE, message) from error
        for machine in machines:
            await self._endpoints.open(machine)
            if not machine.is_running:  # ended while we waited
                self._endpoints.close(machine)
            self._start_agent_later(machine, self.settings.boot_seconds)
        self._look_at_market()
        return launch

    def find(self, machine_id: str) -> Machine:
        """A machine by its id. Raises CloudRefusal `rejected` for an unknown one."""
        machine = self._journal.machines.get(machine_id)
        if machine is None:
            raise CloudRefusal(RefusalKind.REJECTED, f"there is no machine {machine_id!r}")
        return machine

    def end(self, machine: Machine, ended_by: EndedBy) -> None:
        """End a machine now; nothing happens when it has ended already."""
        if not machine.is_running:
            return
        machine.state = MachineState.SHUTTING_DOWN
        machine.ended_by = ended_by
        machine.ended_at_us = max(machine.launched_at_us, now_us())
        for timer in self._timers.pop(machine.machine_id, []):
            timer.cancel()
        self._agents.forget(machine)
        self._record(machine)
        kill_once(machine.machine_id)
        self._clear_later(machine)
        asyncio.get_running_loop().call_soon(self._look_at_market)

    def interrupt_as_usual(self, machine_id: str) -> int:
        """Take a spot machine with the notice of the cloud that it imitates; as `interrupt`."""
        usual = self.settings.notice_seconds(is_gce=self.find(machine_id).is_gce)
        return self.interrupt(machine_id, usual)

    def interrupt(self, machine_id: str, notice_seconds: float | None) -> int:
        """Take a spot machine: when it will be killed. None: now, without any notice.

        A machine under notice keeps its first deadline. Raises CloudRefusal `rejected` for a
        machine that is not spot or has ended, and for a notice that its cloud could not give.
        """
        machine = self.find(machine_id)
        if machine.pool.market is not Market.SPOT:
            message = f"{machine_id} is on-demand; a cloud interrupts spot machines only"
            raise CloudRefusal(RefusalKind.REJECTED, message)
        if not machine.is_running:
            raise CloudRefusal(RefusalKind.REJECTED, f"{machine_id} has ended already")
        self._require_possible_notice(machine, notice_seconds)
        if notice_seconds is None:
            self.end(machine, EndedBy.CLOUD_INTERRUPTION)
        elif machine.deadline_at_us is None:
            self._give_notice(machine, notice_seconds)
        ends_us = machine.ended_at_us or machine.deadline_at_us
        assert ends_us is not None  # one of the two was just set
        return ends_us

    def _require_possible_notice(self, machine: Machine, seconds: float | None) -> None:
        """Compute Engine's metadata says that a machine is preempted, and not when: the machine
        counts on what it was granted at its start (docs: "Spot VMs", preemption process).
        """
        granted = self.settings.gce_notice_seconds
        if machine.is_gce and seconds is not None and seconds != granted:
            raise CloudRefusal(
                RefusalKind.REJECTED,
                f"{machine.machine_id} imitates Compute Engine, which sets the notice when a "
                f"machine starts: this one has {measured_duration(granted)}. It can be taken with "
                f"that, or without any; for {measured_duration(seconds)} set "
                f"LOWTIDE_LOCAL_NOTICE_SECONDS={seconds:g} and run `lowtide up` again",
            )

    async def crash(self, machine_id: str) -> None:
        """Kill everything on a machine silently; the cloud shows that only after a while."""
        machine = self.find(machine_id)
        if not machine.is_running or machine.crashed_at_us is not None:
            return
        machine.crashed_at_us = now_us()
        self._agents.forget(machine)
        self._record(machine)
        await self._kill_all(machine.machine_id)
        self._show_crash_later(machine)

    async def stop(self, timeout_seconds: float) -> int:
        """End every machine as given back by us; how many are still being cleared at the end."""
        for machine in self._living():
            self.end(machine, EndedBy.US)
            self._clear_later(machine)  # also one that an earlier daemon left half ended
        if self._clearing:
            await asyncio.wait(self._clearing.values(), timeout=timeout_seconds)
        return len(self._living())

    def _living(self) -> list[Machine]:
        return [one for one in self.machines() if one.state is not MachineState.TERMINATED]

    def _running_in(self, pool: Pool) -> int:
        return sum(machine.pool == pool for machine in self._living())

    def _start_agent_later(self, machine: Machine, seconds: float) -> None:
        if seconds <= 0:
            self._start_agent(machine)
        else:
            self._later(machine, seconds, lambda: self._start_agent(machine))

    def _start_agent(self, machine: Machine) -> None:
        if not machine.is_running or machine.crashed_at_us is not None:
            return
        machine.agent_started_at_us = now_us()
        try:
            self._agents.start(machine)
        except OSError as error:
            say(f"{machine.machine_id}: the agent cannot be started: {error}")
            if error.errno in _FULL_DISK:
                self._start_agent_later(machine, _FULL_DISK_PAUSE_SECONDS)
            else:
                self._agent_exited(machine, None)
            return
        self._record(machine)

    def _agent_exited(self, machine: Machine, code: int | None) -> None:
        if not machine.is_running or machine.crashed_at_us is not None:
            return
        if code in _FINAL_CODES:
            self.end(machine, EndedBy.OS_SHUTDOWN)
            return
        if now_us() - machine.agent_started_at_us > _RAN_WELL_US:
            machine.restarts = 0
        say(f"{machine.machine_id}: agent ended ({code}), {machine.restarts=}")
        if machine.restarts >= _RESTARTS_MAX:
            self.end(machine, EndedBy.OS_SHUTDOWN)
            return
        first, most = _RESTART_SECONDS
        seconds = min(first * 2**machine.restarts, most)
        machine.restarts += 1
        self._start_agent_later(machine, seconds)
        self._record(machine)

    def _give_notice(self, machine: Machine, seconds: float) -> None:
        machine.noticed_at_us = now_us()
        machine.deadline_at_us = machine.noticed_at_us + max(0, round(seconds * 1_000_000))
        self._record(machine)
        self._endpoints.changed(machine)
        self._await_deadline(machine, machine.deadline_at_us)

    def _await_deadline(self, machine: Machine, deadline_us: int) -> None:
        seconds = max(0, deadline_us - now_us()) / 1_000_000
        self._later(machine, seconds, lambda: self.end(machine, EndedBy.CLOUD_INTERRUPTION))

    def _show_crash_later(self, machine: Machine) -> None:
        seconds = self.settings.crash_shown_after_seconds
        self._later(machine, seconds, lambda: self.end(machine, EndedBy.CLOUD_FAILURE))

    def _later(self, machine: Machine, seconds: float, action: Callable[[], None]) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, action)
        self._timers.setdefault(machine.machine_id, []).append(timer)

    def _record(self, machine: Machine) -> None:
        """Write the machine down, later where the disk is full: it has happened all the same."""
        if not self._journal.record_machine(machine):
            say(f"{machine.machine_id}: cannot be written down as yet")
            self._catch_up_later()

    def _catch_up_later(self) -> None:
        if self._catching_up is None:
            loop = asyncio.get_running_loop()
            self._catching_up = loop.call_later(_FULL_DISK_PAUSE_SECONDS, self._catch_up)

    def _catch_up(self) -> None:
        self._catching_up = None
        if self._journal.is_behind and not self._journal.catch_up():
            self._catch_up_later()

    def _look_at_market(self) -> None:
        self._replay.look(self.machines())

    def _clear_later(self, machine: Machine) -> None:
        if machine.machine_id in self._clearing:
            return
        task = asyncio.get_running_loop().create_task(self._clear(machine))
        self._clearing[machine.machine_id] = task
        task.add_done_callback(lambda _: self._clearing.pop(machine.machine_id, None))

    async def _clear(self, machine: Machine) -> None:
        """Kill until nothing of the machine is left, then call it terminated."""
        if not await self._kill_all(machine.machine_id):
            say(f"{machine.machine_id}: processes survive SIGKILL")
            return
        self._agents.reap(machine)
        self._endpoints.close(machine)
        machine.state = MachineState.TERMINATED
        machine.user_data = {}
        self._record(machine)
        # The disk goes with the machine, as a cloud's does; the console log stays for people.
        await asyncio.to_thread(self._agents.remove_disk, machine)

    async def _kill_all(self, machine_id: str) -> bool:
        pause, longest = _KILL_PAUSE_SECONDS
        for _ in range(_KILL_TRIES):
            if kill_once(machine_id) == 0:
                return True
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
        return False
