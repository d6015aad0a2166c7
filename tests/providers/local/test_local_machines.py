"""The local cloud's machines: real processes that live, die, come back and leave nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.adapters.providers.local.server.cloud_stop import stop_cloud
from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market
from app.ports.cloud_provider import MachineState, ProviderError, RefusalKind
from tests.support.deployment.scripted_local_cloud import (
    AWS_POOL,
    GCP_POOL,
    LocalCloudForTests,
    an_order,
    eventually,
    is_alive,
    open_local_cloud,
)
from tests.support.servers.finished_commands import run_command

FAMILY = ("/bin/sh", "-c", "setsid sh -c 'sleep 601 & sleep 602' & setsid sleep 603 & sleep 604")
"""Children and grandchildren, some in sessions of their own, as training workers are."""


def test_a_machine_knows_its_place_and_none_of_our_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    with open_local_cloud() as cloud:
        machine_id = cloud.launch()
        found = cloud.environment(machine_id)
        assert found["LOWTIDE_MACHINE_ID"] == machine_id
        assert found["LOWTIDE_LAUNCH_TOKEN"] == "one-time"
        assert found["LOWTIDE_CLOUD"] == "ec2"
        assert found["LOWTIDE_PRIVATE_ADDRESS"] == "127.0.0.1"
        assert found["AWS_EC2_METADATA_SERVICE_ENDPOINT"].startswith("http://127.0.0.1:")
        assert int(found["LOWTIDE_PORT_TO"]) - int(found["LOWTIDE_PORT_FROM"]) == 19
        assert found["PWD"] == found["LOWTIDE_MACHINE_DIR"]
        assert "AWS_SECRET_ACCESS_KEY" not in found
        assert "GCE_METADATA_HOST" not in found


def test_the_disk_that_was_asked_for_is_written_down() -> None:
    with open_local_cloud(agent_command=("sleep", "60")) as cloud:
        order = replace(an_order(), disk_gb=500)
        machine_id = cloud.launch(order)
        journal = (cloud.folder / "cloud.jsonl").read_text("utf-8")
        assert '"disk_gb": 500' in journal
        with pytest.raises(ProviderError, match="came with another order"):
            cloud.provider.launch(replace(order, disk_gb=600))
        assert cloud.launch(order) == machine_id


def test_google_machines_get_google_metadata() -> None:
    with open_local_cloud() as cloud:
        found = cloud.environment(cloud.launch(an_order(GCP_POOL)))
        assert found["LOWTIDE_CLOUD"] == "gce"
        assert found["GCE_METADATA_HOST"].startswith("127.0.0.1:")
        assert "AWS_EC2_METADATA_SERVICE_ENDPOINT" not in found


def test_no_two_machines_share_a_port() -> None:
    with open_local_cloud() as cloud:
        cloud.provider.launch(an_order(AWS_POOL, token="a", count=2))
        cloud.provider.launch(an_order(GCP_POOL, token="b", count=2))
        ports: list[int] = []
        for region in ("us-west-2", "us-central1"):
            for machine in cloud.provider.list_deployment(region).machines:
                found = cloud.environment(machine.provider_instance_id)
                first, last = int(found["LOWTIDE_PORT_FROM"]), int(found["LOWTIDE_PORT_TO"])
                ports += range(first - 1, last + 1)  # the endpoint's own port comes before
        assert len(ports) == len(set(ports)) == 4 * 21


def test_the_whole_family_dies_at_the_deadline_and_not_before() -> None:
    with open_local_cloud(agent_command=FAMILY) as cloud:
        machine_id = cloud.launch()
        eventually(lambda: len(cloud.processes(machine_id)) == 6, "the family runs")
        family = cloud.processes(machine_id)
        asked_at = datetime.now(UTC)
        deadline = cloud.provider.interrupt(machine_id, 0.5)
        assert deadline - asked_at >= timedelta(seconds=0.5)
        assert all(is_alive(pid) for pid in family)
        assert cloud.machine(machine_id).state is MachineState.RUNNING
        ended = cloud.await_end(machine_id)
        assert ended.ended_by is EndedBy.CLOUD_INTERRUPTION
        assert ended.ended_at is not None
        assert timedelta(0) <= ended.ended_at - deadline < timedelta(seconds=60)
        assert not any(is_alive(pid) for pid in family)


def test_a_second_notice_does_not_move_the_deadline() -> None:
    with open_local_cloud() as cloud:
        machine_id = cloud.launch()
        first = cloud.provider.interrupt(machine_id, 60)
        assert cloud.provider.interrupt(machine_id, 1) == first
        assert cloud.provider.interrupt(machine_id, None) < first
        assert cloud.await_end(machine_id).ended_by is EndedBy.CLOUD_INTERRUPTION


def test_what_cannot_be_interrupted_says_why() -> None:
    with open_local_cloud() as cloud:
        on_demand = cloud.launch(an_order(replace(AWS_POOL, market=Market.ON_DEMAND)))
        gone = cloud.launch(an_order(token="token-2"))
        cloud.provider.terminate((gone,))
        for machine_id, reason in (
            (on_demand, "on-demand"),
            (gone, "ended already"),
            ("i-none", "no machine"),
        ):
            with pytest.raises(ProviderError, match=reason) as refused:
                cloud.provider.interrupt(machine_id, 5)
            assert refused.value.kind is RefusalKind.REJECTED
        with pytest.raises(ProviderError, match="notice_seconds"):
            cloud.provider.interrupt(on_demand, -1)


def test_giving_a_noticed_machine_back_is_ours_not_the_clouds() -> None:
    with open_local_cloud() as cloud:
        machine_id = cloud.launch()
        cloud.provider.interrupt(machine_id, 60)
        cloud.provider.terminate((machine_id,))
        assert cloud.await_end(machine_id).ended_by is EndedBy.US


def test_an_agent_that_ends_well_switches_its_machine_off() -> None:
    with open_local_cloud(agent_command=("/bin/sh", "-c", "setsid sleep 600 & exit 0")) as cloud:
        machine_id = cloud.launch()
        assert cloud.await_end(machine_id).ended_by is EndedBy.OS_SHUTDOWN
        assert cloud.processes(machine_id) == ()


def test_the_power_off_command_switches_the_machine_off() -> None:
    script = "$LOWTIDE_POWEROFF_COMMAND; sleep 600"
    with open_local_cloud(agent_command=("/bin/sh", "-c", script)) as cloud:
        assert cloud.await_end(cloud.launch()).ended_by is EndedBy.OS_SHUTDOWN


def test_a_killed_agent_comes_back_and_its_machine_stays() -> None:
    script = "setsid sleep 601 & echo started; exec sleep 602"
    with open_local_cloud(agent_command=("/bin/sh", "-c", script)) as cloud:
        machine_id = cloud.launch()
        # Two processes may still be shells that are about to become what is looked for.
        eventually(lambda: bool(_running(cloud, machine_id, b"601")), "the trainer runs")
        eventually(lambda: bool(_running(cloud, machine_id, b"602")), "the agent runs")
        (agent,) = _running(cloud, machine_id, b"602")
        (trainer,) = _running(cloud, machine_id, b"601")
        os.kill(agent, signal.SIGKILL)
        eventually(lambda: cloud.console(machine_id).count("started") == 2, "a second start")
        assert is_alive(trainer)
        assert cloud.machine(machine_id).state is MachineState.RUNNING


def test_an_agent_that_was_refused_is_not_started_again() -> None:
    with open_local_cloud(agent_command=("/bin/sh", "-c", "echo started; exit 77")) as cloud:
        machine_id = cloud.launch()
        assert cloud.await_end(machine_id).ended_by is EndedBy.OS_SHUTDOWN
        assert cloud.console(machine_id).count("started") == 1


@pytest.mark.full
def test_an_agent_that_fails_for_ever_ends_its_machine() -> None:
    script = "echo failures: $LOWTIDE_AGENT_FAILURES; exit 70"
    with open_local_cloud(agent_command=("/bin/sh", "-c", script)) as cloud:
        machine_id = cloud.launch()
        eventually(lambda: "failures: 6" in cloud.console(machine_id), "a seventh start", 240.0)
        assert cloud.await_end(machine_id).ended_by is EndedBy.OS_SHUTDOWN
        told = [f"failures: {count}" for count in range(7)]
        assert cloud.console(machine_id).splitlines() == told


def test_an_agent_that_cannot_start_leaves_a_machine_that_is_still_paid_for() -> None:
    with open_local_cloud(agent_command=("/no/such/program",)) as cloud:
        machine_id = cloud.launch()
        assert cloud.machine(machine_id).state is MachineState.RUNNING


def test_a_crash_is_silent_then_shown_as_the_clouds_failure() -> None:
    with open_local_cloud(agent_command=FAMILY, crash_shown_after_seconds=1.0) as cloud:
        machine_id = cloud.launch()
        eventually(lambda: len(cloud.processes(machine_id)) == 6, "the family runs")
        cloud.provider.crash(machine_id)
        assert cloud.processes(machine_id) == ()
        assert cloud.machine(machine_id).state is MachineState.RUNNING
        assert cloud.await_end(machine_id).ended_by is EndedBy.CLOUD_FAILURE
        assert cloud.processes(machine_id) == ()


def test_boot_takes_its_time_and_is_paid() -> None:
    with open_local_cloud(boot_seconds=0.5) as cloud:
        machine_id = cloud.launch()
        assert cloud.processes(machine_id) == ()
        eventually(lambda: len(cloud.processes(machine_id)) == 1, "booted")
        launched_at = cloud.machine(machine_id).launched_at
        assert launched_at is not None
        assert datetime.now(UTC) - launched_at >= timedelta(seconds=0.5)


def test_the_disk_goes_with_its_machine_and_the_console_stays() -> None:
    with open_local_cloud() as cloud:
        machine_id = cloud.launch()
        disk = Path(cloud.environment(machine_id)["LOWTIDE_MACHINE_DIR"])
        (disk / "checkpoint").write_bytes(b"x")
        cloud.provider.terminate((machine_id,))
        eventually(lambda: not disk.exists(), "disk removed")
        assert "LOWTIDE_MACHINE_ID" in cloud.console(machine_id)


def test_a_killed_daemon_finds_its_machines_again() -> None:
    with open_local_cloud() as cloud:
        kept, noticed = cloud.launch(), cloud.launch(an_order(token="token-2"))
        deadline = cloud.provider.interrupt(noticed, 1.0)
        before = cloud.machine(kept), cloud.processes(kept)
        first = cloud.kill_daemon()
        assert (cloud.machine(kept), cloud.processes(kept)) == before
        assert cloud.daemon_pid() != first
        assert cloud.launch() == kept  # the token is still known
        ended = cloud.await_end(noticed)
        assert ended.ended_by is EndedBy.CLOUD_INTERRUPTION
        assert ended.ended_at is not None
        assert ended.ended_at >= deadline
        (agent,) = cloud.processes(kept)
        os.kill(agent, signal.SIGKILL)  # no child of the new daemon, and yet it notices
        eventually(lambda: len(cloud.processes(kept)) == 1, "the agent is back")


def test_a_daemon_that_was_away_catches_up() -> None:
    with open_local_cloud() as cloud:
        overdue = cloud.launch()
        cloud.provider.interrupt(overdue, 0.3)
        cloud.kill_daemon()
        assert len(cloud.processes(overdue)) == 1
        assert cloud.await_end(overdue).ended_by is EndedBy.CLOUD_INTERRUPTION


def test_a_torn_last_line_of_the_journal_is_no_loss() -> None:
    with open_local_cloud() as cloud:
        machine_id = cloud.launch()
        cloud.kill_daemon()
        with (cloud.folder / "cloud.jsonl").open("a", encoding="utf-8") as journal:
            journal.write('{"machines": [{"machi')
        assert cloud.machine(machine_id).state is MachineState.RUNNING


def test_many_callers_start_one_daemon() -> None:
    with open_local_cloud() as cloud:
        answers: list[tuple[str, ...]] = []
        callers = [
            threading.Thread(target=lambda: answers.append((cloud.launch(),))) for _ in range(4)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(timeout=120)
        assert len(answers) == 4
        assert len(set(answers)) == 1  # and one machine: they shared a token


def test_the_daemon_outlives_the_process_group_that_started_it() -> None:
    with open_local_cloud() as cloud:
        cloud.provider.list_deployment("us-west-2")
        assert os.getpgid(cloud.daemon_pid()) != os.getpgid(0)
        assert os.getsid(cloud.daemon_pid()) != os.getsid(0)


# One that is killed does less than one that hangs, and answers as little.
@pytest.mark.parametrize(
    "signal_number",
    [None, pytest.param(signal.SIGKILL, marks=pytest.mark.full), signal.SIGSTOP],
)
def test_stopping_ends_every_machine_whatever_the_daemon_does(signal_number: int | None) -> None:
    with open_local_cloud(agent_command=FAMILY) as cloud:
        machine_id = cloud.launch()
        eventually(lambda: len(cloud.processes(machine_id)) == 6, "the family runs")
        if signal_number is not None:
            os.kill(cloud.daemon_pid(), signal_number)
        assert stop_cloud(cloud.folder, 1.0 if signal_number == signal.SIGSTOP else 20.0) == 0
        assert cloud.processes(machine_id) == ()
        assert not is_alive(cloud.daemon_pid())
        assert cloud.machine(machine_id).ended_by is EndedBy.US  # a new daemon remembers
        assert stop_cloud(cloud.folder, 20.0) == 0


def test_stopping_where_nothing_ever_ran_does_nothing(tmp_path: Path) -> None:
    assert stop_cloud(tmp_path, 5.0) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_long_path_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long-" * 20) / ("path-" * 20)
    with open_local_cloud() as short:
        cloud = LocalCloudForTests(folder, short.settings)
        try:
            machine_id = cloud.launch()
            address = Path((folder / "cloud.address").read_text("utf-8").strip())
            assert len(os.fsencode(address)) < 108
            assert address.parent.stat().st_mode & 0o777 == 0o700
            cloud.provider.terminate((machine_id,))
        finally:
            assert stop_cloud(folder, 20.0) == 0
        assert not address.parent.exists()


def test_the_folder_keeps_its_terms_over_other_settings() -> None:
    with open_local_cloud(billing_speed=60) as cloud:
        assert cloud.provider.billing_speed() == 60
        stop_cloud(cloud.folder, 20.0)
        assert cloud.at(billing_speed=1).provider.billing_speed() == 60


def test_there_is_a_quota() -> None:
    with open_local_cloud(machines_max=2) as cloud:
        cloud.launch()
        refused = cloud.provider.launch(an_order(token="token-2", count=2)).refused
        assert [one.kind for one in refused] == [RefusalKind.QUOTA]


def test_orders_that_make_no_sense_are_rejected() -> None:
    good = an_order()
    with open_local_cloud() as cloud:
        for bad, reason in (
            (replace(good, client_token=""), "client_token"),
            (replace(good, count=0, min_count=0), "count"),
            (replace(good, min_count=2), "count"),
            (replace(good, bids=()), "no pool"),
            (replace(good, market=Market.ON_DEMAND), "market"),
            (replace(good, user_data={"A\0": ""}), "environment"),
        ):
            with pytest.raises(ProviderError, match=reason) as refused:
                cloud.provider.launch(bad)
            assert refused.value.kind is RefusalKind.REJECTED
        with pytest.raises(ProviderError, match="no launch is pending"):
            cloud.provider.poll_launch("operation-1")


def test_a_cloud_that_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "terms.json").write_text("{}", "utf-8")
    with open_local_cloud() as other:
        cloud = LocalCloudForTests(blocked, other.settings)
        with pytest.raises(ProviderError, match=r"cloud\.log") as failed:
            cloud.launch()
        assert failed.value.kind is RefusalKind.UNAVAILABLE


def test_the_daemon_loads_nothing_heavy() -> None:
    listing = "import sys, app.adapters.providers.local.server.cloud; print(*sys.modules)"
    found = run_command([sys.executable, "-c", listing], timeout=120, check=True)
    loaded = {name.partition(".")[0] for name in found.stdout.split()}
    assert not loaded & {"sqlalchemy", "pydantic", "boto3", "google", "fastapi", "torch"}


def _running(cloud: LocalCloudForTests, machine_id: str, word: bytes) -> list[int]:
    """The machine's processes with `word` among their arguments and `sleep` as their program."""
    found = []
    for pid in cloud.processes(machine_id):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if words[0] == b"sleep" and word in words:
            found.append(pid)
    return found
